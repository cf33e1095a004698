// Prompts of a known number of KV blocks, sent through a stack one after the other, and what each left
// behind: the worker that answered, how Weir chose it and what that worker's own cache says. Weir and
// the mock worker render a chat differently, but both add the role and two characters to a message, so
// a message that fills its blocks at the worker fills them at Weir.

import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { SelectionDecision } from "../../extproc/core/selection/decision.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import type { HeaderLines } from "./chat.js";
import { adminText } from "./feedback-fleet.js";
import { request, type Answer } from "./http-client.js";
import { PATIENT_MS } from "./slots.js";
import { JSON_HEADERS, type Stack } from "./stack.js";

export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

/** Characters that stand around a message's content besides its role. */
const FRAME_CHARS = 2;

/** A message that fills so many blocks exactly; one of another name differs from its first word on. */
export function message(
  role: Message["role"],
  name: string,
  blocks: number,
  blockChars: number,
): Message {
  const chars = blocks * blockChars - role.length - FRAME_CHARS;
  return { role, content: textOf(name, chars) };
}

/** So many characters, told from others by the name they begin with. */
export function textOf(name: string, chars: number): string {
  return `${name} has words of its own. `.repeat(Math.ceil(chars / name.length)).slice(0, chars);
}

export interface Asked {
  readonly answer: Answer;
  readonly record: SettlementRecord;
  /** Url of the worker that answered; undefined when none did. */
  readonly worker: string | undefined;
  readonly decision: SelectionDecision | undefined;
}

export interface Question {
  readonly path?: string;
  readonly headers?: HeaderLines;
  /** Address to connect from. */
  readonly from?: string;
  /** An object is sent as JSON. */
  readonly body: string | Readonly<Record<string, unknown>>;
}

/** A chat of these messages. */
export function chatOf(
  messages: readonly Message[],
  over: Readonly<Record<string, unknown>> = {},
): Question {
  return { body: { model: "demo", messages, max_tokens: 5, ...over } };
}

/** Sends a request and returns its answer. */
export function send(
  { port }: Pick<Stack, "port">,
  { path = "/v1/chat/completions", headers = [], from, body }: Question,
): Promise<Answer> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return request({
    port,
    path,
    headers: [...headers, ...JSON_HEADERS],
    body: text,
    limitMs: PATIENT_MS,
    ...(from === undefined ? {} : { localAddress: from }),
  });
}

/** Sends a request and waits for its settlement. One at a time. */
export async function ask(stack: Stack, question: Question): Promise<Asked> {
  const before = stack.settled.length;
  const answer = await send(stack, question);
  const settled = await stack.settlements(before + 1);
  const record = settled[before];
  if (record === undefined) throw new Error("the settlement is gone");
  return { answer, record, worker: workerOf(answer), decision: record.selection };
}

/** Url of the mock worker that answered. */
export function workerOf({ headers }: Answer): string | undefined {
  const port = headers["x-mock-worker"];
  return typeof port === "string" ? `http://127.0.0.1:${port}` : undefined;
}

/** Blocks found in the workers' caches and blocks looked for, as the workers count them. */
export function cacheCounts(workers: readonly MockWorker[]): { hits: number; queries: number } {
  const counts = { hits: 0, queries: 0 };
  for (const worker of workers) {
    const { hits, queries } = worker.state().cache;
    counts.hits += hits;
    counts.queries += queries;
  }
  return counts;
}

/** Zeroes a worker's counters; its cache stays. */
export async function forgetAt({ port }: MockWorker): Promise<void> {
  await request({ port, method: "POST", path: "/mock/reset" });
}

export interface SelectionPage {
  readonly protected_prefixes: number;
  readonly models: readonly {
    readonly model: string;
    readonly policy: string;
    readonly ownership: string;
    readonly events_block_size: number | null;
    readonly decisions: readonly { policy: string; result: string; count: number }[];
  }[];
  readonly workers: readonly WorkerBooks[];
}

export interface WorkerBooks {
  readonly url: string;
  readonly live_load: number;
  readonly processed: number;
  readonly reserved_tokens: number;
  readonly claims: number;
  readonly leased: boolean;
  readonly committed_blocks: number;
  readonly event_blocks: number;
}

/** What /state/selection shows. */
export async function selectionOf(stack: Stack): Promise<SelectionPage> {
  return JSON.parse(await adminText(stack, "/state/selection")) as SelectionPage;
}

/** Blocks that each worker is known to hold because an answer ended well, in the workers' order. */
export async function committedBlocks(stack: Stack): Promise<readonly number[]> {
  return (await selectionOf(stack)).workers.map((worker) => worker.committed_blocks);
}

/** How often each result came about. */
export function countsOf(results: readonly (string | undefined)[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const result of results) {
    if (result !== undefined) counts[result] = (counts[result] ?? 0) + 1;
  }
  return counts;
}

// How do tests make Weir full? A request that hangs at its worker keeps a slot for as long as the
// test wants, so that whoever comes next is held, and nothing depends on how fast the machine is.

import { open, type Answer, type OpenRequest } from "./http-client.js";
import { chatBody, JSON_HEADERS, type Stack } from "./stack.js";

/** A client may wait this long for its turn or its refusal. */
export const PATIENT_MS = 55_000;

const MS_PER_TOKEN = 100;
/** A worker that produces tokens only when `produceTokens` says so. */
export const PACED = { slots: 100, msPerToken: MS_PER_TOKEN, clock: "manual" } as const;

/** Lets each running request of PACED workers produce `count` more tokens. */
export async function produceTokens(stack: Pick<Stack, "workers">, count: number): Promise<void> {
  // A request that has just got its slot counts its tokens from the next turn of the event loop on.
  for (let turn = 0; turn < 2; turn += 1) await new Promise((done) => setImmediate(done));
  for (const worker of stack.workers) worker.advance(count * MS_PER_TOKEN);
}

/** Opens a chat request with these headers and sends its whole body. */
export function startChat(
  stack: Pick<Stack, "port">,
  headers: readonly (readonly [string, string])[] = [],
  over: Readonly<Record<string, unknown>> = {},
): OpenRequest {
  const opened = open({
    port: stack.port,
    method: "POST",
    path: "/v1/chat/completions",
    headers: [...headers, ...JSON_HEADERS],
    limitMs: PATIENT_MS,
  });
  opened.write(chatBody(over));
  opened.end();
  return opened;
}

/** Opens `count` chat requests 50 ms apart, so that one stall of the machine does not meet them all. */
export async function startSpread(
  stack: Pick<Stack, "port">,
  count: number,
): Promise<readonly OpenRequest[]> {
  const opened: OpenRequest[] = [];
  while (opened.length < count) {
    opened.push(startChat(stack));
    await new Promise((done) => setTimeout(done, 50));
  }
  return opened;
}

/** Takes one slot with a request that never ends by itself; `abort` gives the slot back. */
export async function occupySlot(stack: Stack): Promise<OpenRequest> {
  const before = runningAtWorkers(stack);
  const occupant = startChat(stack, [["x-mock", "hang"]]);
  occupant.answer.catch(() => undefined);
  await stack.until("the occupant runs", () => runningAtWorkers(stack) === before + 1);
  return occupant;
}

/** Waits until exactly `count` requests are held by Weir. */
export function untilQueued(stack: Stack, count: number): Promise<void> {
  return stack.until(`${String(count)} held`, () => stack.held()["queued"] === count);
}

export function runningAtWorkers(stack: Pick<Stack, "workers">): number {
  return stack.workers.reduce((sum, worker) => sum + worker.state().running, 0);
}

export function cancelledAtWorkers(stack: Pick<Stack, "workers">): number {
  return stack.workers.reduce((sum, worker) => sum + worker.state().cancelled, 0);
}

export interface StreamingChat {
  readonly answer: Promise<Answer>;
  readonly abort: () => void;
  /** Content events that have reached the client. */
  readonly contentEvents: () => number;
}

/** Opens a chat stream of this many tokens, without usage at its end. */
export function openStream(
  stack: Pick<Stack, "port">,
  headers: readonly (readonly [string, string])[] = [],
  tokens = 50,
): StreamingChat {
  let text = "";
  const opened = open({
    port: stack.port,
    method: "POST",
    path: "/v1/chat/completions",
    headers: [...headers, ...JSON_HEADERS],
    limitMs: PATIENT_MS,
    onChunk: (chunk) => {
      text += chunk.toString("utf8");
    },
  });
  opened.write(chatBody({ stream: true, max_tokens: tokens, ignore_eos: true }));
  opened.end();
  opened.answer.catch(() => undefined);
  return {
    answer: opened.answer,
    abort: () => {
      opened.abort();
    },
    contentEvents: () => text.match(/"content":"[^"]+"/g)?.length ?? 0,
  };
}

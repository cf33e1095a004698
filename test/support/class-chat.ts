// Chats of a priority class, sent so that a test can look at them while they are open: names that a
// worker's log shows again, so that the order of service is seen where the work is done, and clients
// that may leave at any moment. Together with the class tables of such tests and Weir's metrics page
// as they are when it is read.

import { expect } from "chai";
import type { ClassConfig } from "../../extproc/core/model/config.js";
import { PRIORITY_CLASSES, type PriorityClass } from "../../extproc/core/model/priority.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { expectError, type HeaderLines } from "./chat.js";
import { plainClasses } from "./config.js";
import { open, request, type Answer } from "./http-client.js";
import { chatBody, JSON_HEADERS, type Stack } from "./stack.js";

/** Goes through to the worker as it is. */
const NAME_HEADER = "x-test-name";
/** Longer than any test; a class that is not about its timeout gets this patience. */
const PATIENT_SECS = 30;

export interface ClassChat {
  readonly class?: PriorityClass;
  /** Shown by `namesAt`. */
  readonly name?: string;
  /** Faults of the mock worker, as in its header `x-mock`. */
  readonly mock?: string;
  /** Further fields of the chat request. */
  readonly body?: Readonly<Record<string, unknown>>;
  readonly headers?: HeaderLines;
  readonly abortAfterMs?: number;
}

export interface OpenChat {
  readonly answer: Promise<Answer>;
  /** The headers of the answer have come. */
  readonly begun: Promise<void>;
  readonly abort: () => void;
}

/** The four classes, patient and without rights; `over` says what is different. */
export function classTable(
  over: Partial<Record<PriorityClass, Partial<ClassConfig>>>,
): Record<string, object> {
  const plain = plainClasses(PATIENT_SECS);
  return Object.fromEntries(
    PRIORITY_CLASSES.map((name) => [name, { ...plain[name], ...over[name] }]),
  );
}

/** Sends a chat and returns at once. */
export function openChat(stack: Stack, chat: ClassChat): OpenChat {
  const headers: (readonly [string, string])[] = [...JSON_HEADERS, ...(chat.headers ?? [])];
  if (chat.class !== undefined) headers.push(["x-weir-priority", chat.class]);
  if (chat.mock !== undefined) headers.push(["x-mock", chat.mock]);
  if (chat.name !== undefined) headers.push([NAME_HEADER, chat.name]);
  const body = chatBody(chat.body);
  let begin: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const opened = open({
    port: stack.port,
    method: "POST",
    path: "/v1/chat/completions",
    headers,
    body,
    onHeaders: begin,
    ...(chat.abortAfterMs === undefined ? {} : { abortAfterMs: chat.abortAfterMs }),
  });
  opened.write(body);
  opened.end();
  const abort = (): void => {
    opened.abort();
  };
  return { answer: opened.answer, begun, abort };
}

/** Sends a chat and waits until a slot is held for it. */
export async function openRunning(stack: Stack, chat: ClassChat): Promise<OpenChat> {
  const before = stack.held()["inFlight"] ?? 0;
  const opened = openChat(stack, chat);
  await stack.until("the request runs", () => (stack.held()["inFlight"] ?? 0) > before);
  return opened;
}

/** Sends a chat and waits until it stands in the queue. */
export async function openQueued(stack: Stack, chat: ClassChat): Promise<OpenChat> {
  const before = stack.held()["queued"] ?? 0;
  const opened = openChat(stack, chat);
  await stack.until("the request waits", () => (stack.held()["queued"] ?? 0) > before);
  return opened;
}

/** Waits until the workers together run this many requests. */
export function untilRunning(
  stack: Stack,
  count: number,
  workers: readonly MockWorker[] = stack.workers,
): Promise<void> {
  return stack.until(`${String(count)} requests run at the workers`, () => {
    const running = workers.reduce((sum, worker) => sum + worker.state().running, 0);
    return running === count;
  });
}

/** Names of the chats a worker has got, in the order of their arrival; it keeps the last 50. */
export function namesAt(worker: MockWorker): readonly string[] {
  return worker.state().last_requests.flatMap(({ headers }) => headers[NAME_HEADER] ?? []);
}

export interface Arrivals {
  /** Names in the order of arrival, each with the moment at which it was seen. */
  readonly seen: ReadonlyMap<string, number>;
  /** Longest time between two looks: by so much may this process have been late at anything. */
  readonly longestGapMs: number;
  readonly stop: () => void;
}

/** Watches a worker's log so closely that none of its 50 places is used twice between two looks. */
export function watchArrivals(worker: MockWorker): Arrivals {
  const seen = new Map<string, number>();
  let lookedAt = performance.now();
  let longestGapMs = 0;
  const look = (): void => {
    const now = performance.now();
    longestGapMs = Math.max(longestGapMs, now - lookedAt);
    lookedAt = now;
    for (const name of namesAt(worker)) if (!seen.has(name)) seen.set(name, now);
  };
  const timer = setInterval(look, 4);
  return {
    seen,
    get longestGapMs() {
      return longestGapMs;
    },
    stop: () => {
      clearInterval(timer);
      look();
    },
  };
}

/** A whole 200 with the usage of the worker. */
export function expectServed(answer: Answer): void {
  expect(answer.status, answer.body.toString("utf8")).to.equal(200);
  expect(answer.complete).to.equal(true);
}

/** The answer of a victim: whole, and with all that tells a client to come again. */
export function expectPreempted(answer: Answer): void {
  expectError(answer, { status: 503, code: "scheduler_preempted", retryAfter: "1" });
  expect(answer.headers["x-weir-preempted"]).to.equal("true");
  expect(answer.complete).to.equal(true);
}

/** A 429 whose Retry-After lies between one second and the queue timeout of its class. */
export function expectContended(
  answer: Answer,
  code: "scheduler_queue_full" | "scheduler_queue_timeout",
  timeoutSecs: number,
): void {
  const retryAfter = answer.headers["retry-after"] ?? "";
  expectError(answer, { status: 429, code, retryAfter });
  expect(retryAfter).to.match(/^[1-9]\d*$/);
  expect(Number(retryAfter)).to.be.at.most(timeoutSecs);
  expect(answer.headers).to.not.have.property("x-weir-preempted");
}

/** A page of Weir's admin server. */
export async function adminPage(
  stack: Stack,
  path: "/metrics" | "/state" | "/state/fair-share",
): Promise<string> {
  const { listen } = stack.config.admin;
  if (listen.kind !== "tcp") throw new Error("the admin server is not on TCP");
  return (await request({ port: listen.port, path })).body.toString("utf8");
}

export type Series = (name: string, labels?: Readonly<Record<string, string>>) => number;

/**
 * Reads Weir's metrics; the result gives the sum of a metric's series that have these labels. A name
 * that does not exist throws: a mistyped name must not read as zero.
 */
export async function scrape(stack: Stack): Promise<Series> {
  const lines = (await adminPage(stack, "/metrics")).split("\n");
  return (name, labels = {}) => {
    if (!lines.some((line) => line.startsWith(`# TYPE ${name} `))) {
      throw new Error(`Weir has no metric named ${name}`);
    }
    const wanted = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
    return lines
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .filter((line) => wanted.every((pair) => line.includes(pair)))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
  };
}

/** Received = admitted + rejected + gone before admission, once nobody is undecided. */
export async function expectAccounted(stack: Stack, received: number): Promise<void> {
  const series = await scrape(stack);
  const count = (name: string): number => series(`weir_http_admission_${name}`);
  expect(count("received_total")).to.equal(received);
  expect(count("queued")).to.equal(0);
  expect(count("active")).to.equal(0);
  const gone = count("pre_admission_interrupted_total");
  expect(count("admitted_total") + count("rejected_total") + gone).to.equal(received);
  const ends = ["success", "http_4xx", "http_5xx", "interrupted"];
  const ended = ends.reduce((sum, end) => sum + count(`${end}_total`), 0);
  expect(ended).to.equal(count("admitted_total"));
}

/** Envoy never had to break an ext_proc stream off, and no worker of its is busy any more. */
export async function expectEnvoyAtRest(stack: Stack): Promise<void> {
  expect(await stack.envoy.stat("cluster.ext_proc.http2.tx_reset")).to.equal(0);
  for (const { cluster } of stack.config.workers) {
    expect(await stack.envoy.stat(`cluster.${cluster}.upstream_rq_active`)).to.equal(0);
  }
}

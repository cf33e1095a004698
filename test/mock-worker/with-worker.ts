// Helpers of the mock worker's own tests: one worker per test on a free port, raw requests, and
// events of a stream as parsed data.
import type { MockWorkerOptions } from "../../envoy/mock-worker/options.js";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";

/** Runs `body` with a fresh worker and closes it afterwards, whatever happens. */
export async function withWorker(
  options: Partial<MockWorkerOptions>,
  body: (worker: MockWorker) => Promise<void>,
): Promise<void> {
  const worker = await startMockWorker({ port: 0, ...options });
  try {
    await body(worker);
  } finally {
    await worker.close(0);
  }
}

export interface Call {
  readonly path: string;
  readonly body: unknown;
  readonly mock?: string;
  readonly signal?: AbortSignal;
}

export function post(worker: MockWorker, call: Call): Promise<Response> {
  return fetch(worker.url + call.path, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(call.mock === undefined ? {} : { "x-mock": call.mock }),
    },
    body: typeof call.body === "string" ? call.body : JSON.stringify(call.body),
    ...(call.signal === undefined ? {} : { signal: call.signal }),
  });
}

export type Data = Record<string, unknown>;

/** The `data:` lines of a stream, parsed; `[DONE]` stays a text. */
export function dataOf(stream: string): (Data | string)[] {
  return stream
    .split("\n")
    .filter((line) => line.startsWith("data: "))
    .map((line) => line.slice("data: ".length))
    .map((text) => (text.startsWith("{") ? (JSON.parse(text) as Data) : text));
}

/** Waits until `isSo` holds, a turn of the event loop at a time; fails after two seconds. */
export async function until(isSo: () => boolean): Promise<void> {
  const deadline = Date.now() + 2000;
  while (!isSo()) {
    if (Date.now() > deadline) throw new Error("it did not come true within two seconds");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

export const chatBody = (content: string, more: Data = {}): Data => ({
  model: "demo",
  messages: [{ role: "user", content }],
  ...more,
});

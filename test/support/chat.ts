// One chat request through a stack, together with what it left behind: its settlement record and the
// headers that reached a worker. End-to-end tests of identity and routing ask for nothing else.

import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { SeenRequest } from "../../envoy/mock-worker/request-log.js";
import { request, type Answer } from "./http-client.js";
import { chatBody, JSON_HEADERS, type Stack } from "./stack.js";

export type HeaderLines = readonly (readonly [name: string, value: string])[];

export interface SettledChat {
  readonly answer: Answer;
  readonly record: SettlementRecord;
}

/** Sends a chat request with these headers in front of the content type. */
export function sendChat(stack: Stack, headers: HeaderLines = []): Promise<Answer> {
  return request({
    port: stack.port,
    path: "/v1/chat/completions",
    headers: [...headers, ...JSON_HEADERS],
    body: chatBody(),
  });
}

/** Sends a chat request and waits for its settlement. One at a time. */
export async function settledChat(stack: Stack, headers: HeaderLines = []): Promise<SettledChat> {
  const before = stack.settled.length;
  const answer = await sendChat(stack, headers);
  const settled = await stack.settlements(before + 1);
  const record = settled[before];
  if (record === undefined) throw new Error("the settlement is gone");
  return { answer, record };
}

/** What all workers have seen since the last `forgetSeen`, at most 50 requests each. */
export function seenByWorkers(stack: Stack): readonly SeenRequest[] {
  return stack.workers.flatMap((worker) => worker.state().last_requests);
}

/** Empties the workers' logs of requests. */
export async function forgetSeen(stack: Stack): Promise<void> {
  for (const { port } of stack.workers) {
    await request({ port, method: "POST", path: "/mock/reset" });
  }
}

export interface ExpectedError {
  readonly status: number;
  readonly code: string;
  readonly retryAfter?: string;
}

/** Holds an error answer to the one shape all errors have, and returns its message. */
export function expectError(
  answer: Pick<Answer, "status" | "headers" | "body">,
  expected: ExpectedError,
): string {
  const text = answer.body.toString("utf8");
  expect(answer.status, text).to.equal(expected.status);
  expect(answer.headers["content-type"]).to.equal("application/json");
  expect(answer.headers["x-weir-error-code"]).to.equal(expected.code);
  expect(answer.headers["retry-after"]).to.equal(expected.retryAfter);
  const body = JSON.parse(text) as { error: Record<string, unknown> };
  expect(Object.keys(body)).to.deep.equal(["error"]);
  expect(Object.keys(body.error)).to.have.members(["type", "code", "message", "param"]);
  const { type, code, message, param } = body.error;
  expect(code).to.equal(expected.code);
  expect(param).to.equal(null);
  for (const words of [type, message]) expect(words).to.be.a("string").and.not.equal("");
  return message as string;
}

// The table of endings. Each row changes one thing against a complete worker answer without usage.

import { expect } from "chai";
import {
  CANCELLED_CHARGE,
  chargeFor,
  type AnswerEnd,
  type Charge,
} from "../../../extproc/core/settlement/charge.js";
import {
  createUsageReader,
  type UsageReading,
} from "../../../extproc/core/settlement/usage-reader.js";

const reading = (changes: Partial<UsageReading> = {}): UsageReading => ({
  outputTokens: undefined,
  lastSeenTokens: undefined,
  contentEvents: 0,
  promptTokens: undefined,
  cachedTokens: undefined,
  ...changes,
});

const charge = (changes: Partial<AnswerEnd>): Charge =>
  chargeFor({
    dispatched: true,
    origin: "worker",
    complete: true,
    format: "json",
    reading: reading(),
    producesOutput: true,
    estimateTokens: 100,
    ...changes,
  });

const observed = (tokens: number): UsageReading =>
  reading({ outputTokens: tokens, lastSeenTokens: tokens });

describe("charge", () => {
  for (const [title, end, kind, tokens, clockTokens] of [
    ["work that was never dispatched is cancelled", { dispatched: false }, "cancelled", 0, 0],
    [
      "work that never reached the worker is cancelled, whatever Envoy's reply says",
      { origin: "never_reached", reading: observed(9) },
      "cancelled",
      0,
      0,
    ],
    ["a reset before headers keeps the estimate", { origin: "reset" }, "interrupted", 100, 100],
    [
      "Envoy's own answer to dispatched work keeps the estimate",
      { origin: "envoy", reading: observed(9), producesOutput: false },
      "interrupted",
      100,
      100,
    ],
    ["a complete answer is charged its usage", { reading: observed(37) }, "observed", 37, 37],
    [
      "more than the estimate is charged when it was used",
      { reading: observed(4_294_967_295) },
      "observed",
      4_294_967_295,
      4_294_967_295,
    ],
    [
      "an answer without attributes is charged as the worker's",
      { origin: "unknown", reading: observed(37) },
      "observed",
      37,
      37,
    ],
    ["an observed 0 still takes a turn", { reading: observed(0) }, "observed", 0, 1],
    ["embeddings are settled at 0, not missing", { producesOutput: false }, "observed", 0, 1],
    [
      "embeddings whose body was not read are settled at 0",
      { producesOutput: false, reading: undefined },
      "observed",
      0,
      1,
    ],
    [
      "embeddings that broke off keep their estimate",
      { producesOutput: false, complete: false },
      "interrupted",
      100,
      100,
    ],
    ["JSON without usage keeps the estimate", {}, "missing_usage", 100, 100],
    [
      "an answer in a coding that cannot be read keeps the estimate",
      { reading: undefined, format: "sse" },
      "missing_usage",
      100,
      100,
    ],
    [
      "a stream without usage keeps an estimate above its events",
      { format: "sse", reading: reading({ contentEvents: 99 }) },
      "missing_usage",
      100,
      100,
    ],
    [
      "a stream without usage is charged its events when they are more",
      { format: "sse", reading: reading({ contentEvents: 101 }) },
      "missing_usage",
      101,
      101,
    ],
    [
      "a stream whose only usage was preliminary is charged the most that was seen",
      { format: "sse", reading: reading({ lastSeenTokens: 120, contentEvents: 101 }) },
      "missing_usage",
      120,
      120,
    ],
    ["an estimate of 0 still takes a turn", { estimateTokens: 0 }, "missing_usage", 0, 1],
    [
      "B9 a client that drops the stream is charged 100",
      { complete: false },
      "interrupted",
      100,
      100,
    ],
    [
      "B10 a backend error after one frame is charged 100",
      { complete: false, format: "sse", reading: reading({ contentEvents: 0 }) },
      "interrupted",
      100,
      100,
    ],
    [
      "usage seen in a stream that then broke does not lower the charge",
      { complete: false, format: "sse", reading: observed(37) },
      "interrupted",
      100,
      100,
    ],
    [
      "a broken stream that had used more is charged what it had used",
      { complete: false, format: "sse", reading: observed(137) },
      "interrupted",
      137,
      137,
    ],
    [
      "a broken stream is charged its events when they are most",
      {
        complete: false,
        format: "sse",
        reading: reading({ lastSeenTokens: 120, contentEvents: 150 }),
      },
      "interrupted",
      150,
      150,
    ],
    [
      "a JSON answer given up half-way keeps the estimate",
      { complete: false, reading: observed(137) },
      "interrupted",
      100,
      100,
    ],
    [
      "dispatched work without any answer keeps the estimate",
      { origin: "unknown", complete: false, reading: undefined },
      "interrupted",
      100,
      100,
    ],
  ] as const satisfies readonly (readonly [string, Partial<AnswerEnd>, string, number, number])[]) {
    it(title, () => {
      expect(charge(end)).to.deep.equal({ kind, tokens, clockTokens });
    });
  }

  it("the cancelled charge moves nothing", () => {
    expect(CANCELLED_CHARGE).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
  });

  it("streams without usage are not free: 1,000 of them are charged 1,000 estimates", () => {
    let tokens = 0;
    for (let stream = 0; stream < 1_000; stream += 1) {
      const reader = createUsageReader("sse");
      reader.push(new TextEncoder().encode('data: {"usage":null}\n\ndata: [DONE]\n\n'));
      tokens += charge({ format: "sse", reading: reader.finish() }).tokens;
    }
    expect(tokens).to.equal(100_000);
  });
});

import { expect } from "chai";
import fc from "fast-check";
import {
  COUNT_MAX,
  RANKS_MAX,
  RATIO_MAX,
  readSample,
  type RankReading,
  type ReadingResult,
  type WorkerReading,
} from "../../../extproc/core/workers/telemetry-reading.js";

const GOOD: RankReading = { rank: 0, running: 4, waiting: 1, tokenUsage: 0.5 };

function read(ranks: readonly RankReading[], more: Partial<WorkerReading> = {}): ReadingResult {
  return readSample({
    source: "sglang_loads",
    token: { kind: "timestamp", value: "t" },
    ranks,
    ...more,
  });
}

function reason(ranks: readonly RankReading[], more: Partial<WorkerReading> = {}): string {
  const result = read(ranks, more);
  return result.kind === "sample" ? "a sample" : `${result.reason}: ${result.detail}`;
}

const WHOLE = `allowed: a whole number from 0 to ${String(COUNT_MAX)}`;

describe("readSample", () => {
  it("makes a sample of running, waiting and token usage alone; the rest is unknown", () => {
    expect(read([GOOD])).to.deep.equal({
      kind: "sample",
      sample: {
        source: "sglang_loads",
        token: { kind: "timestamp", value: "t" },
        ranks: [
          {
            rank: 0,
            running: 4,
            waiting: 1,
            waitingUncachedTokens: undefined,
            usedTokens: undefined,
            maxTokens: undefined,
            tokenUsage: 0.5,
            utilization: undefined,
            cacheHitRate: undefined,
            tokensPerSecond: undefined,
            maxRunning: undefined,
          },
        ],
        invalidFields: [],
        countedTokensPerSecond: undefined,
      },
    });
  });

  for (const field of ["running", "waiting"] as const) {
    for (const [value, expected] of [
      [undefined, `missing_metric: rank 0: ${field} is missing`],
      [null, `missing_metric: rank 0: ${field} is missing`],
      [Number.NaN, `invalid_value: rank 0: ${field} is NaN; ${WHOLE}`],
      [Number.POSITIVE_INFINITY, `invalid_value: rank 0: ${field} is Infinity; ${WHOLE}`],
      [-1, `invalid_value: rank 0: ${field} is -1; ${WHOLE}`],
      [0.5, `invalid_value: rank 0: ${field} is 0.5; ${WHOLE}`],
      [COUNT_MAX + 1, `invalid_value: rank 0: ${field} is 2147483648; ${WHOLE}`],
      ["4", `invalid_value: rank 0: ${field} is "4"; ${WHOLE}`],
      [true, `invalid_value: rank 0: ${field} is true; ${WHOLE}`],
      [{}, `invalid_value: rank 0: ${field} is an object; ${WHOLE}`],
      [[4], `invalid_value: rank 0: ${field} is a list; ${WHOLE}`],
      [COUNT_MAX, "a sample"],
      [0, "a sample"],
    ] as const) {
      it(`reads ${field} ${JSON.stringify(value)} (${typeof value}) as ${expected.split(":")[0] ?? ""}`, () => {
        expect(reason([{ ...GOOD, [field]: value }])).to.equal(expected);
      });
    }
  }

  for (const [value, expected] of [
    [null, "missing_metric"],
    [Number.NaN, "invalid_value"],
    [-0.01, "invalid_value"],
    [RATIO_MAX + 0.01, "invalid_value"],
    [62, "invalid_value"],
    [RATIO_MAX, "a sample"],
    [0, "a sample"],
  ] as const) {
    it(`reads token usage ${String(value)} as ${expected}`, () => {
      expect(reason([{ ...GOOD, tokenUsage: value }]).split(":")[0]).to.equal(expected);
    });
  }

  for (const [field, value] of [
    ["waitingUncachedTokens", -1],
    ["usedTokens", 1.5],
    ["maxTokens", COUNT_MAX + 1],
    ["utilization", Number.NaN],
    ["cacheHitRate", "0.5"],
    ["tokensPerSecond", Number.POSITIVE_INFINITY],
    ["maxRunning", -64],
  ] as const) {
    it(`keeps the sample without ${field} when that is ${String(value)}, and names it`, () => {
      const result = read([{ ...GOOD, [field]: value }]);
      if (result.kind !== "sample") throw new Error(result.detail);
      expect(result.sample.ranks[0]?.[field]).to.equal(undefined);
      expect(result.sample.invalidFields).to.deep.equal([field]);
    });
  }

  it("takes a ceiling of 0 for one that is not told", () => {
    const result = read([{ ...GOOD, maxRunning: 0 }]);
    if (result.kind !== "sample") throw new Error(result.detail);
    expect(result.sample.ranks[0]?.maxRunning).to.equal(undefined);
    expect(result.sample.invalidFields).to.deep.equal([]);
  });

  it("refuses a total that is not the sum of running and waiting", () => {
    expect(reason([{ ...GOOD, total: 5 }])).to.equal("a sample");
    expect(reason([{ ...GOOD, total: 6 }])).to.equal(
      "invalid_value: rank 0: 4 running and 1 waiting are not its total of 6",
    );
  });

  it("refuses a worker of which one rank cannot be read", () => {
    const second = { ...GOOD, rank: 1, waiting: null };
    expect(reason([GOOD, second])).to.equal("missing_metric: rank 1: waiting is missing");
  });

  it("sorts the ranks by their ids", () => {
    const result = read([{ ...GOOD, rank: 1, running: 9 }, GOOD]);
    if (result.kind !== "sample") throw new Error(result.detail);
    expect(result.sample.ranks.map(({ running }) => running)).to.deep.equal([4, 9]);
  });

  for (const [symptom, ranks, declaredRanks, expected] of [
    ["no rank", [], undefined, "missing_metric: it reports no rank"],
    ["fewer ranks than declared", [GOOD], 2, "invalid_value: it declares 2 ranks and reports 1"],
    [
      "a declared number that is none",
      [GOOD],
      "1",
      `invalid_value: it declares "1" ranks and reports 1`,
    ],
    [
      "the same id twice",
      [GOOD, GOOD],
      2,
      "invalid_value: rank id 0; allowed: each of 0 to 1 once",
    ],
    [
      "a hole in the ids",
      [GOOD, { ...GOOD, rank: 2 }],
      undefined,
      "invalid_value: rank id 2; allowed: each of 0 to 1 once",
    ],
    [
      "a negative id",
      [{ ...GOOD, rank: -1 }],
      undefined,
      "invalid_value: rank id -1; allowed: each of 0 to 0 once",
    ],
    [
      "a fraction for an id",
      [{ ...GOOD, rank: 0.5 }],
      undefined,
      "invalid_value: rank id 0.5; allowed: each of 0 to 0 once",
    ],
    [
      "a text for an id",
      [{ ...GOOD, rank: "0" }],
      undefined,
      `invalid_value: rank id "0"; allowed: each of 0 to 0 once`,
    ],
    ["one rank without id", [{ ...GOOD, rank: null }], 1, "a sample"],
  ] as const) {
    it(`reads ${symptom} as ${expected.split(":")[0] ?? ""}`, () => {
      expect(reason(ranks, { declaredRanks })).to.equal(expected);
    });
  }

  it("reads up to RANKS_MAX ranks and not one more", () => {
    const many = Array.from({ length: RANKS_MAX }, (_, rank) => ({ ...GOOD, rank }));
    expect(reason(many)).to.equal("a sample");
    expect(reason([...many, { ...GOOD, rank: RANKS_MAX }])).to.equal(
      "invalid_value: it reports 1025 ranks; allowed: 1024",
    );
  });

  it("quotes only the beginning of a long value", () => {
    expect(reason([{ ...GOOD, running: "x".repeat(100_000) }])).to.have.length.below(150);
  });

  it("never throws and never makes a number out of what is none", () => {
    const value = fc.anything();
    const rank = fc.record({ rank: value, running: value, waiting: value, tokenUsage: value });
    fc.assert(
      fc.property(fc.array(rank, { maxLength: 3 }), value, (ranks, declaredRanks) => {
        const result = read(ranks, { declaredRanks });
        if (result.kind !== "sample") return;
        for (const { running, waiting, tokenUsage } of result.sample.ranks) {
          expect([running, waiting, tokenUsage].every(Number.isFinite)).to.equal(true);
        }
      }),
    );
  });
});

import { expect } from "chai";
import {
  sameSample,
  workerLoad,
  type RankSample,
  type SampleToken,
  type WorkerSample,
} from "../../../extproc/core/workers/telemetry.js";

const RANK: RankSample = {
  rank: 0,
  running: 0,
  waiting: 0,
  waitingUncachedTokens: 0,
  usedTokens: 0,
  maxTokens: 1000,
  tokenUsage: 0,
  utilization: 0,
  cacheHitRate: 0,
  tokensPerSecond: 0,
  maxRunning: undefined,
};

function sampleWith(ranks: readonly Partial<RankSample>[], counted?: number): WorkerSample {
  return {
    source: "sglang_loads",
    token: { kind: "scrape", sequence: 1 },
    ranks: ranks.map((rank, index) => ({ ...RANK, rank: index, ...rank })),
    invalidFields: [],
    countedTokensPerSecond: counted,
  };
}

describe("workerLoad", () => {
  it("sums counts, rates and ceilings over the ranks and takes the mean of their token usage", () => {
    const ranks = [
      {
        running: 20,
        waiting: 3,
        waitingUncachedTokens: 900,
        tokenUsage: 0.25,
        tokensPerSecond: 1000,
        maxRunning: 32,
      },
      {
        running: 10,
        waiting: 1,
        waitingUncachedTokens: 100,
        tokenUsage: 0.5,
        tokensPerSecond: 500,
      },
    ];
    expect(workerLoad(sampleWith(ranks), 64)).to.deep.equal({
      running: 30,
      waiting: 4,
      waitingUncachedTokens: 1000,
      tokenUsage: 0.375,
      throughput: 1500,
      maxRunning: 32,
    });
  });

  it("holds the mean of token usage within 0 and 1, after it was taken", () => {
    expect(workerLoad(sampleWith([{ tokenUsage: 1.2 }]), undefined).tokenUsage).to.equal(1);
    const mixed = sampleWith([{ tokenUsage: 1.25 }, { tokenUsage: 0.25 }]);
    expect(workerLoad(mixed, undefined).tokenUsage).to.equal(0.75);
  });

  it("falls back to the label only when no rank reports a ceiling", () => {
    expect(workerLoad(sampleWith([{}, { maxRunning: 8 }]), 64).maxRunning).to.equal(8);
    expect(workerLoad(sampleWith([{}, {}]), 64).maxRunning).to.equal(64);
    expect(workerLoad(sampleWith([{}]), undefined).maxRunning).to.equal(undefined);
  });

  it("does not know a sum of which one rank's part is unknown", () => {
    const ranks = [{}, { waitingUncachedTokens: undefined, tokensPerSecond: undefined }];
    const load = workerLoad(sampleWith(ranks), undefined);
    expect(load.waitingUncachedTokens).to.equal(undefined);
    expect(load.throughput).to.equal(undefined);
  });

  it("prefers the engine's own rate to the one from its counters", () => {
    const blind = { tokensPerSecond: undefined };
    expect(workerLoad(sampleWith([blind], 77), undefined).throughput).to.equal(77);
    expect(workerLoad(sampleWith([{ tokensPerSecond: 5 }], 77), undefined).throughput).to.equal(5);
  });
});

describe("sameSample", () => {
  const at = (value: string): SampleToken => ({ kind: "timestamp", value });
  const scrape = (sequence: number): SampleToken => ({ kind: "scrape", sequence });
  for (const [a, b, same] of [
    [at("t"), at("t"), true],
    [at("t"), at("u"), false],
    [scrape(1), scrape(1), true],
    [scrape(1), scrape(2), false],
    [at("1"), scrape(1), false],
    [{ kind: "none" }, { kind: "none" }, false],
  ] as const) {
    it(`is ${String(same)} for ${JSON.stringify(a)} and ${JSON.stringify(b)}`, () => {
      expect(sameSample(a, b)).to.equal(same);
    });
  }
});

// The rule that finds the knee, sample by sample. Improvement ratio 0.02, half-life 900 s.

import { expect } from "chai";
import { KneeEstimator, type KneeVerdict } from "../../../extproc/core/capacity/feedback-knee.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";

interface Sample {
  readonly running: number;
  readonly throughput: number;
  readonly bound?: boolean;
}

const POLL_MS = 10_000;

class KneeBench {
  readonly estimator: KneeEstimator;
  #atMs = 0;

  constructor(referenceRule = false, halfLifeMs = 900_000) {
    this.estimator = new KneeEstimator({ halfLifeMs, improvementRatio: 0.02, referenceRule });
  }

  /** One sample a poll interval after the last. */
  see({ running, throughput, bound = true }: Sample, gapMs = POLL_MS): KneeVerdict {
    this.#atMs += gapMs;
    return this.estimator.observe({ running, throughput }, bound, monotonicMs(this.#atMs));
  }

  get knee(): number | undefined {
    return this.estimator.knee;
  }

  get peak(): number {
    return this.estimator.peakAt(monotonicMs(this.#atMs));
  }
}

describe("the knee of an engine", () => {
  it("is the first busy sample, and no idle one", () => {
    const bench = new KneeBench();
    expect(bench.see({ running: 0, throughput: 5 })).to.equal("idle");
    expect(bench.knee).to.equal(undefined);
    expect(bench.see({ running: 10, throughput: 100 })).to.equal("first");
    expect([bench.knee, bench.peak]).to.deep.equal([10, 100]);
  });

  it("moves up with more throughput than a change that counts, not with exactly that much", () => {
    const bench = new KneeBench();
    bench.see({ running: 10, throughput: 100 });
    expect(bench.see({ running: 11, throughput: 102 })).to.equal("plateau");
    expect([bench.knee, bench.peak]).to.deep.equal([10, 100]);
    expect(bench.see({ running: 11, throughput: 110 })).to.equal("raised");
    expect([bench.knee, bench.peak]).to.deep.equal([11, 110]);
  });

  it("climbs a ramp whose single steps are too small to count, where the reference rule stands still", () => {
    const climb = (referenceRule: boolean): KneeBench => {
      const bench = new KneeBench(referenceRule);
      for (let running = 100; running <= 150; running += 1) {
        bench.see({ running, throughput: running * 10 });
      }
      return bench;
    };
    expect(climb(false).knee).to.be.within(147, 150);
    expect(climb(true).knee).to.equal(100);
  });

  it("moves down to fewer requests with about the same throughput", () => {
    const bench = new KneeBench();
    bench.see({ running: 20, throughput: 100 });
    expect(bench.see({ running: 12, throughput: 98 })).to.equal("lowered");
    expect([bench.knee, bench.peak]).to.deep.equal([12, 100]);
    expect(bench.see({ running: 11, throughput: 97.9 })).to.equal("below");
    expect(bench.knee).to.equal(12);
  });

  it("is not taken down by a quiet night: few requests for want of demand teach nothing", () => {
    const bench = new KneeBench();
    bench.see({ running: 100, throughput: 1_000 });
    for (let running = 99; running >= 5; running -= 1) {
      bench.see({ running, throughput: running * 10, bound: false });
    }
    expect([bench.knee, bench.peak]).to.deep.equal([100, 1_000]);
    // Nor by a burst of throughput with few requests.
    expect(bench.see({ running: 5, throughput: 1_100, bound: false })).to.equal("raised");
    expect(bench.knee).to.equal(100);
  });

  it("does not take less throughput for a lower knee, under pressure neither", () => {
    const bench = new KneeBench();
    bench.see({ running: 100, throughput: 1_000 });
    for (let count = 0; count < 5; count += 1) {
      expect(bench.see({ running: 105, throughput: 500 })).to.equal("below");
    }
    expect(bench.knee).to.equal(100);
  });

  it("stops at the knee when a step up ran past it", () => {
    const bench = new KneeBench();
    bench.see({ running: 7.5, throughput: 75 });
    // 33 percent more requests earn 4 percent: the knee is 4 percent further, at 7.8.
    expect(bench.see({ running: 10, throughput: 78 })).to.equal("raised");
    expect(bench.knee).to.be.closeTo(7.8, 1e-9);
    expect(bench.estimator.gain).to.be.closeTo(0.04 / (1 / 3), 1e-9);
  });

  it("goes the whole of a step of up to 8 percent, however little that earned", () => {
    const step = (running: number): number | undefined => {
      const bench = new KneeBench();
      bench.see({ running: 100, throughput: 1_000 });
      bench.see({ running, throughput: 1_021 });
      return bench.knee;
    };
    expect(step(107)).to.equal(107);
    expect(step(109)).to.be.closeTo(102.1, 1e-9);
  });

  it("loses its peak by half in a half-life of samples that do not confirm it", () => {
    const bench = new KneeBench(false, 60_000);
    bench.see({ running: 100, throughput: 1_000 });
    for (let count = 0; count < 6; count += 1) {
      expect(bench.see({ running: 60, throughput: 450 })).to.equal("below");
    }
    // 60 s after the last confirmation the peak counts 500; the sample before decides how much is left.
    expect(bench.peak).to.be.closeTo(500, 1e-9);
    expect(bench.see({ running: 60, throughput: 495 })).to.equal("lowered");
    expect(bench.knee).to.equal(60);
  });

  it("does not lose it over the wait for one poll, however long the interval is", () => {
    const bench = new KneeBench();
    bench.see({ running: 100, throughput: 1_000 });
    // After 60 s at a half-life of 900 s the peak would count 955, and 990 would pass for a raise.
    for (let count = 0; count < 10; count += 1) {
      expect(bench.see({ running: 105, throughput: 990 }, 60_000)).to.equal("plateau");
    }
    expect(bench.knee).to.equal(100);
  });

  it("is capped by what the caches hold, and never lifted by that", () => {
    const bench = new KneeBench();
    bench.see({ running: 100, throughput: 1_000 });
    bench.estimator.capAt(120, 1_000, monotonicMs(POLL_MS));
    expect(bench.knee).to.equal(100);
    bench.estimator.capAt(80, 900, monotonicMs(POLL_MS));
    expect([bench.knee, bench.peak]).to.deep.equal([80, 900]);
  });
});

describe("the reference rule of the knee", () => {
  it("takes every better sample for the peak and the smallest count on a plateau for the knee", () => {
    const bench = new KneeBench(true);
    bench.see({ running: 20, throughput: 100 });
    expect(bench.see({ running: 25, throughput: 101 }, 1)).to.equal("plateau");
    expect(bench.peak).to.equal(101);
    expect(bench.see({ running: 10, throughput: 100, bound: false }, 1)).to.equal("lowered");
    expect(bench.knee).to.equal(10);
  });
});

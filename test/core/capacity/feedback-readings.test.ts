// From readings to inputs: what is unknown stays unknown, a lost poll is bridged, a sample teaches
// once.

import { expect } from "chai";
import fc from "fast-check";
import {
  READING_AGE_MAX_MS,
  ReadingHold,
  type HeldReadings,
} from "../../../extproc/core/capacity/feedback-hold.js";
import {
  feedbackInputs,
  loadCoverage,
  maxRunningCoverage,
  scaledCeiling,
  type WorkerReading,
} from "../../../extproc/core/capacity/feedback-inputs.js";
import { roundUp } from "../../../extproc/core/capacity/rounding.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { FeedbackBench, MODEL, reading, workers } from "../../support/feedback.js";

describe("the inputs of a partition", () => {
  it("are zero, and its coverages too, without healthy workers", () => {
    const inputs = feedbackInputs([]);
    expect(inputs).to.include({ healthy: 0, observed: 0, meanTokenUsage: 0, sample: undefined });
    expect([loadCoverage(inputs), maxRunningCoverage(inputs), scaledCeiling(inputs)]).to.deep.equal(
      [0, 0, 0],
    );
  });

  it("do not count a worker that says nothing as an idle one", () => {
    const inputs = feedbackInputs(workers({ running: 8, tokenUsage: 0.8 }, undefined));
    expect(inputs).to.include({ healthy: 2, observed: 1, running: 8, meanTokenUsage: 0.8 });
  });

  it("learn per worker from those whose throughput is known: unknown is not 0", () => {
    const inputs = feedbackInputs(
      workers({ running: 8, throughput: 80 }, { running: 2, throughput: undefined }),
    );
    expect(inputs).to.include({ running: 10, throughput: 80 });
    expect(inputs.sample).to.deep.equal({ throughput: 80, running: 8 });
    const none = feedbackInputs(workers({ running: 8, throughput: undefined }));
    expect(none.sample).to.equal(undefined);
  });

  it("book a throughput on the running count it was measured with", () => {
    const inputs = feedbackInputs(workers({ running: 4, runningWhileMeasured: 8, throughput: 80 }));
    expect(inputs.running).to.equal(4);
    expect(inputs.sample).to.deep.equal({ throughput: 80, running: 8 });
  });

  it("keep a usage beyond its range within it", () => {
    const inputs = feedbackInputs(workers({ tokenUsage: 1.5 }, { tokenUsage: -1 }));
    expect(inputs).to.include({ meanTokenUsage: 0.5, maxTokenUsage: 1 });
  });

  it("scale ceilings down to a whole number: 31 and 30 of three workers are 91", () => {
    const inputs = feedbackInputs(workers({ maxRunning: 31 }, { maxRunning: 30 }, {}));
    expect(scaledCeiling(inputs)).to.equal(91);
  });
});

describe("a lost poll", () => {
  const at = (
    hold: ReadingHold,
    atMs: number,
    ...given: readonly (Partial<WorkerReading> | undefined)[]
  ): HeldReadings => hold.apply(workers(...given), monotonicMs(atMs));

  it("is bridged by the last reading until that is 30 s old", () => {
    const hold = new ReadingHold();
    at(hold, 0, { running: 3 }, {});
    const bridged = at(hold, READING_AGE_MAX_MS - 1, undefined, {});
    expect(bridged).to.include({ held: 1, fresh: true });
    expect(bridged.workers[0]?.reading?.running).to.equal(3);
    const gone = at(hold, READING_AGE_MAX_MS, undefined, {});
    expect(gone.held).to.equal(0);
    expect(gone.workers[0]?.reading).to.equal(undefined);
  });

  it("does not make one stale worker take a whole small pool down", () => {
    const bench = new FeedbackBench().publish(0, { maxRunning: 8 }).publish(10_000, undefined);
    expect(bench.controller.limits(MODEL)).to.include({ usable: true, runningLimit: 8 });
    bench.publish(20_000, undefined).publish(30_000, undefined);
    expect(bench.controller.limits(MODEL).usable).to.equal(false);
    expect(bench.reasons(1)).to.deep.equal(["telemetry_fallback"]);
  });

  it("is not bridged by a reading from before the worker was gone", () => {
    const hold = new ReadingHold();
    at(hold, 0, { running: 3 });
    hold.apply([], monotonicMs(1_000));
    expect(at(hold, 2_000, undefined).workers[0]?.reading).to.equal(undefined);
  });

  it("makes a worker unknown at once under the reference rule", () => {
    const bench = new FeedbackBench({ feedback_reference_rule: true })
      .publish(0, { maxRunning: 8 })
      .publish(10_000, undefined);
    expect(bench.controller.limits(MODEL).usable).to.equal(false);
  });

  it("neither renews a reading that is brought again nor learns from it a second time", () => {
    const hold = new ReadingHold();
    const same = [{ url: "http://127.0.0.1:1", reading: reading({ running: 3 }) }];
    expect(hold.apply(same, monotonicMs(0)).fresh).to.equal(true);
    expect(hold.apply(same, monotonicMs(29_000)).fresh).to.equal(false);
    expect(at(hold, 30_000, undefined).held).to.equal(0);
  });
});

describe("limits that are learned", () => {
  it("do not move when another group's poll delivers the same samples again", () => {
    const busy = { running: 100, throughput: 1_000, maxRunning: 200 };
    const offerAfter = (samples: number, deliveries: number): string | undefined => {
      const { controller } = new FeedbackBench();
      let now = 0;
      for (let sample = 0; sample < samples; sample += 1) {
        const readings = [{ partition: MODEL, workers: workers(busy) }];
        for (let delivery = 0; delivery < deliveries; delivery += 1) {
          controller.publish(readings, monotonicMs((now += 1_000)));
        }
      }
      return controller.explain(monotonicMs(now))[0]?.learned?.offer;
    };
    // Eighteen samples at the limit bring a dip, one sample delivered as often does not.
    expect(offerAfter(21, 1)).to.equal("below");
    expect(offerAfter(1, 21)).to.equal("beyond");
    expect(offerAfter(10, 3)).to.equal("beyond");
  });

  it("stay without telemetry of all engines: traffic flows, and the reason says so", () => {
    const busy = { running: 10, waiting: 9, throughput: 100, maxRunning: 64 };
    const bench = new FeedbackBench().publish(0, busy, busy);
    expect(bench.reasons(1)).to.deep.equal(["engine_waiting"]);
    bench.publish(60_000, undefined, undefined);
    expect(bench.reasons(1)).to.deep.equal(["telemetry_fallback"]);
    expect(bench.controller.effectiveCapacity(MODEL, 40)).to.equal(40);
  });

  it("drop to what full caches hold, so that they do not fill again at once", () => {
    const bench = new FeedbackBench()
      .publish(0, { running: 100, throughput: 1_000, maxRunning: 200 })
      .publish(10_000, { running: 100, throughput: 1_000, maxRunning: 200, tokenUsage: 0.95 });
    // 100 x 0.9 / 0.95 x 0.95 = 90.
    expect(bench.knee()).to.be.closeTo(90, 1e-9);
  });

  it("drop to what engines run that keep requests waiting, the most of three samples", () => {
    const known = { maxRunning: 200 };
    const bench = new FeedbackBench()
      .publish(0, { running: 100, throughput: 1_000, ...known })
      .publish(10_000, { running: 60, waiting: 40, throughput: 600, ...known })
      .publish(20_000, { running: 64, waiting: 40, throughput: 640, ...known });
    expect(bench.knee()).to.equal(100);
    bench.publish(30_000, { running: 60, waiting: 9, throughput: 600, ...known });
    expect(bench.knee()).to.equal(64);
  });

  it("get loose from a peak that was measured too high: a dip that costs puts a true one in its place", () => {
    // Ten tokens per second for each request up to 400, and a first sample that is 6 percent too high.
    const bench = new FeedbackBench();
    const see = (index: number, running: number, throughput: number): void => {
      bench.publish(index * 10_000, { running, throughput, maxRunning: 1_000 });
    };
    see(0, 100, 1_060);
    for (let index = 1; index < 120; index += 1) {
      const running = bench.controller.effectiveCapacity(MODEL, 1_000);
      see(index, running, 10 * Math.min(400, running));
    }
    expect(bench.knee()).to.be.within(380, 420);
  });

  it("learn a small hard limit of an engine from its ceiling, before any request was refused", () => {
    const bench = new FeedbackBench().publish(0, { maxRunning: 4 });
    expect(bench.controller.effectiveCapacity(MODEL, 64)).to.equal(4);
  });

  it("never fall below one request", () => {
    const bench = new FeedbackBench({ feedback_probe_requests_per_healthy_replica: 0 });
    bench.publish(0, { running: 0.001, throughput: 1, maxRunning: 8 });
    expect(bench.controller.limits(MODEL).learnedLimit).to.be.at.least(1);
  });

  it("are whole and between 0 and the static capacity for whatever engines report", () => {
    const worker = fc.option(
      fc.record({
        running: fc.nat(600),
        waiting: fc.nat(20),
        tokenUsage: fc.double({ min: 0, max: 1, noNaN: true }),
        throughput: fc.option(fc.double({ min: 0, max: 1e5, noNaN: true }), { nil: undefined }),
        maxRunning: fc.option(fc.integer({ min: 1, max: 600 }), { nil: undefined }),
      }),
      { nil: undefined },
    );
    const publications = fc.array(fc.array(worker, { minLength: 1, maxLength: 4 }), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(publications, fc.nat(65_535), (all, staticSlots) => {
        const bench = new FeedbackBench();
        all.forEach((readings, index) => {
          bench.publish(index * 10_000, ...readings);
          const slots = bench.controller.effectiveCapacity(MODEL, staticSlots);
          expect(Number.isInteger(slots)).to.equal(true);
          expect(slots).to.be.within(0, staticSlots);
          const { learnedLimit, engineLimit } = bench.controller.limits(MODEL);
          if (learnedLimit !== undefined) expect(learnedLimit).to.be.at.least(1);
          if (engineLimit !== undefined) expect(engineLimit).to.be.at.least(1);
        });
      }),
    );
  });
});

describe("rounding up", () => {
  it("forgives the error of binary fractions and nothing else", () => {
    expect((29 / 7) * 7).to.be.greaterThan(29);
    expect(roundUp((29 / 7) * 7)).to.equal(29);
    expect(roundUp(7.001)).to.equal(8);
    expect(roundUp(0)).to.equal(0);
  });
});

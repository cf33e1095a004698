// The acceptance rows of engine feedback. Half-life 60 s, probe 2, waiting 2, usage 0.9, improvement
// 0.02, coverage 0.8 unless a row says otherwise.

import { expect } from "chai";
import {
  createFeedbackController,
  FeedbackController,
} from "../../../extproc/core/capacity/feedback-controller.js";
import { KneeEstimator } from "../../../extproc/core/capacity/feedback-knee.js";
import { fleetCapacity } from "../../../extproc/core/capacity/partition-capacity.js";
import { splitByWeight } from "../../../extproc/core/capacity/partition-split.js";
import { partitionRules } from "../../../extproc/core/identity/partition.js";
import { partitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { testConfig } from "../../support/config.js";
import { adaptiveAdmission, FeedbackBench, MODEL, workers } from "../../support/feedback.js";
import { healthyRegistry, type WorkerSketch } from "../../support/workers.js";

const HALF_LIFE = { estimator_half_life_secs: 60 };
const repeat = (reason: string, count: number): string[] => Array<string>(count).fill(reason);

describe("feedback admission", () => {
  it("F-1 a knee of 10 with a ceiling of 64 admits 12 requests and refuses the 13th for a second", () => {
    const bench = new FeedbackBench(HALF_LIFE).publish(0, {
      running: 10,
      throughput: 100,
      maxRunning: 64,
    });
    const begun = bench.begin(13);
    expect(begun.slice(0, 12).map(({ decision }) => decision.reason)).to.deep.equal(
      repeat("within_feedback_limit", 12),
    );
    expect(begun[12]?.decision).to.deep.equal({
      partition: MODEL,
      reason: "running_limit",
      outcome: "would_reject",
      reject: true,
      retryAfterS: 1,
      projected: 13,
    });
  });

  for (const [row, ceiling] of [
    ["F-2", { maxRunning: 64 }],
    ["F-3", { running: 10 }],
  ] as const) {
    it(`${row} three waiting, or usage 0.91, refuse with the reason ${row === "F-2" ? "and the partition" : "also without any published ceiling"}`, () => {
      const waiting = new FeedbackBench().publish(0, { ...ceiling, waiting: 3, tokenUsage: 0.5 });
      const full = new FeedbackBench().publish(0, { ...ceiling, waiting: 0, tokenUsage: 0.91 });
      for (const [bench, reason] of [
        [waiting, "engine_waiting"],
        [full, "token_pressure"],
      ] as const) {
        expect(bench.begin()[0]?.decision).to.include({ partition: MODEL, reason, reject: true });
        expect(bench.controller.limits(MODEL).usable).to.equal(true);
      }
    });
  }

  it("tolerates exactly as many waiting as configured, and a usage just below the limit", () => {
    const bench = new FeedbackBench().publish(0, { waiting: 2, tokenUsage: 0.899 });
    expect(bench.reasons(1)).to.deep.equal(["within_feedback_limit"]);
    // From the limit itself on the caches count as full.
    bench.publish(10_000, { waiting: 2, tokenUsage: 0.9 });
    expect(bench.reasons(1)).to.deep.equal(["token_pressure"]);
  });

  it("F-4 before anything is learned a ceiling of 2 admits two and refuses the third", () => {
    const bench = new FeedbackBench().publish(0, { maxRunning: 2 });
    expect(bench.reasons(3)).to.deep.equal([
      ...repeat("within_feedback_limit", 2),
      "running_limit",
    ]);
  });

  it("F-5 four of five observed with 256 in all: both coverages 0.8, scaled ceiling 320", () => {
    const known = { maxRunning: 64 };
    const bench = new FeedbackBench().publish(0, known, known, known, known, undefined);
    const limits = bench.controller.limits(MODEL);
    expect(limits).to.include({ coverage: 0.8, maxRunningCoverage: 0.8, usable: true });
    expect(limits.engineLimit).to.equal(320);
  });

  it("F-6 ceilings from three of five are not taken for a limit, and the request is admitted", () => {
    const known = { maxRunning: 64 };
    const bench = new FeedbackBench().publish(0, known, known, known, {}, {});
    const limits = bench.controller.limits(MODEL);
    expect(limits).to.include({ coverage: 1, maxRunningCoverage: 0.6, usable: true });
    expect(limits.engineLimit).to.equal(undefined);
    expect(bench.reasons(1)).to.deep.equal(["within_feedback_limit"]);
  });

  it("F-7 an idle fleet without ceilings is not held to its knee of 0.25: 20 requests are admitted", () => {
    const bench = new FeedbackBench().publish(0, { running: 1, throughput: 0.004 }, {}, {}, {});
    expect(bench.knee()).to.equal(0.25);
    expect(bench.reasons(20)).to.deep.equal(repeat("within_feedback_limit", 20));
  });

  it("F-8 without ceilings, but with pressure seen, a knee of 10 admits 12 and refuses the 13th", () => {
    const busy = { running: 10, throughput: 100 };
    const bench = new FeedbackBench(HALF_LIFE)
      .publish(0, { ...busy, waiting: 3 })
      .publish(1_000, busy);
    expect(bench.knee()).to.equal(10);
    expect(bench.reasons(13)).to.deep.equal([
      ...repeat("within_feedback_limit", 12),
      "running_limit",
    ]);
  });

  it("F-9 one of two observed is too few: both requests are admitted, and it says why", () => {
    const bench = new FeedbackBench().publish(0, { running: 50, waiting: 50 }, undefined);
    const begun = bench.begin(2);
    for (const { decision } of begun) {
      expect(decision).to.include({ reason: "telemetry_fallback", reject: false, retryAfterS: 0 });
      expect(decision.outcome).to.equal("telemetry_fallback");
    }
    expect(bench.controller.limits(MODEL)).to.include({ usable: false, coverage: 0.5 });
    expect(bench.controller.effectiveCapacity(MODEL, 77)).to.equal(77);
  });

  it("F-10 one hot worker of two is no pressure: mean usage 0.475, limit 128", () => {
    const bench = new FeedbackBench().publish(
      0,
      { tokenUsage: 0.95, maxRunning: 64 },
      { tokenUsage: 0, maxRunning: 64 },
    );
    expect(bench.controller.inputs(MODEL)).to.include({
      meanTokenUsage: 0.475,
      maxTokenUsage: 0.95,
    });
    const { pressure, runningLimit } = bench.controller.limits(MODEL);
    expect({ pressure, runningLimit }).to.deep.equal({ pressure: undefined, runningLimit: 128 });
  });

  it("F-11 99 of 100 tokens per second at 12 instead of 20 running, under pressure: the knee is 12", () => {
    const bench = new FeedbackBench(HALF_LIFE)
      .publish(0, { running: 20, throughput: 100, maxRunning: 64 })
      .publish(1_000, { running: 12, waiting: 3, throughput: 99, maxRunning: 64 });
    const [explained] = bench.controller.explain(monotonicMs(1_000));
    expect(explained?.learned).to.include({ knee: 12, pressureSeen: true, lastVerdict: "lowered" });
    expect(bench.controller.limits(MODEL).pressure).to.equal("engine_waiting");
  });

  it("F-12 the best throughput halves in a half-life: 100, then 50 after 60 s, then 80", () => {
    const knee = new KneeEstimator({
      halfLifeMs: 60_000,
      improvementRatio: 0.02,
      referenceRule: false,
    });
    const observe = (throughput: number, atMs: number): number => {
      knee.observe({ throughput, running: 4 }, true, monotonicMs(atMs));
      return knee.bestAt(monotonicMs(atMs));
    };
    expect(observe(100, 0)).to.equal(100);
    expect(observe(40, 60_000)).to.be.closeTo(50, 1e-9);
    expect(observe(80, 61_000)).to.equal(80);
  });

  it("F-13 63 running under a ceiling of 64: 64 of 100 slots, and none at usage 0.95", () => {
    const engine = { running: 63, maxRunning: 64 };
    const bench = new FeedbackBench().publish(0, { ...engine, tokenUsage: 0.5 });
    expect(bench.controller.effectiveCapacity(MODEL, 100)).to.equal(64);
    expect(bench.controller.effectiveCapacity(MODEL, 50)).to.equal(50);
    bench.publish(10_000, { ...engine, tokenUsage: 0.95 });
    expect(bench.controller.effectiveCapacity(MODEL, 100)).to.equal(0);
  });

  it("F-14 requests do not change the capacity's revision, a publication raises it by one", () => {
    const bench = new FeedbackBench().publish(0, { maxRunning: 64 });
    const before = bench.controller.revision;
    for (const tracker of bench.begin(3)) tracker.resolve();
    expect(bench.controller.revision).to.equal(before);
    bench.publish(10_000, { maxRunning: 64 });
    expect(bench.controller.revision).to.equal(before + 1);
  });

  it("F-15 a made-up selector is decided about in the partition of the model", () => {
    const { controller } = new FeedbackBench().publish(0, { maxRunning: 64 });
    const tracker = controller.begin(partitionName("attacker-controlled"), MODEL);
    expect(tracker.decision.partition).to.equal(MODEL);
    const names = controller.explain(monotonicMs(0)).map(({ partition }) => partition);
    expect(names).to.deep.equal([MODEL]);
  });

  it("F-16 shadow counts a refusal and lets the request pass; ended twice it is ended once", () => {
    const bench = new FeedbackBench({ mode: "shadow" }).publish(0, { maxRunning: 1 });
    const begun = bench.begin(2);
    expect(begun.map(({ decision }) => decision.outcome)).to.deep.equal([
      "would_admit",
      "would_reject",
    ]);
    expect(begun.some(({ decision }) => decision.reject)).to.equal(false);
    const [explained] = bench.controller.explain(monotonicMs(0));
    expect(explained?.decisions).to.deep.equal({
      telemetry_fallback: 0,
      token_pressure: 0,
      engine_waiting: 0,
      running_limit: 1,
      within_feedback_limit: 1,
    });
    expect(explained?.lastReason).to.equal("running_limit");
    expect(bench.controller.outstanding(MODEL)).to.equal(2);
    for (const tracker of begun) {
      tracker.resolve();
      tracker.resolve();
    }
    expect(bench.controller.outstanding(MODEL)).to.equal(0);
    // Capacity is as configured, too.
    expect(bench.controller.effectiveCapacity(MODEL, 100)).to.equal(100);
  });
});

describe("where the static capacity comes from", () => {
  const scheduler = testConfig().scheduler;
  const partitions = (
    names: readonly string[],
    partition: { readonly max?: number; readonly perReplica?: number },
    max: number,
    sketches: readonly Omit<WorkerSketch, "url">[],
  ): Record<string, number> => {
    const one = {
      max_concurrent_requests: partition.max,
      max_concurrent_requests_per_healthy_replica: partition.perReplica,
      queue_size: 1,
    };
    const config = {
      ...scheduler,
      max_concurrent_requests: max,
      admission_partitions: new Map(names.map((name) => [partitionName(name), one])),
      default_admission_partition: partitionName("default"),
    };
    const registry = healthyRegistry(
      sketches.map((sketch, index) => ({
        ...sketch,
        url: `http://127.0.0.1:${String(index + 1)}`,
      })),
    );
    const capacity = fleetCapacity(config, partitionRules(config), registry.all());
    return Object.fromEntries(capacity.partitions);
  };

  it("A-1 weights 1, 2, 7 split 10 into 1, 2, 7 and 5 into 1, 1, 3", () => {
    const weights = new Map(
      (
        [
          ["a", 1],
          ["b", 2],
          ["c", 7],
        ] as const
      ).map(([name, weight]) => [partitionName(name), weight]),
    );
    expect([...splitByWeight(weights, 10).values()]).to.deep.equal([1, 2, 7]);
    expect([...splitByWeight(weights, 5).values()]).to.deep.equal([1, 1, 3]);
  });

  it("A-2 100 per replica, 3 and 1 private and 1 other, of 500: 300, 100, 100, unused default 0", () => {
    const kimi = { models: ["kimi"], ceiling: 100 };
    const other = { models: ["other"], ceiling: 100 };
    const fleet = [kimi, kimi, kimi, { ...kimi, partition: "private" }, other];
    expect(
      partitions(["kimi", "private", "other", "default"], { perReplica: 100 }, 500, fleet),
    ).to.deep.equal({ kimi: 300, private: 100, other: 100, default: 0 });
  });

  it("A-3 64 and 64 for one model, 256 for another, of 384: 128 and 256", () => {
    const one = { models: ["one"], ceiling: 64 };
    const other = { models: ["other"], ceiling: 256 };
    expect(partitions(["one", "other", "default"], {}, 384, [one, one, other])).to.deep.equal({
      one: 128,
      other: 256,
      default: 0,
    });
  });

  it("A-4 engines that report 512 are held to the configured 256", () => {
    const engine = { models: ["model"], ceiling: 512 };
    const alone = partitions(["default"], { max: 256 }, 256, [engine]);
    expect(alone).to.deep.equal({ default: 256 });
    const { controller } = new FeedbackBench().publish(0, { maxRunning: 512 });
    expect(controller.effectiveCapacity(MODEL, 256)).to.equal(256);
  });
});

describe("the feedback controller", () => {
  it("does not exist in mode off", () => {
    const config = adaptiveAdmission({ mode: "off" });
    expect(createFeedbackController({ config, adaptiveCapacity: false })).to.equal(undefined);
    const shadow = { config: adaptiveAdmission({ mode: "shadow" }), adaptiveCapacity: false };
    expect(createFeedbackController(shadow)).to.be.instanceOf(FeedbackController);
  });

  it("only counts while the slots follow the limit: whoever holds a slot has been admitted", () => {
    const bench = new FeedbackBench({}, true).publish(0, { maxRunning: 1 });
    const [, second] = bench.begin(2);
    expect(second?.decision).to.include({ reason: "running_limit", reject: false });
  });

  it("projects the larger of its own count and the engines' with the new request, never the sum", () => {
    const bench = new FeedbackBench().publish(0, { running: 5, waiting: 1 });
    expect(bench.begin()[0]?.decision.projected).to.equal(7);
    expect(bench.begin(9).at(-1)?.decision.projected).to.equal(10);
  });

  it("admits without any telemetry, keeps nothing of a partition nobody knows once it is idle", () => {
    const { controller } = new FeedbackBench();
    const tracker = controller.begin(undefined, MODEL);
    expect(tracker.decision.reason).to.equal("telemetry_fallback");
    expect(controller.effectiveCapacity(MODEL, 9)).to.equal(9);
    tracker.resolve();
    expect(controller.explain(monotonicMs(0))).to.deep.equal([]);
  });

  it("keeps partitions apart and lets a request choose one that has workers", () => {
    const { controller } = new FeedbackBench();
    const full = partitionName("full");
    controller.publish(
      [
        { partition: full, workers: workers({ waiting: 9 }) },
        { partition: MODEL, workers: workers({}) },
      ],
      monotonicMs(0),
    );
    expect(controller.begin(full, MODEL).decision).to.include({
      partition: full,
      reason: "engine_waiting",
    });
    expect(controller.begin(undefined, MODEL).decision.reason).to.equal("within_feedback_limit");
  });

  it("forgets what it learned of a partition whose workers are gone", () => {
    const busy = { running: 10, throughput: 100, maxRunning: 64 };
    const bench = new FeedbackBench().publish(0, busy);
    expect(bench.knee()).to.equal(10);
    bench.controller.publish([], monotonicMs(10_000));
    expect(bench.controller.explain(monotonicMs(10_000))).to.deep.equal([]);
    bench.publish(20_000, { maxRunning: 64 });
    expect(bench.knee()).to.equal(undefined);
  });

  it("does not count a request twice when its partition is forgotten while it runs", () => {
    const bench = new FeedbackBench().publish(0, {});
    const [first] = bench.begin();
    bench.controller.publish([], monotonicMs(10_000));
    bench.publish(20_000, {});
    expect(bench.controller.outstanding(MODEL)).to.equal(1);
    first?.resolve();
    expect(bench.controller.outstanding(MODEL)).to.equal(0);
  });

  it("does not hold the limit of the partition to blame for requests that wait at few of its engines", () => {
    const offers = (waiting: readonly number[]): readonly (string | undefined)[] => {
      const bench = new FeedbackBench();
      const at = (ms: number, waits: readonly number[]): string | undefined => {
        bench.publish(
          ms,
          ...waits.map((each) => ({ running: 10, waiting: each, throughput: 100, maxRunning: 64 })),
        );
        return bench.controller.explain(monotonicMs(ms))[0]?.learned?.offer;
      };
      return [at(0, [0, 0, 0, 0]), at(10_000, waiting), at(20_000, [0, 0, 0, 0])];
    };
    // Nine wait, more than two for each of four engines: at all of them, at half, at one.
    expect(offers([3, 3, 3, 0])).to.deep.equal(["beyond", "level", "level"]);
    expect(offers([5, 4, 0, 0])).to.deep.equal(["beyond", "level", "level"]);
    expect(offers([9, 0, 0, 0])).to.deep.equal(["beyond", "beyond", "beyond"]);
  });

  it("rounds a limit down to 65535 slots", () => {
    const many = Array.from({ length: 2 }, () => ({ maxRunning: 65_535 }));
    const bench = new FeedbackBench().publish(0, ...many);
    expect(bench.controller.effectiveCapacity(MODEL, 1_000_000)).to.equal(65_535);
  });

  it("explains every input, the knee, the limits and the last reason", () => {
    const bench = new FeedbackBench().publish(
      0,
      { running: 10, waiting: 1, waitingUncachedTokens: 300, throughput: 100, maxRunning: 64 },
      { running: 20, tokenUsage: 0.7, throughput: 300, maxRunning: 36 },
    );
    bench.begin();
    const [explained] = bench.controller.explain(monotonicMs(0));
    expect(explained).to.deep.equal({
      partition: MODEL,
      outstanding: 1,
      lastReason: "within_feedback_limit",
      decisions: {
        telemetry_fallback: 0,
        token_pressure: 0,
        engine_waiting: 0,
        running_limit: 0,
        within_feedback_limit: 1,
      },
      learned: {
        inputs: {
          healthy: 2,
          observed: 2,
          maxReporting: 2,
          maxRunning: 100,
          throughput: 400,
          running: 30,
          waiting: 1,
          waitingWorkers: 1,
          waitingUncachedTokens: 300,
          meanTokenUsage: 0.6,
          maxTokenUsage: 0.7,
          sample: { throughput: 200, running: 15 },
        },
        limits: {
          coverage: 1,
          maxRunningCoverage: 1,
          usable: true,
          engineLimit: 100,
          learnedLimit: 34,
          runningLimit: 34,
          pressure: undefined,
        },
        heldReadings: 0,
        knee: 15,
        kneeThroughput: 200,
        learnedCapacity: 400,
        pressureSeen: false,
        offer: "beyond",
        offset: 4,
        lastVerdict: "first",
      },
    });
  });
});

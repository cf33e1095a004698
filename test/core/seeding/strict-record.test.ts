// Is it known, beyond doubt, how full a worker is? Every field that can be in doubt, one at a time, on a
// sample that is otherwise perfect.

import { expect } from "chai";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import {
  readStrict,
  RECORD_FAULTS,
  type StrictReading,
} from "../../../extproc/core/seeding/strict-record.js";
import type {
  RankReading,
  WorkerReading,
} from "../../../extproc/core/workers/telemetry-reading.js";
import type { WorkerSketch } from "../../support/workers.js";
import { url } from "../selection/support.js";
import { r, SeedBench } from "./support.js";

const GOOD = r(3, 0, 0.1, 0.2, 24);

/** What is known of one worker after one round of polls. */
function read(
  ranks: RankReading | readonly RankReading[],
  over: Partial<WorkerReading> = {},
  worker: Partial<WorkerSketch> = {},
): StrictReading {
  const bench = new SeedBench({ workers: [{ url: url(0), ...worker }, { url: url(1) }] });
  bench.room([ranks], over);
  return bench.seeder.headroom.record(bench.worker(0), bench.now);
}

function fault(...args: Parameters<typeof read>): string {
  const reading = read(...args);
  return reading.ok ? "none" : reading.fault;
}

function without(field: keyof RankReading): RankReading {
  return Object.fromEntries(Object.entries(GOOD).filter(([name]) => name !== field));
}

describe("a strict record", () => {
  it("adds up the ranks and takes the highest of their ratios for pressure", () => {
    const reading = read([r(3, 1, 0.1, 0.2, 24), r(5, 2, 0.3, 0.1, 10)]);
    expect(reading.ok && { ...reading.record, worker: undefined }).to.deep.equal({
      ...{ running: 8, waiting: 3, maxRunning: 34, pressure: 0.3, telemetryRevision: 1 },
      observedAt: 1_000_000,
      worker: undefined,
    });
  });

  it("H-6 does not exist for a worker with any doubtful field", () => {
    expect(fault(GOOD)).to.equal("none");
    const bench = new SeedBench();
    expect(bench.seeder.headroom.record(bench.worker(0), bench.now)).to.deep.equal({
      ok: false,
      fault: "no_sample",
    });
    const doubts: [string, ...Parameters<typeof read>][] = [
      ["no_sample", GOOD, { declaredRanks: 2 }],
      ["no_sample", [GOOD, { ...GOOD, rank: 0 }]],
      ["no_sample", { ...GOOD, running: -1, total: undefined }],
      ["no_sample", { ...GOOD, waiting: 0.5, total: undefined }],
      ["no_sample", without("waiting")],
      ["no_sample", { ...GOOD, tokenUsage: Number.NaN }],
      ["no_sample", { ...GOOD, total: 4 }],
      ["no_ceiling", { ...GOOD, maxRunning: 0 }],
      ["no_ceiling", without("maxRunning")],
      ["no_ceiling", [GOOD, { ...GOOD, maxRunning: 0 }]],
      ["impossible_field", { ...GOOD, maxRunning: -1 }],
      ["impossible_field", { ...GOOD, utilization: Number.NaN }],
      ["impossible_field", { ...GOOD, utilization: -0.1 }],
      ["impossible_field", { ...GOOD, usedTokens: -1 }],
      ["impossible_field", { ...GOOD, maxTokens: 1.5 }],
      ["impossible_field", { ...GOOD, waitingUncachedTokens: 2 ** 31 }],
      ["impossible_field", { ...GOOD, total: "3" }],
      ["ratio_out_of_range", { ...GOOD, tokenUsage: 1.01 }],
      ["ratio_out_of_range", { ...GOOD, utilization: 1.01 }],
      ["ratio_out_of_range", [GOOD, { ...GOOD, utilization: 1.01 }]],
      ["no_sample_time", GOOD, { token: { kind: "none" } }],
    ];
    for (const [expected, ...reported] of doubts) {
      expect(fault(...reported), JSON.stringify(reported)).to.equal(expected);
      if (expected !== "no_sample") expect(RECORD_FAULTS).to.include(expected);
    }
  });

  it("takes both ends of a ratio, and does not care for fields that say nothing about room", () => {
    for (const ratio of [0, 1]) {
      expect(fault({ ...GOOD, tokenUsage: ratio, utilization: ratio })).to.equal("none");
    }
    expect(fault({ ...GOOD, cacheHitRate: -1, tokensPerSecond: Number.NaN })).to.equal("none");
  });

  it("takes the registered ceiling of a worker with one rank whose engine tells none", () => {
    const reading = read({ ...GOOD, maxRunning: 0 }, {}, { ceiling: 7 });
    expect(reading.ok && reading.record.maxRunning).to.equal(7);
    const own = read(GOOD, {}, { ceiling: 7 });
    expect(own.ok && own.record.maxRunning).to.equal(24);
    const silent = { ...GOOD, maxRunning: 0 };
    expect(fault([silent, silent], {}, { ceiling: 7 })).to.equal("no_ceiling");
    expect(fault({ ...GOOD, maxRunning: -1 }, {}, { ceiling: 7 })).to.equal("impossible_field");
  });

  it("asks for the fields that every build of the native endpoint has", () => {
    expect(fault(without("waitingUncachedTokens"))).to.equal("none");
    for (const field of ["usedTokens", "maxTokens", "utilization"] as const) {
      expect(fault(without(field)), field).to.equal("missing_field");
    }
  });

  it("asks of the other engines only running, waiting, usage and a ceiling, registered or reported", () => {
    const bare = { running: 3, waiting: 0, tokenUsage: 0.1 };
    for (const source of [
      "sglang_get_load",
      "sglang_metrics",
      "vllm_metrics",
      "trtllm_metrics",
      "triton_metrics",
    ] as const) {
      expect(fault(bare, { source }, { ceiling: 8 }), source).to.equal("none");
      expect(fault(bare, { source }), source).to.equal("no_ceiling");
      expect(fault({ ...bare, maxRunning: 8 }, { source }), source).to.equal("none");
      // What is reported must be possible, whoever reports it.
      const impossible = { ...bare, maxTokens: -1 };
      expect(fault(impossible, { source }, { ceiling: 8 }), source).to.equal("impossible_field");
    }
  });

  it("does not believe ranks that do not report the same", () => {
    const other = r(1, 0, 0.1, 0.1, 10);
    const source = "sglang_get_load";
    expect(fault([without("utilization"), other], { source })).to.equal("missing_field");
    expect(fault([without("waitingUncachedTokens"), other], { source })).to.equal("missing_field");
    expect(fault([without("utilization"), without("utilization")], { source })).to.equal("none");
  });

  it("is 30 s old at most, since the sample was first seen", () => {
    const bench = new SeedBench();
    bench.room([GOOD]);
    const worker = bench.worker(0);
    const entry = bench.telemetry.get(worker.identity);
    expect(readStrict(entry, worker, monotonicMs(bench.now + 30_000)).ok).to.equal(true);
    expect(readStrict(entry, worker, monotonicMs(bench.now + 30_001))).to.deep.equal({
      ok: false,
      fault: "stale",
    });
  });
});

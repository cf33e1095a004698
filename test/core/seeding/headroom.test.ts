// How many seeds could each worker take? The acceptance rows of the strict view, worked out by hand, and
// what the view never does: add capacity.

import { expect } from "chai";
import { FeedbackController } from "../../../extproc/core/capacity/feedback-controller.js";
import type { WorkerReading } from "../../../extproc/core/capacity/feedback-inputs.js";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { SeedingRules } from "../../../extproc/core/seeding/rules.js";
import { adaptiveAdmission, workers as readings } from "../../support/feedback.js";
import { DEMO, POOL, url } from "../selection/support.js";
import { free, r, SeedBench } from "./support.js";

/** Hot worker 0, idle worker 1, and worker 2, idle but for 5 requests that Weir has under way. */
const HOT = r(38, 64, 0.89, 0.4, 100);
const IDLE = r(0, 0, 0.1, 0.2, 43);

function threeWorkers(rules: Partial<SeedingRules> = {}): SeedBench {
  const bench = new SeedBench({ rules });
  bench.load(2, 5);
  bench.room([HOT, IDLE, IDLE]);
  return bench;
}

/** The slots that the same samples leave to the queue, of 512. */
function capacityView(...reported: (Partial<WorkerReading> | undefined)[]): () => number {
  const feedback = new FeedbackController({
    config: adaptiveAdmission({ min_load_coverage: 0.5 }),
    adaptiveCapacity: true,
  });
  feedback.publish([{ partition: POOL, workers: readings(...reported) }], monotonicMs(0));
  return () => feedback.effectiveCapacity(POOL, 512);
}

const HOT_READING = { running: 38, waiting: 64, tokenUsage: 0.89, maxRunning: 100 };
const IDLE_READING = { tokenUsage: 0.1, maxRunning: 43 };

describe("headroom", () => {
  it("H-1 counts reported and own requests, in the order of urls, while the queue has no capacity", () => {
    expect(capacityView(HOT_READING, IDLE_READING, IDLE_READING)()).to.equal(0);
    expect(threeWorkers().slots()).to.equal("w0 0, w1 43, w2 38");
  });

  it("lists by url, whatever the order of registration", () => {
    const bench = new SeedBench({ workers: [{ url: url(2) }, { url: url(0) }, { url: url(1) }] });
    bench.room([free(1), free(2), free(3)]);
    expect(bench.targets().map(({ worker }) => worker.identity.url)).to.deep.equal(
      [0, 1, 2].map(url),
    );
  });

  it("H-2 lets the hottest rank decide, where the mean would not", () => {
    const bench = new SeedBench({ workers: 1 });
    bench.room([[r(0, 0, 0.1, 0.2, 24), r(0, 0, 0.2, 0.95, 24)]]);
    expect(bench.target(0).record.pressure).to.equal(0.95);
    expect(bench.telemetry.get(bench.worker(0).identity)?.load.tokenUsage).to.be.closeTo(
      0.15,
      1e-9,
    );
    expect(bench.slots()).to.equal("w0 0");
    bench.room([[r(0, 0, 0.1, 0.2, 24), r(0, 0, 0.2, 0.8, 24)]]);
    expect(bench.slots()).to.equal("w0 48");
  });

  it("H-3 changes no capacity by a lease, neither while it is held nor after", () => {
    const view = capacityView(HOT_READING, IDLE_READING, IDLE_READING);
    const bench = threeWorkers();
    const wish = { target: bench.target(1), partition: POOL, model: DEMO };
    const grant = bench.seeder.leases.acquire(wish, bench.now);
    expect([grant.ok, view()]).to.deep.equal([true, 0]);
    expect(bench.slots()).to.equal("w0 0, w1 0, w2 0");
    if (grant.ok) grant.lease.release();
    expect([bench.slots(), view()]).to.deep.equal(["w0 0, w1 43, w2 38", 0]);
  });

  it("H-4 leaves out a worker that nothing is known of, and reopens no capacity by it", () => {
    expect(capacityView(HOT_READING, undefined)()).to.equal(0);
    const bench = new SeedBench({ workers: 2 });
    bench.room([HOT, undefined]);
    expect(bench.slots()).to.equal("w0 0");
    expect(
      bench.seeder.headroom
        .survey(POOL, DEMO, bench.now)
        .map((each) => (each.known ? each.target.block : each.gap)),
    ).to.deep.equal(["not_clean", "no_sample"]);
  });

  it("H-5 is empty where seeding is off, beside a hot and an idle worker", () => {
    expect(capacityView(HOT_READING, IDLE_READING)()).to.equal(0);
    expect(threeWorkers({ partitions: new Set(), seedCap: 0 }).targets()).to.deep.equal([]);
  });

  it("H-7 forgets a sample of 31 s, also when the engine gives the same one again", () => {
    const bench = new SeedBench({ workers: 1 });
    const token = { kind: "timestamp" as const, value: "noon" };
    bench.room([IDLE], { token });
    bench.passSeconds(30);
    expect(bench.slots()).to.equal("w0 43");
    bench.passSeconds(1);
    expect(bench.slots()).to.equal("");
    bench.room([IDLE], { token });
    expect(bench.slots()).to.equal("");
    bench.room([IDLE], { token: { kind: "timestamp", value: "noon and 31 s" } });
    expect(bench.slots()).to.equal("w0 43");
  });

  it("H-8 is empty by default, in other partitions, and in every mode but `enforce`", () => {
    const elsewhere = partitionName("elsewhere");
    const off: Partial<SeedingRules>[] = [
      { partitions: new Set() },
      { seedCap: 0 },
      { partitions: new Set([elsewhere]) },
      { partitions: new Set([partitionName("POOL"), partitionName(" pool")]) },
      { mode: "shadow" },
      { mode: "off" },
    ];
    for (const rules of off) expect(threeWorkers(rules).targets(), rules.mode).to.deep.equal([]);
    expect(threeWorkers().targets()).to.have.length(3);
  });

  it("H-9 is empty with a cap of two", () => {
    expect(threeWorkers({ seedCap: 2 }).targets()).to.deep.equal([]);
  });

  it("H-10 is empty for a name that no worker serves, such as an alias", () => {
    const bench = threeWorkers();
    const alias = modelId("demo-latest");
    expect(bench.seeder.headroom.snapshot(POOL, alias, bench.now)).to.deep.equal([]);
  });

  it("speaks of the workers of the partition only", () => {
    const bench = new SeedBench({
      workers: [{ url: url(0) }, { url: url(1), partition: "elsewhere" }],
    });
    bench.room([IDLE, IDLE]);
    expect(bench.slots()).to.equal("w0 43");
  });

  it("leaves out unusable workers: unhealthy ones, and those whose breaker is open", () => {
    const bench = new SeedBench();
    bench.room([IDLE, IDLE, IDLE]);
    bench.registry.recordHealth(url(0), false);
    const { breaker } = bench.worker(1).runtime;
    for (let failures = 0; failures < 5; failures += 1) {
      breaker.record(breaker.begin(bench.now), "failure", bench.now);
    }
    expect(bench.slots()).to.equal("w2 43");
    bench.registry.recordHealth(url(0), true);
    // The sample was taken while the worker was thought healthy; a new one is needed.
    expect(bench.slots()).to.equal("w2 43");
  });

  it("knows a replaced worker again by its own sample only", () => {
    const bench = new SeedBench({ workers: 1 });
    bench.room([IDLE]);
    bench.add({ url: url(0) });
    expect(bench.slots()).to.equal("");
    bench.room([IDLE]);
    expect(bench.slots()).to.equal("w0 43");
  });

  it("counts what is more: running and waiting by the engine's word, or Weir's own requests", () => {
    const bench = new SeedBench({ workers: 1 });
    bench.room([r(10, 0, 0.1, 0.1, 20)]);
    expect(bench.target(0).occupied).to.equal(10);
    bench.load(0, 19);
    expect([bench.target(0).occupied, bench.slots()]).to.deep.equal([19, "w0 1"]);
    bench.load(0, 1);
    expect([bench.target(0).block, bench.slots()]).to.deep.equal(["full", "w0 0"]);
    bench.load(0, 5);
    expect(bench.slots()).to.equal("w0 0");
  });

  it("gives no slot to a worker with one request waiting, or pressure at the limit", () => {
    const bench = new SeedBench({ workers: 1 });
    const slots = (waiting: number, usage: number): string => {
      bench.room([r(1, waiting, usage, 0, 20)]);
      return bench.slots();
    };
    expect([slots(0, 0.899), slots(0, 0.9), slots(1, 0.1)]).to.deep.equal([
      "w0 19",
      "w0 0",
      "w0 0",
    ]);
    expect(bench.target(0).block).to.equal("not_clean");
  });

  it("says 65,535 slots at most", () => {
    const bench = new SeedBench({ workers: 1 });
    bench.room([free(65_535)]);
    expect(bench.slots()).to.equal("w0 65535");
    bench.room([free(65_536)]);
    expect(bench.slots()).to.equal("w0 65535");
  });

  it("L-1 has no slot for a request that is chosen, under way, or both, and one when it has ended", () => {
    const bench = new SeedBench({ workers: 1 });
    bench.room([free(1)]);
    const before = bench.target(0);
    expect(bench.slots()).to.equal("w0 1");
    const claim = bench.selector.bookings.claim(bench.worker(0), POOL, DEMO);
    expect([bench.slots(), bench.target(0).block]).to.deep.equal(["w0 0", "worker_claimed"]);
    const wish = { target: before, partition: POOL, model: DEMO };
    expect(bench.seeder.leases.acquire(wish, bench.now)).to.deep.equal({
      ok: false,
      refusal: "worker_claimed",
    });
    const load = bench.worker(0).runtime.holdLoad();
    expect(bench.slots()).to.equal("w0 0");
    claim?.();
    expect([bench.slots(), bench.target(0).block]).to.deep.equal(["w0 0", "full"]);
    load();
    expect(bench.slots()).to.equal("w0 1");
  });
});

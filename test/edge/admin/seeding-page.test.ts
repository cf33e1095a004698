import { expect } from "chai";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { seedingPage } from "../../../extproc/edge/admin/seeding-page.js";
import { tokens, url } from "../../core/selection/support.js";
import { free, FULL, SeedBench, type SeedBenchOptions } from "../../core/seeding/support.js";

const ON = { seed_cap: 1, proof_source: "scheduler" } as const;

describe("the seeding page", () => {
  it("shows the lease, the guarded prefix, everybody's room and what was counted", () => {
    const bench = new SeedBench().incident();
    const { end } = bench.sent();
    bench.try();
    bench.now = monotonicMs(bench.now + 1_500.4);
    const page = seedingPage(ON, bench.seeder.explain(bench.now));
    expect(page).to.deep.equal({
      partitions: ["pool"],
      seed_cap: 1,
      proof_source: "scheduler",
      leases: [
        {
          ...{ partition: "pool", model: "demo", url: url(1), revision: 1 },
          ...{ telemetry_revision: 1, age_ms: 1_500 },
        },
      ],
      // PROMPT has two blocks of four tokens.
      protections: [
        { partition: "pool", phase: "active", url: url(1), revision: 1, blocks: 2, age_ms: 1_500 },
      ],
      headroom: [
        {
          ...{ partition: "pool", model: "demo", url: url(0), slots: 0 },
          ...{ reason: "seed_under_way", live_load: 0 },
          reported: { running: 38, waiting: 64, max_running: 38, pressure: 0.89, age_ms: 1_500 },
        },
        {
          ...{ partition: "pool", model: "demo", url: url(1), slots: 0 },
          ...{ reason: "seed_under_way", live_load: 1 },
          reported: { running: 0, waiting: 0, max_running: 38, pressure: 0.1, age_ms: 1_500 },
        },
        {
          ...{ partition: "pool", model: "demo", url: url(2), slots: 0 },
          ...{ reason: "seed_under_way", live_load: 0 },
          reported: { running: 0, waiting: 0, max_running: 38, pressure: 0.1, age_ms: 1_500 },
        },
      ],
      counts: [
        {
          ...{ partition: "pool", event: "lease_acquired" },
          ...{ kind: "cache_aware_distribution_seed", count: 1 },
        },
        { partition: "pool", event: "lease_verified", count: 2 },
        { partition: "pool", event: "refused", reason: "plan_prefix_protected", count: 1 },
      ],
    });
    end(false);
    const after = seedingPage(ON, bench.seeder.explain(bench.now)) as {
      leases: unknown[];
      protections: unknown[];
      counts: unknown[];
    };
    expect(after.leases).to.deep.equal([]);
    expect(after.protections).to.deep.equal([
      {
        ...{ partition: "pool", phase: "failure_quarantine" },
        ...{ url: url(1), revision: 1, blocks: 2, age_ms: 0 },
      },
    ]);
    expect(after.counts).to.deep.include({
      ...{ partition: "pool", event: "ended", kind: "cache_aware_distribution_seed" },
      ...{ outcome: "failed", count: 1 },
    });
  });

  it("says of each worker why it has no room, or that nothing is known of it", () => {
    const bench = new SeedBench();
    const prompt = tokens(101, 108);
    bench.stored(0, prompt);
    bench.room([FULL, free(38), undefined]);
    const rows = (): unknown[] =>
      (
        seedingPage(ON, bench.seeder.explain(bench.now)) as {
          headroom: { url: string; slots: number; reason: string | null; reported: unknown }[];
        }
      ).headroom.map(({ slots, reason, reported }) => [slots, reason, reported === null]);
    expect(rows()).to.deep.equal([
      [0, "not_clean", false],
      [38, null, false],
      [0, "no_sample", true],
    ]);
    const held = bench.seed({ prompt });
    bench.room([FULL, free(38), undefined]);
    expect(held.verify(bench.now)).to.equal("record_changed");
    held.release(bench.now);
    const { counts } = seedingPage(ON, bench.seeder.explain(bench.now)) as { counts: unknown[] };
    expect(counts).to.deep.include({
      ...{ partition: "pool", event: "lease_voided", reason: "record_changed", count: 1 },
    });
  });

  it("has empty lists where seeding is off", () => {
    const off: SeedBenchOptions = { rules: { seedCap: 0 } };
    const { seeder, now } = new SeedBench(off).incident();
    expect(
      seedingPage({ seed_cap: 0, proof_source: "credits" }, seeder.explain(now)),
    ).to.deep.equal({
      ...{ partitions: [], seed_cap: 0, proof_source: "credits" },
      ...{ leases: [], protections: [], headroom: [], counts: [] },
    });
  });
});

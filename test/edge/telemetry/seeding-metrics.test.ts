import { readFileSync } from "node:fs";
import { expect } from "chai";
import { Registry } from "prom-client";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { SeedRecord } from "../../../extproc/core/request/seed-record.js";
import type { SettlementRecord } from "../../../extproc/core/request/settlement-record.js";
import { SEED_OUTCOMES } from "../../../extproc/core/seeding/counts.js";
import { INELIGIBLE_REASONS } from "../../../extproc/core/seeding/eligibility.js";
import { HEADROOM_GAPS, SLOT_BLOCKS } from "../../../extproc/core/seeding/headroom.js";
import { SEED_REFUSALS } from "../../../extproc/core/seeding/refusals.js";
import { REPLICATION_RESULTS } from "../../../extproc/core/selection/decision.js";
import { PROTECTION_PHASES } from "../../../extproc/core/prefixes/protections.js";
import { SeedingMetrics } from "../../../extproc/edge/telemetry/seeding-metrics.js";
import { POOL, tokens } from "../../core/selection/support.js";
import { free, FULL, SeedBench, type SeedBenchOptions } from "../../core/seeding/support.js";

type SeedFault = NonNullable<Extract<SeedRecord, { kind: "seeded" }>["uncommitted"]>;

/** Every fault of an answer; the compiler says when one is missing. */
const FAULTS: Readonly<Record<SeedFault, true>> = {
  ...{ no_answer: true, no_attributes: true, not_worker_answer: true, other_cluster: true },
  ...{ several_attempts: true, bad_status: true, incomplete: true, too_large: true },
  ...{ wrong_kind: true, unfinished: true, no_usage: true },
};

async function linesOf(registry: Registry): Promise<readonly string[]> {
  return (await registry.metrics()).split("\n").filter((line) => line.startsWith("weir_"));
}

/** A fleet that seeds, and the page of its metrics. */
function watched(options: SeedBenchOptions = {}): { bench: SeedBench; registry: Registry } {
  const bench = new SeedBench(options).incident();
  const registry = new Registry();
  const { seeder, selector } = bench;
  new SeedingMetrics(registry).observe({
    seeder,
    protections: selector.protections,
    now: () => bench.now,
  });
  return { bench, registry };
}

describe("metrics of seeding", () => {
  it("show the seed that is under way and the prefixes that are guarded", async () => {
    const { bench, registry } = watched();
    const now = (): Promise<string[]> =>
      linesOf(registry).then((lines) => lines.filter((line) => !line.includes("_total")));
    const gauges = (leases: number, active: number, success: number, failure: number): string[] => [
      `weir_seed_leases{partition="pool"} ${String(leases)}`,
      `weir_seed_protections{phase="active"} ${String(active)}`,
      `weir_seed_protections{phase="success_cooldown"} ${String(success)}`,
      `weir_seed_protections{phase="failure_quarantine"} ${String(failure)}`,
    ];
    expect(await now()).to.deep.equal(gauges(0, 0, 0, 0));
    const first = bench.sent();
    expect(await now()).to.deep.equal(gauges(1, 1, 0, 0));
    first.end(true);
    expect(await now()).to.deep.equal(gauges(0, 0, 1, 0));
    const other = tokens(101, 108);
    bench.stored(0, other);
    bench.sent({ prompt: other }).end(false);
    expect(await now()).to.deep.equal(gauges(0, 0, 1, 1));
    // The cooldown of the bench is 5 s.
    bench.now = monotonicMs(bench.now + 5_000);
    expect(await now()).to.deep.equal(gauges(0, 0, 0, 0));
  });

  it("count leases, refusals and ends since the start", async () => {
    const { bench, registry } = watched();
    const first = bench.sent();
    // The same prompt while its seed is under way, and while it cools down.
    bench.try();
    first.end(true);
    bench.try();
    // A seed that is held until its worker reports anew.
    const other = tokens(101, 108);
    bench.stored(0, other);
    const held = bench.seed({ prompt: other });
    bench.room([FULL, free(38), free(38)]);
    expect(held.verify(bench.now)).to.equal("record_changed");
    held.release(bench.now);
    // An owner that has room after all.
    bench.room([free(4), free(38), free(38)]);
    bench.sent({ prompt: other }).end(true);
    // What is read when it is scraped must not add up from scrape to scrape.
    await linesOf(registry);
    const counted = (await linesOf(registry)).filter((line) => line.includes("_total"));
    expect(counted).to.have.members([
      // Three were acquired. Each was asked when it was acquired; two were asked again and let go.
      'weir_seed_leases_total{partition="pool",event="acquired"} 3',
      'weir_seed_leases_total{partition="pool",event="verified"} 5',
      'weir_seed_leases_total{partition="pool",event="voided"} 1',
      'weir_seed_lease_voids_total{partition="pool",reason="record_changed"} 1',
      'weir_seed_refusals_total{partition="pool",reason="plan_prefix_protected"} 2',
      'weir_seeds_total{partition="pool",kind="cache_aware_distribution_seed",outcome="succeeded"} 1',
      'weir_seeds_total{partition="pool",kind="cache_aware_distribution_seed",outcome="undispatched"} 1',
      'weir_seeds_total{partition="pool",kind="cache_aware_owner_rebalance",outcome="succeeded"} 1',
    ]);
  });

  it("have no series where seeding is off, whatever it lacks", async () => {
    for (const rules of [
      { seedCap: 0 },
      { mode: "shadow" as const },
      { partitions: new Set([]) },
    ]) {
      const { bench, registry } = watched({ rules });
      bench.now = monotonicMs(bench.now + 1);
      expect(await linesOf(registry)).to.deep.equal([]);
    }
  });

  it("count from the records of requests who may not try, and answers that prove nothing", async () => {
    const registry = new Registry();
    const metrics = new SeedingMetrics(registry);
    const settled = (seed: SeedRecord | undefined): void => {
      metrics.settled({ partition: POOL, seed } as SettlementRecord);
    };
    const story = {} as Extract<SeedRecord, { kind: "seeded" }>["story"];
    const seeded = { kind: "seeded", story, published: false } as const;
    settled(undefined);
    settled({ kind: "ineligible", reason: "streaming" });
    settled({ kind: "ineligible", reason: "streaming" });
    settled({ kind: "ineligible", reason: "no_proof" });
    // Refusals are counted where they are made.
    settled({ kind: "refused", refusal: "no_headroom" });
    settled({ ...seeded, outcome: "failed", uncommitted: "bad_status" });
    settled({ ...seeded, outcome: "succeeded", uncommitted: undefined, published: true });
    expect(await linesOf(registry)).to.deep.equal([
      'weir_seed_ineligible_total{partition="pool",reason="streaming"} 2',
      'weir_seed_ineligible_total{partition="pool",reason="no_proof"} 1',
      'weir_seed_uncommitted_total{partition="pool",reason="bad_status"} 1',
    ]);
  });
});

describe("docs/seeding.md", () => {
  const page = readFileSync("docs/seeding.md", "utf8");

  it("has a row for every reason, result and state, and for no reason that does not exist", () => {
    const rows = page
      .split("\n")
      .filter((line) => line.startsWith("| `"))
      .flatMap((line) => [...(line.split("|")[1] ?? "").matchAll(/`([a-z_]+)`/g)])
      .map(([, name = ""]) => name);
    const seedResults = REPLICATION_RESULTS.filter((result) => result.includes("seed"));
    const reasons = [
      ...[...INELIGIBLE_REASONS, ...SEED_REFUSALS, ...Object.keys(FAULTS)],
      ...[...HEADROOM_GAPS, ...SLOT_BLOCKS, ...PROTECTION_PHASES],
      ...[...seedResults, "leased_worker_block"],
    ];
    // Names of proof sources and engines, and fields of the page of state, stand in tables as well.
    const others = [
      ...["credits", "scheduler", "sglang", "vllm", "trtllm", "triton"],
      ...["partitions", "seed_cap", "proof_source", "model", "url", "revision"],
      ...["telemetry_revision", "age_ms", "phase", "blocks", "partition", "slots", "reason"],
      ...["live_load", "reported", "event", "count", "kind", "outcome"],
    ];
    for (const reason of reasons) expect(rows, reason).to.include(reason);
    for (const row of rows) expect([...reasons, ...others], row).to.include(row);
    for (const outcome of SEED_OUTCOMES) expect(page, outcome).to.contain(`\`${outcome}\``);
  });
});

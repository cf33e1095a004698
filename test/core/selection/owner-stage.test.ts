// Selection with a budget of owners: holding, spilling, joining, and what seeds forbid. Pressures are
// what the engines report as KV usage.

import { expect } from "chai";
import { invariant } from "../../../extproc/core/model/invariant.js";
import { partitionName } from "../../../extproc/core/model/ids.js";
import type { SelectionConfig } from "../../../extproc/core/model/selection-config.js";
import type { SeedClaim } from "../../../extproc/core/prefixes/protections.js";
import { Loads } from "../../../extproc/core/selection/loads.js";
import { OwnerStage } from "../../../extproc/core/selection/owner-stage.js";
import { OwnershipLookup } from "../../../extproc/core/selection/ownership.js";
import { PendingOwners } from "../../../extproc/core/selection/pending-owners.js";
import { planPressure } from "../../../extproc/core/selection/pressure.js";
import { SeedGuard } from "../../../extproc/core/selection/seed-guard.js";
import { Spills, type SpillMemory } from "../../../extproc/core/selection/spills.js";
import {
  Bench,
  DEMO,
  POOL,
  rank,
  scripted,
  text,
  tokens,
  url,
  type BenchOptions,
} from "./support.js";

const PROMPT = text("aaaabbbbccccdddd");

function budget(owners: number, over: Partial<SelectionConfig> = {}): Partial<SelectionConfig> {
  return {
    max_cached_owners_per_prefix: owners,
    cache_owner_spill_cooldown_secs: 60,
    engine_load: true,
    ...over,
  };
}

describe("the owner stage", () => {
  it("C-4 keeps to the one owner allowed, however loaded, and makes no second one", () => {
    const bench = new Bench({
      selection: budget(1, { engine_load: false, balance_abs_threshold: 5 }),
    });
    bench.own(PROMPT, 0);
    bench.load(0, 20);
    const selection = bench.chosen({ prompt: PROMPT });
    expect([selection.at, selection.decision.result]).to.deep.equal([0, "cached_owner_hold"]);
    bench.succeed(selection);
    expect(bench.owners(PROMPT)).to.deep.equal([0]);
  });

  it("opens one more owner when the others bear far too much and no engine says how much", () => {
    const bench = new Bench({
      workers: 3,
      selection: budget(2, { engine_load: false, balance_abs_threshold: 5 }),
    });
    bench.own(PROMPT, 0);
    const decided = Array.from({ length: 14 }, () => {
      const { at, decision } = bench.chosen({ prompt: PROMPT });
      return `w${String(at)} ${decision.result}`;
    });
    // Six requests are 6 apart from nothing. The two owners then share what comes, whatever it is.
    expect(decided.slice(0, 6)).to.deep.equal(new Array(6).fill("w0 cached_owner_hold"));
    expect(decided[6]).to.match(/^w[12] owner_pressure_spill$/);
    const second = decided[6]?.slice(0, 2) ?? "";
    expect(decided.slice(7, 12)).to.deep.equal(new Array(5).fill(`${second} spill_cooldown_hold`));
    expect(
      decided
        .slice(12)
        .map((one) => one.slice(0, 2))
        .sort(),
    ).to.deep.equal(["w0", second].sort());
  });

  it("C-5 chooses the least loaded of three recorded owners and prunes none, though one is allowed", () => {
    const bench = new Bench({ workers: 4, selection: budget(1, { engine_load: false }) });
    bench.own(PROMPT, 0, 1, 2);
    bench.load(0, 20);
    bench.load(1, 10);
    const selection = bench.chosen({ prompt: PROMPT });
    expect(selection.at).to.equal(2);
    expect(selection.decision.owners).to.equal(3);
    bench.succeed(selection);
    expect(bench.owners(PROMPT)).to.deep.equal([0, 1, 2]);
  });

  it("C-6 spills from a hot owner, and the next request joins the same worker: two owners", () => {
    const bench = new Bench({ workers: 4, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.reportRanks([[rank(0.95, { waiting: 4 })], [rank(0.2)], [rank(0.2)], [rank(0.2)]]);
    const first = bench.chosen({ prompt: PROMPT });
    expect(first.decision.result).to.equal("owner_pressure_spill");
    expect(first.at).to.not.equal(0);
    bench.load(first.at, 9);
    const second = bench.chosen({ prompt: PROMPT });
    expect(second.decision.result).to.equal("spill_cooldown_hold");
    expect(second.at).to.equal(first.at);
    bench.succeed(first);
    bench.succeed(second);
    expect(bench.owners(PROMPT)).to.deep.equal([0, first.at]);
    const third = bench.chosen({ prompt: PROMPT });
    expect([third.at, third.decision.result]).to.deep.equal([first.at, "cached_owner_hold"]);
    expect(third.decision.engineLoad).to.equal("cached_owner_scoped");
  });

  it("joins a recent spill also after its request has ended badly, until the cooldown is over", () => {
    const bench = new Bench({ workers: 4, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.95, 0.2, 0.2, 0.2);
    const first = bench.chosen({ prompt: PROMPT });
    first.booking();
    expect(bench.where({ prompt: PROMPT })).to.equal(`w${String(first.at)} spill_cooldown_hold`);
    bench.passSeconds(60);
    bench.report(0.95, 0.2, 0.2, 0.2);
    expect(bench.where({ prompt: PROMPT })).to.match(/owner_pressure_spill$/);
  });

  it("C-7 stays on a hot owner when one owner is all that is allowed", () => {
    const bench = new Bench({ workers: 4, selection: budget(1) });
    bench.own(PROMPT, 0);
    bench.report(0.95, 0.2, 0.2, 0.2);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 owner_ceiling_hold");
  });

  it("holds on the least pressured owner at the ceiling, where the others are loaded less", () => {
    const bench = new Bench({ workers: 4, selection: budget(2) });
    bench.own(PROMPT, 0, 1);
    bench.load(1, 5);
    bench.report(0.97, 0.93, 0.2, 0.2);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 owner_ceiling_hold");
  });

  it("C-8 sends 16 simultaneous spills on one key to one of 4 workers: one entry, one new owner", () => {
    for (const cooldown of [60, 0]) {
      const selection = budget(8, { cache_owner_spill_cooldown_secs: cooldown });
      const bench = new Bench({ workers: 5, selection });
      bench.own(PROMPT, 0);
      bench.report(0.95, 0.2, 0.2, 0.2, 0.2);
      const spills = Array.from({ length: 16 }, () => bench.chosen({ prompt: PROMPT }));
      expect(new Set(spills.map(({ at }) => at)).size).to.equal(1);
      expect(bench.selector.protections.entries).to.equal(cooldown === 0 ? 0 : 1);
      for (const spill of spills) bench.succeed(spill);
      expect(bench.owners(PROMPT)).to.have.length(2);
    }
  });

  it("C-14 leaves an owner at 0.84 alone when an unrelated worker is hot and a peer is calm", () => {
    const bench = new Bench({ workers: 3, selection: budget(8) });
    bench.own(PROMPT, 1);
    bench.report(0.95, 0.84, 0.34);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 cached_owner_hold");
  });

  it("counts a pressure of 0.90 as bearable and one above it as hot", () => {
    const bench = new Bench({ workers: 2, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.9, 0.1);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 cached_owner_hold");
    bench.report(0.901, 0.1);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 owner_pressure_spill");
  });

  it("chooses among owners within 0.10 of the calmest owner, whatever else is calmer", () => {
    const bench = new Bench({ workers: 4, selection: budget(8) });
    bench.own(PROMPT, 0, 1, 2);
    bench.load(0, 2);
    bench.load(1, 1);
    bench.report(0.5, 0.6, 0.61, 0);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 cached_owner_hold");
  });

  it("holds when nobody calm is left to spill to", () => {
    const bench = new Bench({ workers: 3, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.95, 0.91, 0.92);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 no_safe_spill_hold");
  });

  it("holds on its owners without full telemetry, and without engine load", () => {
    const bench = new Bench({ workers: 2, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.99, undefined);
    const selection = bench.chosen({ prompt: PROMPT });
    expect([selection.at, selection.decision.result]).to.deep.equal([0, "cached_owner_hold"]);
    expect(selection.decision.engineLoad).to.equal("telemetry_fallback");
  });

  it("leaves excluded owners: a new owner first, joined during the cooldown", () => {
    const bench = new Bench({ workers: 4, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.2, 0.2, 0.2, 0.2);
    const excludedWorkerUrls = [url(0)];
    const first = bench.chosen({ prompt: PROMPT, excludedWorkerUrls });
    expect(first.decision.result).to.equal("excluded_owner_spill");
    bench.load(first.at, 5);
    const second = bench.chosen({ prompt: PROMPT, excludedWorkerUrls });
    expect([second.at, second.decision.result]).to.deep.equal([
      first.at,
      "excluded_owner_cooldown_hold",
    ]);
  });

  it("leaves excluded owners only for a worker that the pressure of the engines allows", () => {
    const bench = new Bench({ workers: 3, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.load(2, 5);
    bench.report(0.1, 0.5, 0.2);
    const where = bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] });
    expect(where).to.equal("w2 excluded_owner_spill");
  });

  it("takes a prompt that is shorter than its own block and has one of the engine's", () => {
    const selection = budget(2, { engine_load: false, block_size: 16 });
    const bench = new Bench({ workers: 3, ownership: "events", selection });
    bench.stored(1, tokens(1, 8), 4);
    const first = bench.chosen({ prompt: tokens(91, 98) });
    expect(first.decision).to.include({ result: "no_owner", promptBlocks: 2 });
    expect(first.trace).to.equal(undefined);
    expect(bench.where({ prompt: tokens(91, 98) })).to.match(/spill_cooldown_hold$/);
    expect(bench.where({ prompt: tokens(1, 8) })).to.equal("w1 cached_owner_hold");
  });

  it("counts an excluded owner for the ceiling", () => {
    const bench = new Bench({ workers: 3, selection: budget(2) });
    bench.own(PROMPT, 0, 1);
    bench.report(0.2, 0.95, 0.2);
    const where = bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] });
    expect(where).to.equal("w1 owner_ceiling_hold");
  });

  it("keeps a prompt that nobody owns with the worker it is under way to", () => {
    const options: BenchOptions = { workers: 4, selection: budget(2, { engine_load: false }) };
    const bench = new Bench(options);
    const first = bench.chosen({ prompt: PROMPT });
    expect(first.decision.result).to.equal("no_owner");
    const second = bench.chosen({ prompt: PROMPT });
    expect([second.at, second.decision.result]).to.deep.equal([first.at, "spill_cooldown_hold"]);
    first.booking();
    second.booking();
    // Both ended badly: nobody is expected to hold it any more.
    expect(bench.where({ prompt: PROMPT })).to.match(/no_owner$/);
    expect(bench.selector.protections.entries).to.equal(0);
  });

  it("spills a prompt that nobody owns when load is imbalanced, and joins that spill", () => {
    const bench = new Bench({
      workers: 3,
      selection: budget(2, { engine_load: false, balance_abs_threshold: 5 }),
    });
    bench.load(0, 6);
    bench.load(1, 1);
    const first = bench.chosen({ prompt: PROMPT });
    expect([first.at, first.decision.result]).to.deep.equal([2, "no_suitable_owner_spill"]);
    first.booking();
    bench.load(2, 3);
    expect(bench.where({ prompt: PROMPT })).to.equal("w2 spill_cooldown_hold");
  });
});

/** w0 owns the tokens 1..8 by its engine's events; blocks of four tokens. */
class SeededBench extends Bench {
  constructor() {
    const selection = budget(8, {
      engine_load: false,
      cache_owner_spill_cooldown_secs: 5,
      cache_threshold: 0,
    });
    super({ workers: 3, ownership: "events", selection, rng: scripted() });
    this.stored(0, tokens(1, 8));
  }

  seed(to: number, target: number): SeedClaim {
    const prompt = tokens(1, to);
    const { url: targetUrl, revision } = this.worker(target).identity;
    const claim = this.selector.protections
      .of(POOL)
      .claimSeed(this.keysOf(prompt), to / 4, { url: targetUrl, revision }, this.now);
    invariant(claim !== undefined, "the seed's claim was refused");
    return claim;
  }
}

describe("the owner stage around a seed", () => {
  it("keeps requests on the owner while a seed is under way, and refuses when it is excluded", () => {
    const bench = new SeededBench();
    bench.seed(8, 1);
    const prompt = tokens(1, 12);
    expect(bench.where({ prompt })).to.equal("w0 active_distribution_seed_hold");
    const refused = bench.select({ prompt, excludedWorkerUrls: [url(0)] });
    expect(refused.ok).to.equal(false);
    if (refused.ok) return;
    expect(refused.rejection).to.include({
      code: "adaptive_admission_saturated",
      status: 429,
      retryAfterS: 1,
    });
    expect(refused.decision?.result).to.equal("active_distribution_seed_hold");
  });

  it("refuses rather than selects the target that publishes a longer match early", () => {
    const bench = new SeededBench();
    bench.seed(8, 1);
    bench.stored(1, tokens(1, 12));
    const prompt = tokens(1, 12);
    expect(bench.where({ prompt })).to.equal(
      "adaptive_admission_saturated active_distribution_seed_hold",
    );
    expect(bench.selector.protections.entries).to.equal(1);
    // The owner gets it as soon as it holds as much.
    bench.stored(0, tokens(1, 12));
    bench.load(0, 9);
    expect(bench.where({ prompt })).to.equal("w0 active_distribution_seed_hold");
  });

  it("refuses while the owners of a seeded prefix are lost", () => {
    const bench = new SeededBench();
    bench.seed(8, 1);
    const { generation } = bench.worker(0).identity;
    bench.selector.events.cleared({ generation, rank: 0, model: DEMO });
    expect(bench.where({ prompt: tokens(1, 12) })).to.equal(
      "adaptive_admission_saturated distribution_seed_missing_owner_block",
    );
  });

  it("looks past the target of a failed seed, and refuses only when no other owner is left", () => {
    const bench = new SeededBench();
    const claim = bench.seed(8, 1);
    bench.stored(1, tokens(1, 12));
    claim.drop(true, bench.now);
    const prompt = tokens(1, 12);
    expect(bench.where({ prompt })).to.equal("w0 failed_distribution_seed_hold");
    expect(bench.where({ prompt: tokens(91, 98) })).to.match(/no_owner$/);
    expect(bench.where({ prompt, excludedWorkerUrls: [url(0)] })).to.equal(
      "adaptive_admission_saturated failed_distribution_seed_block",
    );
    const { generation } = bench.worker(0).identity;
    bench.selector.events.cleared({ generation, rank: 0, model: DEMO });
    expect(bench.where({ prompt })).to.equal(
      "adaptive_admission_saturated failed_distribution_seed_block",
    );
    bench.passSeconds(5);
    expect(bench.where({ prompt })).to.equal("w1 cached_owner_hold");
  });

  it("lets the target be chosen after success, holding everybody on the owners for the cooldown", () => {
    const bench = new SeededBench();
    const claim = bench.seed(8, 1);
    claim.markSuccess();
    claim.drop(true, bench.now);
    bench.stored(1, tokens(1, 12));
    const result = "successful_distribution_seed_cooldown_hold";
    expect(bench.where({ prompt: tokens(1, 12) })).to.equal(`w1 ${result}`);
    const excludedWorkerUrls = [url(1)];
    expect(bench.where({ prompt: tokens(1, 12), excludedWorkerUrls })).to.equal(
      `adaptive_admission_saturated ${result}`,
    );
  });

  it("lets the failed seed win over a successful one of the same worker", () => {
    const bench = new SeededBench();
    const succeeded = bench.seed(4, 1);
    succeeded.markSuccess();
    succeeded.drop(true, bench.now);
    bench.seed(8, 1).drop(true, bench.now);
    bench.stored(1, tokens(1, 8));
    expect(bench.where({ prompt: tokens(1, 8) })).to.equal("w0 failed_distribution_seed_hold");
  });

  it("sees a seed on the engine's own blocks where these have another size", () => {
    const bench = new SeededBench();
    bench.selector.events.stored(
      { generation: bench.worker(0).identity.generation, rank: 0, model: DEMO },
      {
        blocks: [{ hash: "one", tokens: [1, 2, 3, 4, 5, 6, 7, 8] }],
        parent: undefined,
        blockSize: 8,
      },
    );
    const keys = bench.hasher.tokens(DEMO, [1, 2, 3, 4, 5, 6, 7, 8], 8, 16);
    const target = { url: url(1), revision: 1 };
    bench.selector.protections.of(POOL).claimSeed(keys, 1, target, bench.now);
    expect(bench.where({ prompt: tokens(1, 12) })).to.equal("w0 active_distribution_seed_hold");
  });

  it("does not take a worker that was replaced for the target of the seed before", () => {
    const bench = new SeededBench();
    bench.seed(8, 1).drop(true, bench.now);
    bench.stored(1, tokens(1, 12));
    bench.add({ url: url(1) });
    expect(bench.where({ prompt: tokens(1, 12) })).to.equal("w1 failed_distribution_seed_hold");
  });

  it("lets no routing key decide about a prompt that is being seeded", () => {
    const bench = new SeededBench();
    bench.seed(8, 1);
    for (let key = 0; key < 20; key += 1) {
      const routingKey = `key ${String(key)}`;
      expect(bench.where({ prompt: tokens(1, 8), routingKey })).to.equal(
        "w0 active_distribution_seed_hold",
      );
      expect(bench.where({ prompt: tokens(91, 98), routingKey })).to.match(/routing_key$/);
    }
  });

  it("lets neither a routing key nor a header lead to a worker that is leased to a seed", () => {
    const bench = new SeededBench();
    const release = bench.selector.bookings.holdLease(bench.worker(1), POOL, DEMO);
    expect(release).not.to.equal(undefined);
    const prompt = tokens(1, 8);
    for (let key = 0; key < 20; key += 1) {
      expect(bench.where({ prompt, routingKey: `key ${String(key)}` })).to.equal(
        "w0 active_distribution_seed_hold",
      );
    }
    expect(bench.where({ prompt, targetWorkerUrl: url(1) })).to.equal(
      "adaptive_admission_saturated leased_worker_block",
    );
    // A prompt that nobody owns goes anywhere but there.
    expect(bench.where({ prompt: tokens(91, 98), excludedWorkerUrls: [url(0)] })).to.equal(
      "w2 no_owner",
    );
    release?.();
    expect(bench.where({ prompt, targetWorkerUrl: url(1) })).to.equal("w1 excluded_owner_spill");
  });

  it("looks at seeds only with a budget of owners", () => {
    const bench = new Bench({ selection: { cache_owner_spill_cooldown_secs: 5 } });
    const { url: targetUrl, revision } = bench.worker(1).identity;
    const keys = bench.keysOf(PROMPT);
    bench.selector.protections.of(POOL).claimSeed(keys, 4, { url: targetUrl, revision }, bench.now);
    expect(bench.where({ prompt: PROMPT })).to.match(/no_owner$/);
    expect(bench.where({ prompt: PROMPT, routingKey: "k" })).to.match(/routing_key$/);
  });
});

describe("a spill that a seed refuses between two looks", () => {
  /** An owner stage whose protections refuse every spill, and one hot or excluded owner. */
  function decide(excluded: boolean): unknown {
    const bench = new Bench({ workers: 2, selection: budget(8) });
    bench.own(PROMPT, 0);
    bench.report(0.95, 0.2);
    const { selection, hasher } = bench;
    const { committed, events, bookings } = bench.selector;
    const lookup = new OwnershipLookup({ selection, hasher, committed, events });
    const loads = new Loads(bookings, scripted());
    const spills = new Spills(loads);
    const memory: SpillMemory = {
      spill: () => ({ kind: "refused" }),
      provisionalOwner: () => undefined,
    };
    const pending = new PendingOwners();
    const isOverloaded = (): boolean => false;
    const stage = new OwnerStage({ maxOwners: 8, lookup, pending, spills, loads, isOverloaded });
    const healthy = [bench.worker(0), bench.worker(1)];
    const selectable = excluded ? [bench.worker(1)] : healthy;
    const prefix = lookup.read(lookup.hash(DEMO, "committed", PROMPT));
    const plan = planPressure(selectable, bench.telemetry, bench.now);
    expect(prefix).not.to.equal(undefined);
    if (prefix === undefined) return undefined;
    const candidates = { healthy, selectable, leases: 0, withheld: false };
    const guard = new SeedGuard([], 0);
    const { end } = stage.decide({ candidates, prefix, guard, memory, plan }, bench.now);
    return end.kind === "unowned" ? end.kind : [end.kind, end.result];
  }

  it("stays on hot owners, and is refused when the owners are excluded", () => {
    expect(decide(false)).to.deep.equal(["chosen", "seed_cooldown_owner_hold"]);
    expect(decide(true)).to.deep.equal(["blocked", "seed_cooldown_excluded_owner_block"]);
  });
});

describe("a lease of another model or partition", () => {
  it("keeps no request of this model away, and holds no prompt of it on its owners", () => {
    const bench = new Bench({
      workers: [{ url: url(0), models: ["demo", "other"] }, { url: url(1) }, { url: url(2) }],
      selection: budget(8, { engine_load: false }),
    });
    bench.own(PROMPT, 1);
    const other = [...bench.worker(0).models].find((model) => model !== DEMO);
    expect(other).not.to.equal(undefined);
    if (other === undefined) return;
    const { bookings } = bench.selector;
    expect(bookings.holdLease(bench.worker(0), partitionName("elsewhere"), other)).to.equal(
      undefined,
    );
    expect(bookings.holdLease(bench.worker(0), POOL, other)).not.to.equal(undefined);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 cached_owner_hold");
    expect(bench.where({ targetWorkerUrl: url(0) })).to.equal("w0 no_prompt");
  });
});

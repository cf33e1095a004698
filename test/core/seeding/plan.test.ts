// Which worker should a refused request go to? The planner on its own: blocks of four tokens, w0 holds
// tokens 1..8 by its engine's word, budget of 8 owners, cooldown of 5 s. The specification's w1, w2, w3
// are w0, w1, w2 here.

import { expect } from "chai";
import {
  PLAN_REFUSALS,
  Planner,
  type PlanFacts,
  type Planning,
  type SeedPlan,
} from "../../../extproc/core/seeding/plan.js";
import { findCandidates } from "../../../extproc/core/selection/candidates.js";
import { DEMO, POOL, text, tokens, url, type Ask } from "../selection/support.js";
import { free, FULL, LONGER, PROMPT, r, SeedBench, type SeedBenchOptions } from "./support.js";

class PlanBench extends SeedBench {
  plan(ask: Ask = {}, over: Partial<PlanFacts> = {}): Planning {
    const { selection, selector, registry } = this;
    const { lookup, pending, protections, bookings } = selector;
    const planner = new Planner({ selection, lookup, pending, protections });
    const query = this.query({ prompt: PROMPT, ...ask });
    const fleet = { registry, partitionOf: (): typeof POOL => POOL };
    const { healthy: workers } = findCandidates(fleet, bookings, query, this.now);
    const rule = { policy: "cache_aware", ownership: "events" } as const;
    const targets = this.targets();
    const planning = planner.plan(
      { query, rule, workers, targets, spread: false, ...over },
      this.now,
    );
    if (!planning.ok) expect(PLAN_REFUSALS).to.include(planning.refusal);
    return planning;
  }

  planned(ask: Ask = {}, over: Partial<PlanFacts> = {}): SeedPlan {
    const planning = this.plan(ask, over);
    if (!planning.ok) throw new Error(planning.refusal);
    return planning.plan;
  }

  /** "w1 seed", "w0 owner", or why there is no plan; leaves nothing behind. */
  says(ask: Ask = {}, over: Partial<PlanFacts> = {}): string {
    const planning = this.plan(ask, over);
    if (!planning.ok) return planning.refusal;
    const { target, claim } = planning.plan;
    claim?.drop(false, this.now);
    const kind = claim === undefined ? "owner" : "seed";
    return `w${String(this.numberOf(target.worker))} ${kind}`;
  }
}

function incident(options: SeedBenchOptions = {}): PlanBench {
  return new PlanBench(options).incident();
}

const COMMITTED = { rule: { policy: "cache_aware", ownership: "committed" } } as const;

describe("a seed plan", () => {
  it("P-1 sends a prefix whose owner is full to a clean peer, and tells nobody that it owns anything", () => {
    const bench = incident();
    expect(bench.selection.engine_load).to.equal(false);
    const { kind, target, claim, trace } = bench.planned();
    expect(target.worker).to.equal(bench.worker(1));
    expect(kind).to.equal("cache_aware_distribution_seed");
    expect(claim).not.to.equal(undefined);
    expect(trace, "only the engine's own events publish").to.equal(undefined);
    const { revision } = bench.worker(1).identity;
    expect(bench.protections.snapshot([bench.keysOf(PROMPT)], bench.now)).to.deep.equal([
      { phase: "active", target: { url: url(1), revision } },
    ]);
    expect(bench.published()).to.deep.equal([0]);
    expect(bench.owners(PROMPT)).to.deep.equal([]);
  });

  it("P-2 takes an owner with one place, without budget and cooldown too, and claims no prefix", () => {
    const one = r(37, 0, 0.5, 0.4, 38);
    const off = { max_cached_owners_per_prefix: 0, cache_owner_spill_cooldown_secs: 0 };
    for (const selection of [{}, off]) {
      const bench = incident({ selection });
      bench.room([one, free(38), free(38)]);
      const { kind, target, claim } = bench.planned();
      expect([kind, target.worker, claim]).to.deep.equal([
        "cache_aware_owner_rebalance",
        bench.worker(0),
        undefined,
      ]);
      expect(bench.selector.protections.entries).to.equal(0);
    }
    expect(incident({ selection: off }).says()).to.equal("no_owner_budget");
    expect(incident({ selection: { cache_owner_spill_cooldown_secs: 0 } }).says()).to.equal(
      "no_cooldown",
    );
  });

  it("P-3 counts an owner that the headers exclude", () => {
    const bench = incident({ selection: { max_cached_owners_per_prefix: 2 } });
    bench.stored(1, PROMPT);
    bench.room([FULL, FULL, free(38)]);
    const excludedWorkerUrls = [url(0)];
    expect(bench.says({ excludedWorkerUrls })).to.equal("owner_ceiling");
    // With a budget of three the same request may seed.
    const wider = incident({ selection: { max_cached_owners_per_prefix: 3 } });
    wider.stored(1, PROMPT);
    wider.room([FULL, FULL, free(38)]);
    expect(wider.says({ excludedWorkerUrls })).to.equal("w2 seed");
  });

  it("P-4 holds the prefix: no second plan, no spill, no provisional owner; others stay on the owner", () => {
    const bench = incident();
    const { ownership } = bench.planned();
    expect(bench.says()).to.equal("prefix_protected");
    expect(bench.phases()).to.deep.equal(["active"]);
    const { protections } = bench;
    const { keys, blocks } = ownership;
    expect(protections.provisionalOwner(keys, blocks, bench.now)).to.equal(undefined);
    const candidates = new Set([url(1), url(2)]);
    expect(protections.spill(keys, blocks, candidates, () => url(2), bench.now)).to.deep.equal({
      kind: "refused",
    });
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 active_distribution_seed_hold");
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] })).to.equal(
      "adaptive_admission_saturated active_distribution_seed_hold",
    );
  });

  it("P-6 keeps its target from being chosen before any lease is taken, whatever its engine publishes", () => {
    const bench = incident();
    bench.planned();
    const held = "active_distribution_seed_hold";
    expect(bench.where({ prompt: LONGER })).to.equal(`w0 ${held}`);
    bench.stored(1, PROMPT);
    expect(bench.where({ prompt: LONGER })).to.equal(`w0 ${held}`);
    bench.stored(1, LONGER);
    expect(bench.where({ prompt: LONGER })).to.equal(`adaptive_admission_saturated ${held}`);
    expect(bench.selector.protections.entries).to.equal(1);
  });

  it("P-5 leaves a dispatched seed without success in quarantine: no plan and no spill for 5 s", () => {
    const bench = incident();
    const { claim, ownership } = bench.planned();
    claim?.drop(true, bench.now);
    const { protections } = bench;
    const { keys, blocks } = ownership;
    const spill = (): string =>
      protections.spill(keys, blocks, new Set([url(2)]), () => url(2), bench.now).kind;
    expect([bench.says(), spill()]).to.deep.equal(["prefix_protected", "refused"]);
    bench.passSeconds(4);
    expect([bench.says(), spill()]).to.deep.equal(["prefix_protected", "refused"]);
    bench.passSeconds(2);
    expect(bench.says()).to.equal("w1 seed");
  });

  it("P-12 is refused on a prefix that a spill went out on, which stays; and made when 6 s have passed", () => {
    const bench = incident();
    const { keys, blocks } = bench.selector.lookup.find(
      bench.selector.lookup.read(bench.selector.hash(DEMO, PROMPT)) ?? expect.fail("no prefix"),
      [bench.worker(0)],
      bench.now,
    );
    const { protections } = bench;
    protections.spill(keys, blocks, new Set([url(2)]), () => url(2), bench.now);
    expect(bench.says()).to.equal("provisional_owner");
    expect(protections.provisionalOwner(keys, blocks, bench.now)).to.equal(url(2));
    bench.passSeconds(6);
    expect(bench.says()).to.equal("w1 seed");
  });

  it("P-15 leaves nothing when it is dropped before it is sent: plan and spill are possible at once", () => {
    const bench = incident();
    const { claim, ownership } = bench.planned();
    claim?.drop(false, bench.now);
    const { protections } = bench;
    expect([protections.seeds, protections.entries]).to.deep.equal([0, 0]);
    expect(bench.says()).to.equal("w1 seed");
    const { keys, blocks } = ownership;
    expect(
      protections.spill(keys, blocks, new Set([url(2)]), () => url(2), bench.now).kind,
    ).to.equal("new");
  });

  it("takes most slots, then least live load, then the first url, of owners and of peers", () => {
    const bench = incident();
    const peers = (one: number, other: number): string => {
      bench.room([FULL, free(one), free(other)]);
      return bench.says();
    };
    expect([peers(38, 38), peers(37, 38), peers(38, 37)]).to.deep.equal([
      "w1 seed",
      "w2 seed",
      "w1 seed",
    ]);
    // Both have 30 places; of w1's ten requests its engine has not told yet.
    bench.load(1, 10);
    bench.room([FULL, r(0, 0, 0.1, 0.1, 40), r(10, 0, 0.1, 0.1, 40)]);
    expect(bench.says()).to.equal("w2 seed");
    bench.stored(1, PROMPT);
    bench.stored(2, PROMPT);
    expect(bench.says()).to.equal("w2 owner");
    bench.room([FULL, r(0, 0, 0.1, 0.1, 41), r(10, 0, 0.1, 0.1, 40)]);
    expect(bench.says()).to.equal("w1 owner");
  });

  it("needs each owner that the headers allow in the snapshot, and no other worker", () => {
    const bench = incident();
    bench.stored(1, PROMPT);
    bench.room([undefined, FULL, free(38)]);
    expect(bench.says()).to.equal("owner_unknown");
    expect(bench.says({ excludedWorkerUrls: [url(0)] })).to.equal("w2 seed");
    // The owner has room, but another one is not known.
    bench.room([undefined, free(38), free(38)]);
    expect(bench.says()).to.equal("owner_unknown");
    bench.room([FULL, FULL, undefined]);
    expect(bench.says()).to.equal("no_clean_peer");
  });

  it("does not take the snapshot of a worker that was replaced for the new one's", () => {
    const bench = incident();
    const targets = bench.targets();
    bench.add({ url: url(0) });
    expect(bench.says({}, { targets })).to.equal("owner_unknown");
  });

  it("goes to no worker that the headers exclude, and only to the one that they name", () => {
    const bench = incident();
    expect(bench.says({ excludedWorkerUrls: [url(1)] })).to.equal("w2 seed");
    expect(bench.says({ excludedWorkerUrls: [url(1), url(2)] })).to.equal("no_clean_peer");
    expect(bench.says({ excludedWorkerUrls: [url(0)] })).to.equal("owners_excluded");
    // Naming the peer excludes the owner.
    expect(bench.says({ targetWorkerUrl: url(1) })).to.equal("owners_excluded");
    expect(bench.says({ targetWorkerUrl: url(0) })).to.equal("no_clean_peer");
  });

  it("goes to no peer that is waited for, hot or full", () => {
    for (const peer of [r(0, 1, 0.1, 0.1, 38), r(0, 0, 0.9, 0.1, 38), r(38, 0, 0.1, 0.1, 38)]) {
      const bench = incident();
      bench.room([FULL, peer, undefined]);
      expect(bench.says()).to.equal("no_clean_peer");
    }
  });

  it("needs an owner of at least one full block, and binds the prefix that is matched, no more", () => {
    const bench = incident();
    expect(bench.says({ prompt: tokens(91, 98) })).to.equal("no_owner");
    expect(bench.says({ prompt: tokens(1, 3) })).to.equal("no_prompt");
    expect(bench.says({ prompt: undefined })).to.equal("no_prompt");
    const { ownership } = bench.planned({ prompt: LONGER });
    expect([ownership.matchedBlocks, ownership.owners]).to.deep.equal([2, [bench.worker(0)]]);
    expect([bench.phases(PROMPT), bench.phases(tokens(1, 4))]).to.deep.equal([["active"], []]);
  });

  it("takes events for ownership where the model says so, never successes or a spill", () => {
    const bench = new PlanBench();
    bench.own(PROMPT, 0);
    bench.room([FULL, free(38), free(38)]);
    expect(bench.owners(PROMPT)).to.deep.equal([0]);
    expect(bench.says()).to.equal("owner_not_proven");
    expect(bench.says({ prompt: text("aaaabbbb") })).to.equal("no_owner");
  });

  it("takes successes for ownership where the model says so, of text too, and publishes by success", () => {
    const bench = new PlanBench({ ownership: "committed" });
    const prompt = text("aaaabbbbcccc");
    bench.own(prompt, 0);
    bench.room([FULL, free(38), free(38)]);
    const { target, claim, trace } = bench.planned({ prompt }, COMMITTED);
    expect(target.worker).to.equal(bench.worker(1));
    expect(trace).to.deep.equal({
      keys: bench.keysOf(prompt),
      generation: bench.worker(1).identity.generation,
      expected: undefined,
    });
    claim?.drop(false, bench.now);
    // What an engine publishes is not asked for.
    bench.stored(2, PROMPT);
    expect(bench.says({ prompt: PROMPT }, COMMITTED)).to.equal("no_owner");
  });

  it("expects of an owner by success that its cache has the prefix", () => {
    const bench = new PlanBench({ ownership: "committed" });
    const prompt = text("aaaabbbb");
    bench.own(prompt, 0);
    bench.room([free(1), free(38), free(38)]);
    const { trace } = bench.planned({ prompt }, COMMITTED);
    expect(trace?.expected).to.deep.equal({ lastSuccessAt: bench.now });
  });

  it("counts requests under way against the budget, and does not seed the worker they went to", () => {
    const bench = incident({ selection: { max_cached_owners_per_prefix: 2 } });
    const lookup = bench.selector.lookup;
    const prefix = lookup.read(bench.selector.hash(DEMO, PROMPT)) ?? expect.fail("no prefix");
    const { keys, blocks } = lookup.find(prefix, [bench.worker(0)], bench.now);
    const { generation } = bench.worker(1).identity;
    const done = bench.selector.pending.add(keys, blocks, generation);
    expect(bench.says()).to.equal("owner_ceiling");
    done();
    expect(bench.says()).to.equal("w1 seed");
    const wider = incident();
    wider.selector.pending.add(keys, blocks, wider.worker(1).identity.generation);
    expect(wider.says()).to.equal("w2 seed");
  });

  it("is refused for a model whose workers are not chosen by their caches", () => {
    const bench = incident();
    const rule = { policy: "least_load", ownership: "events" } as const;
    expect(bench.says({}, { rule })).to.equal("not_cache_aware");
    expect(bench.says({}, { rule: undefined })).to.equal("not_cache_aware");
  });

  it("is refused when 64 other prefixes are protected", () => {
    const bench = incident();
    for (let seed = 0; seed < 64; seed += 1) {
      const keys = bench.keysOf(tokens(100 + seed, 107 + seed));
      bench.protections.claimSeed(keys, 2, { url: url(2), revision: 1 }, bench.now);
    }
    expect(bench.says()).to.equal("prefix_claimed");
    expect(bench.selector.protections.seeds).to.equal(64);
  });

  it("is refused while its prefix cools down after a success; a shorter prefix is free", () => {
    const bench = incident();
    const { claim } = bench.planned();
    claim?.markSuccess();
    claim?.drop(true, bench.now);
    expect(bench.says()).to.equal("prefix_protected");
    expect(bench.says({ prompt: tokens(1, 7) })).to.equal("w1 seed");
  });

  describe("where the partition runs all it has learned to", () => {
    const spread = { spread: true };
    const kind = (planning: Planning): string =>
      planning.ok ? planning.plan.kind : planning.refusal;

    function bench(owner: number, peer: number, over: SeedBenchOptions = {}): PlanBench {
      const made = new PlanBench({ workers: 2, ...over });
      made.stored(0, PROMPT);
      made.room([r(owner, 0, 0.3, 0.3, 38), r(peer, 0, 0.1, 0.1, 38)]);
      return made;
    }

    it("makes a peer an owner that bears less than half of what the owner does, whatever room that has", () => {
      expect(kind(bench(11, 5).plan({}, spread))).to.equal("cache_aware_distribution_seed");
      expect(kind(bench(10, 5).plan({}, spread))).to.equal("cache_aware_owner_rebalance");
      // Requests that wait are another matter: there an owner with room is none of those that are full.
      expect(kind(bench(11, 0).plan())).to.equal("cache_aware_owner_rebalance");
    });

    it("stays with the owner where nobody new may be made", () => {
      const budget = { selection: { max_cached_owners_per_prefix: 1 } };
      expect(kind(bench(11, 0, budget).plan({}, spread))).to.equal("cache_aware_owner_rebalance");
      const excluded = bench(11, 0).plan({ excludedWorkerUrls: [url(1)] }, spread);
      expect(kind(excluded)).to.equal("cache_aware_owner_rebalance");
    });
  });
});

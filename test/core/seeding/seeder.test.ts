// From a refused request to a seed and to its end: the order of the steps, what each failure leaves
// behind, and what ordinary requests meet meanwhile. The specification's w1, w2, w3 are w0, w1, w2 here.

import { expect } from "chai";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import { InvariantError } from "../../../extproc/core/model/invariant.js";
import { SEED_OUTCOMES, type SeedEvent } from "../../../extproc/core/seeding/counts.js";
import { SEED_POLICIES } from "../../../extproc/core/selection/decision.js";
import { SEED_REFUSALS } from "../../../extproc/core/seeding/refusals.js";
import { Seeder } from "../../../extproc/core/seeding/seeder.js";
import type { TelemetryEntry } from "../../../extproc/core/workers/telemetry-store.js";
import { workerOfKey } from "../../../extproc/core/selection/routing-key.js";
import { DEMO, POOL, text, tokens, url } from "../selection/support.js";
import {
  free,
  FULL,
  LONGER,
  PROMPT,
  ProofDouble,
  r,
  SeedBench,
  SUBJECT,
  TENANT,
} from "./support.js";

function incident(options: ConstructorParameters<typeof SeedBench>[0] = {}): SeedBench {
  return new SeedBench(options).incident();
}

/** Everything a try could have left behind, as text. */
function traces(bench: SeedBench): unknown {
  const { protections, bookings, pending } = bench.selector;
  return {
    seeds: protections.seeds,
    entries: protections.entries,
    books: bookings.size,
    pending: pending.size,
    leases: bench.seeder.leases.count(POOL),
    loads: [...bench.registry.all()].map(({ runtime }) => runtime.liveLoad),
    published: bench.published(),
    committed: bench.owners(PROMPT),
  };
}

/** What was counted, as "event detail: count". */
function counted(bench: SeedBench): string[] {
  const say = (event: SeedEvent): string => Object.values(event).join(" ");
  return [...bench.seeder.counts.all()].map(
    ({ event, count }) => `${say(event)}: ${String(count)}`,
  );
}

const NOTHING = {
  ...{ seeds: 0, entries: 0, books: 0, pending: 0, leases: 0 },
  ...{ loads: [0, 0, 0], published: [0], committed: [] },
};

describe("the steps to a seed", () => {
  it("claim proof, prefix, worker and partition, and give the room a guard that is verified", () => {
    const bench = incident();
    const proof = new ProofDouble();
    const seed = bench.seed({ proof });
    expect([proof.state, proof.spent]).to.deep.equal(["claimed", 0]);
    expect(seed.worker).to.equal(bench.worker(1));
    expect(traces(bench)).to.deep.equal({ ...NOTHING, seeds: 1, entries: 1, books: 1, leases: 1 });
    expect(seed.story).to.deep.equal({
      ...{ kind: "cache_aware_distribution_seed", workerUrl: url(1), workerRevision: 1 },
      ...{ telemetryRevision: 1, ownership: "events", owners: 1, matchedBlocks: 2 },
      ...{ occupied: 0, slots: 38, plannedAt: bench.now },
    });
    expect(counted(bench)).to.deep.equal([
      "lease_acquired cache_aware_distribution_seed: 1",
      "lease_verified: 1",
    ]);
    bench.send(seed);
    expect(proof.spent).to.equal(1);
  });

  it("refuse before the proof is touched: seeding off here, or nobody to spread to", () => {
    const proof = new ProofDouble();
    expect(incident({ rules: { seedCap: 0 } }).seeds({ proof })).to.equal("disabled");
    const alone = new SeedBench({ workers: 1 });
    alone.stored(0, PROMPT);
    alone.room([FULL]);
    expect(alone.seeds({ proof })).to.equal("too_few_workers");
    const unhealthy = incident();
    unhealthy.registry.recordHealth(url(1), false);
    unhealthy.registry.recordHealth(url(2), false);
    expect(unhealthy.seeds({ proof })).to.equal("too_few_workers");
    expect(proof.state).to.equal("fresh");
  });

  it("take a proof before anything else is looked at: a later refusal has used it up", () => {
    const cases: [string, (bench: SeedBench) => void][] = [
      [
        "no_headroom",
        (bench) => {
          bench.room([]);
        },
      ],
      [
        "plan_no_owner",
        ({ selector }) => {
          selector.events.forget(1);
        },
      ],
      [
        "plan_no_clean_peer",
        (bench) => {
          bench.room([FULL, FULL, FULL]);
        },
      ],
      [
        "plan_owner_unknown",
        (bench) => {
          bench.room([undefined, free(1), free(1)]);
        },
      ],
    ];
    for (const [expected, change] of cases) {
      const bench = incident();
      change(bench);
      const proof = new ProofDouble();
      expect(bench.seeds({ proof })).to.equal(expected);
      expect(proof.state).to.equal("claimed");
      expect(counted(bench)).to.deep.equal([`refused ${expected}: 1`]);
      const { published } = traces(bench) as { published: unknown };
      expect(traces(bench)).to.deep.equal({ ...NOTHING, published });
      expect(bench.seeds({ proof })).to.equal("proof_already_claimed");
    }
  });

  it("S-7 let one request seed with a proof, and nobody with a copy of it", () => {
    const bench = incident();
    const proof = new ProofDouble();
    const { end } = bench.sent({ proof });
    const copy = proof;
    expect(bench.seeds({ proof: copy, prompt: tokens(91, 98) })).to.equal("proof_already_claimed");
    end(true);
    bench.passSeconds(6);
    expect(bench.seeds({ proof: copy })).to.equal("proof_already_claimed");
    expect(bench.seeds()).to.equal("w1 cache_aware_distribution_seed");
  });

  it("S-8 refuse a proof of another tenant, model, partition or request, which stays good", () => {
    const other = partitionName("other");
    const wrong = [
      ["proof_tenant_mismatch", { ...SUBJECT, tenant: tenantKey("auth:bob") }],
      ["proof_request_mismatch", { ...SUBJECT, requestId: "request 2" }],
      ["proof_model_mismatch", { ...SUBJECT, model: modelId("k4") }],
      ["proof_partition_mismatch", { ...SUBJECT, partition: other }],
    ] as const;
    for (const [expected, subject] of wrong) {
      const bench = incident();
      const proof = new ProofDouble(subject);
      expect(bench.seeds({ proof })).to.equal(expected);
      expect([proof.state, traces(bench)]).to.deep.equal(["fresh", NOTHING]);
    }
    const bench = incident();
    const proof = new ProofDouble();
    for (const requestId of ["", "request 2"]) {
      expect(bench.seeds({ proof, subject: { ...SUBJECT, requestId } })).to.equal(
        "proof_request_mismatch",
      );
    }
    expect(bench.seeds({ proof })).to.equal("w1 cache_aware_distribution_seed");
  });

  it("refuse a proof whose permit has ended", () => {
    const proof = new ProofDouble();
    proof.state = "revoked";
    expect(incident().seeds({ proof })).to.equal("proof_revoked");
  });

  it("let one seed go at a time in a partition, whatever its prefix", () => {
    const bench = incident();
    bench.stored(0, tokens(91, 98));
    const { end } = bench.sent();
    expect(bench.seeds({ prompt: tokens(91, 98) })).to.equal("plan_no_clean_peer");
    end(true);
    expect(bench.seeds({ prompt: tokens(91, 98) })).to.equal("w1 cache_aware_distribution_seed");
  });

  it("S-1 give one of 8 requests of one step the seed, and refuse the others without a trace", () => {
    const bench = incident();
    const tries = Array.from({ length: 8 }, () => bench.try());
    expect(tries.map((one) => (one.ok ? "seed" : one.refusal))).to.deep.equal([
      "seed",
      ...Array.from({ length: 7 }, () => "plan_prefix_protected"),
    ]);
    expect(traces(bench)).to.deep.equal({ ...NOTHING, seeds: 1, entries: 1, books: 1, leases: 1 });
  });

  it("roll the prefix back when the lease fails, or is void the moment it is taken", () => {
    for (const [looks, expected] of [
      [3, "lease_record_changed"],
      [4, "verify_record_changed"],
    ] as const) {
      const bench = incident();
      let look = 0;
      // From the given look on, the engines seem to have reported anew: a look per worker, then two.
      const telemetry = {
        get: (identity: Parameters<typeof bench.telemetry.get>[0]): TelemetryEntry | undefined => {
          look += 1;
          const entry = bench.telemetry.get(identity);
          return entry && { ...entry, revision: look > looks ? 2 : 1 };
        },
      };
      const { registry, selection, selector } = bench;
      const seeder = new Seeder({
        rules: bench.seeder.rules,
        fleet: { registry, partitionOf: () => POOL },
        models: new Map([[DEMO, { policy: "cache_aware", ownership: "events" }]]),
        ...{ selection, selector, telemetry },
      });
      const query = bench.query({ prompt: PROMPT });
      const { requestId } = SUBJECT;
      const ask = { tenant: TENANT, requestId, proof: new ProofDouble(), query, spread: false };
      expect(seeder.seed(ask, bench.now)).to.deep.equal({ ok: false, refusal: expected });
      expect([traces(bench), seeder.leases.count(POOL)]).to.deep.equal([NOTHING, 0]);
      expect(bench.seeds()).to.equal("w1 cache_aware_distribution_seed");
    }
  });

  it("find every prompt of a text model as well, by the answers that ended well", () => {
    const bench = new SeedBench({ ownership: "committed" });
    const prompt = text("aaaabbbbcccc");
    bench.own(prompt, 0);
    bench.room([FULL, free(38), free(38)]);
    const { end } = bench.sent({ prompt });
    expect(bench.owners(prompt)).to.deep.equal([0]);
    end(true);
    expect(bench.owners(prompt)).to.deep.equal([0, 1]);
    expect(bench.where({ prompt })).to.match(/successful_distribution_seed_cooldown_hold$/);
  });

  it("name every reason once", () => {
    expect(new Set(SEED_REFUSALS).size).to.equal(SEED_REFUSALS.length);
    expect(SEED_REFUSALS).to.have.length(2 + 6 + 1 + 13 + 12 + 8);
    expect([SEED_OUTCOMES.length, SEED_POLICIES.length]).to.deep.equal([3, 2]);
  });
});

describe("the end of a seed", () => {
  it("lets the prefix cool down before the worker is free again, after a success", () => {
    const bench = incident();
    const { seed, end } = bench.sent();
    const { leases } = bench.seeder;
    const order: string[] = [];
    const { claim } = seed.plan;
    const note = (name: string): void => {
      order.push(`${name} ${bench.phases().join()} ${String(leases.count(POOL))}`);
    };
    const drop = claim?.drop.bind(claim);
    Object.assign(claim ?? {}, {
      drop: (...args: Parameters<NonNullable<typeof drop>>) => {
        note("before");
        drop?.(...args);
        note("after");
      },
    });
    end(true);
    note("end");
    expect(order).to.deep.equal([
      "before active 1",
      "after success_cooldown 1",
      "end success_cooldown 0",
    ]);
    expect(seed.end).to.deep.equal({ outcome: "succeeded", published: false, staleHoldings: 0 });
  });

  it("publishes by success in the same step, where successes name the owners", () => {
    const bench = new SeedBench({ ownership: "committed" });
    bench.own(PROMPT, 0);
    bench.room([FULL, free(38), free(38)]);
    const { seed } = bench.sent();
    seed.markSuccess();
    seed.markSuccess();
    expect([bench.owners(PROMPT), bench.phases()]).to.deep.equal([[0], ["active"]]);
    expect(seed.release(bench.now)).to.deep.equal({
      ...{ outcome: "succeeded", published: true, staleHoldings: 0 },
    });
    expect([bench.owners(PROMPT), bench.phases()]).to.deep.equal([[0, 1], ["success_cooldown"]]);
  });

  it("publishes nothing when it failed, was never sent, or its worker was replaced meanwhile", () => {
    const start = (): SeedBench => {
      const bench = new SeedBench({ ownership: "committed" });
      bench.own(PROMPT, 0);
      bench.room([FULL, free(38), free(38)]);
      return bench;
    };
    const failed = start();
    failed.sent().end(false);
    expect([failed.owners(PROMPT), failed.phases()]).to.deep.equal([[0], ["failure_quarantine"]]);
    const unsent = start();
    expect(unsent.seed().release(unsent.now).outcome).to.equal("undispatched");
    expect([unsent.owners(PROMPT), unsent.phases()]).to.deep.equal([[0], []]);
    for (const gone of ["replaced", "removed"]) {
      const bench = start();
      const { seed, end } = bench.sent();
      if (gone === "replaced") bench.add({ url: url(1) });
      else bench.registry.remove(url(1));
      end(true);
      expect(seed.end?.published, gone).to.equal(false);
      expect([bench.owners(PROMPT), bench.phases()]).to.deep.equal([[0], ["success_cooldown"]]);
      expect(bench.seeder.leases.count(POOL)).to.equal(0);
    }
  });

  it("notices at an owner that had room that its engine has evicted, when two others say so too", () => {
    const bench = new SeedBench({ ownership: "committed" });
    const others = [tokens(71, 78), tokens(81, 88)];
    const miss = { promptTokens: 2_000, cachedTokens: 3 };
    for (const prompt of [tokens(91, 98), ...others]) bench.own(prompt, 0);
    bench.passSeconds(1);
    bench.own(PROMPT, 0);
    for (const prompt of others) {
      const selection = bench.selector.select(bench.query({ prompt }), bench.now);
      if (!selection.ok || selection.trace === undefined) throw new Error("it has an owner");
      selection.booking();
      expect(bench.selector.ended(selection.trace, false, miss, bench.now)).to.equal(0);
    }
    bench.room([free(1), free(38), free(38)]);
    const { seed } = bench.sent();
    expect(seed.plan.kind).to.equal("cache_aware_owner_rebalance");
    seed.markSuccess(miss);
    // Two blocks of each of the three older prompts.
    expect(seed.release(bench.now).staleHoldings).to.equal(6);
    expect([bench.owners(PROMPT), bench.owners(tokens(91, 98))]).to.deep.equal([[0], []]);
  });

  it("gives prefix and worker back although publishing fails", () => {
    const bench = new SeedBench({ ownership: "committed" });
    bench.own(PROMPT, 0);
    bench.room([FULL, free(38), free(38)]);
    const { seed } = bench.sent();
    seed.markSuccess();
    const { selector } = bench;
    Object.assign(selector, {
      ended: () => {
        throw new InvariantError("planted");
      },
    });
    expect(() => seed.release(bench.now)).to.throw("planted");
    expect([bench.phases(), bench.seeder.leases.count(POOL)]).to.deep.equal([
      ["success_cooldown"],
      0,
    ]);
  });

  it("acts once, and tells a late caller the same", () => {
    const bench = incident();
    const { seed, end } = bench.sent();
    end(false);
    const next = (): unknown => bench.seeds({ prompt: tokens(1, 4) });
    seed.markSuccess();
    expect(seed.release(bench.now).outcome).to.equal("failed");
    expect(bench.phases()).to.deep.equal(["failure_quarantine"]);
    bench.stored(0, tokens(1, 4));
    expect(next()).to.equal("w1 cache_aware_distribution_seed");
    expect(counted(bench)).to.include("ended cache_aware_distribution_seed failed: 1");
  });

  it("does not touch a seed that came after it", () => {
    const bench = incident();
    const first = bench.seed();
    first.release(bench.now);
    const second = bench.seed();
    first.release(bench.now);
    expect([bench.phases(), bench.seeder.leases.count(POOL)]).to.deep.equal([["active"], 1]);
    expect(second.verify(bench.now)).to.equal(undefined);
  });

  it("is a bug of the caller when it is sent twice, or succeeds before it was sent", () => {
    const bench = incident();
    const seed = bench.seed();
    expect(() => {
      seed.markSuccess();
    }).to.throw(InvariantError);
    seed.dispatched();
    expect(() => {
      seed.dispatched();
    }).to.throw(InvariantError);
  });

  it("counts how it ended, and each question about its lease", () => {
    const bench = incident();
    bench.sent().end(true);
    bench.passSeconds(6);
    const seed = bench.seed();
    bench.room([FULL, free(38), free(38)]);
    expect(seed.verify(bench.now)).to.equal("record_changed");
    seed.release(bench.now);
    const kind = "cache_aware_distribution_seed";
    expect(counted(bench)).to.deep.equal([
      `lease_acquired ${kind}: 2`,
      "lease_verified: 3",
      `ended ${kind} succeeded: 1`,
      "lease_voided record_changed: 1",
      `ended ${kind} undispatched: 1`,
    ]);
  });

  it("P-15 leaves nothing when it is void before it is sent: the next one may seed at once", () => {
    const bench = incident();
    const seed = bench.seed();
    bench.add({ url: url(1) });
    expect(seed.verify(bench.now)).to.equal("worker_replaced");
    expect(seed.release(bench.now).outcome).to.equal("undispatched");
    expect(traces(bench)).to.deep.equal({ ...NOTHING, books: 0 });
    bench.room([FULL, free(38), free(38)]);
    expect(bench.seeds()).to.equal("w1 cache_aware_distribution_seed");
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] })).to.match(
      /excluded_owner_spill$/,
    );
  });
});

describe("ordinary requests around a seed", () => {
  const BLOCK = "adaptive_admission_saturated";

  it("P-6 are refused, not sent to the target, when only the target holds their longer prefix", () => {
    const bench = incident();
    bench.sent();
    bench.stored(1, LONGER);
    for (const excludedWorkerUrls of [[], [url(1)]]) {
      expect(bench.where({ prompt: LONGER, excludedWorkerUrls })).to.equal(
        `${BLOCK} active_distribution_seed_hold`,
      );
    }
    expect(bench.selector.protections.entries).to.equal(1);
    expect(bench.phases(LONGER)).to.deep.equal(["active"]);
  });

  it("D35 never meet the target early, by routing key, by header, by load or as its only owner", () => {
    const bench = incident();
    bench.load(2, 30);
    const { seed, end } = bench.sent();
    const prompts = [PROMPT, LONGER, tokens(1, 4), tokens(91, 98), undefined];
    const headers = [{}, { targetWorkerUrl: url(1) }, { excludedWorkerUrls: [url(0), url(2)] }];
    const keys = [undefined, "a", "b", "c", "d", "e", "f"];
    for (const early of [undefined, PROMPT, LONGER]) {
      if (early !== undefined) bench.stored(1, early);
      for (const prompt of prompts) {
        for (const header of headers) {
          for (const routingKey of keys) {
            expect(bench.where({ prompt, routingKey, ...header })).to.match(/^(w0|w2|adaptive)/);
          }
        }
      }
    }
    end(true);
    expect(bench.where({ prompt: LONGER })).to.equal(
      "w1 successful_distribution_seed_cooldown_hold",
    );
    expect(seed.end?.outcome).to.equal("succeeded");
  });

  it("P-7 are refused when the owner is lost for a moment", () => {
    const bench = incident();
    bench.sent();
    bench.selector.events.forget(bench.worker(0).identity.generation);
    expect(bench.where({ prompt: LONGER })).to.equal(
      `${BLOCK} distribution_seed_missing_owner_block`,
    );
  });

  it("P-8 go to the owner past the target of a failed seed; nobody seeds there; others are free", () => {
    const bench = incident();
    const { end } = bench.sent();
    bench.stored(1, LONGER);
    end(false);
    expect(bench.phases()).to.deep.equal(["failure_quarantine"]);
    expect(bench.where({ prompt: LONGER })).to.equal("w0 failed_distribution_seed_hold");
    expect(bench.seeds({ prompt: LONGER })).to.equal("plan_prefix_protected");
    expect(bench.where({ prompt: tokens(91, 94) })).to.match(/no_owner$/);
    bench.selector.events.forget(bench.worker(0).identity.generation);
    expect(bench.where({ prompt: LONGER })).to.equal(`${BLOCK} failed_distribution_seed_block`);
  });

  it("P-9 may go to the target after its success, and nobody seeds while the prefix cools down", () => {
    const bench = incident();
    const { seed, end } = bench.sent();
    bench.stored(1, LONGER);
    seed.markSuccess();
    end(true);
    expect(bench.phases()).to.deep.equal(["success_cooldown"]);
    expect(bench.where({ prompt: LONGER })).to.equal(
      "w1 successful_distribution_seed_cooldown_hold",
    );
    expect(bench.seeds({ prompt: LONGER })).to.equal("plan_prefix_protected");
    bench.passSeconds(5);
    expect(bench.where({ prompt: LONGER })).to.equal("w1 cached_owner_hold");
  });

  it("P-10 stay with the owner where one seed of a worker succeeded and another one failed", () => {
    const bench = incident();
    bench.stored(0, tokens(1, 4));
    const first = bench.sent({ prompt: tokens(1, 4) });
    first.end(true);
    // A longer prefix is a matching descendant, so only the claim itself can be had now.
    const keys = bench.keysOf(PROMPT);
    const { revision } = bench.worker(1).identity;
    const target = { url: url(1), revision };
    bench.protections.claimSeed(keys, 2, target, bench.now)?.drop(true, bench.now);
    bench.stored(1, PROMPT);
    expect(bench.phases()).to.deep.equal(["success_cooldown", "failure_quarantine"]);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 failed_distribution_seed_hold");
    expect(bench.seeds()).to.equal("plan_prefix_protected");
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] })).to.equal(
      `${BLOCK} failed_distribution_seed_block`,
    );
  });

  it("P-11 stay with a hot owner of their longer prefix, and make no entry for it", () => {
    const bench = incident({ selection: { engine_load: true } });
    bench.sent();
    bench.stored(0, LONGER);
    bench.room([r(38, 0, 0.99, 0.99, 38), free(38), free(38)]);
    expect(bench.where({ prompt: LONGER, excludedWorkerUrls: [url(1)] })).to.equal(
      "w0 active_distribution_seed_hold",
    );
    expect(bench.selector.protections.entries).to.equal(1);
  });

  it("P-13 race a spill against a seed on each of 32 prefixes: one wins, with two owners at most", () => {
    const bench = new SeedBench({
      ownership: "committed",
      selection: {
        max_cached_owners_per_prefix: 2,
        cache_owner_spill_cooldown_secs: 60,
        engine_load: true,
      },
    });
    const outcomes = new Map<string, number>();
    for (let prefix = 0; prefix < 32; prefix += 1) {
      const prompt = tokens(1000 * prefix, 1000 * prefix + 7);
      bench.room([free(38), free(38), free(38)]);
      bench.own(prompt, 0);
      bench.room([r(38, 9, 0.95, 0.4, 38), free(38), free(38)]);
      const spilled = (): boolean => {
        const selection = bench.chosen({ prompt });
        const isNew = selection.decision.result === "owner_pressure_spill";
        bench.succeed(selection);
        return isNew;
      };
      const seeded = (): boolean => {
        const seeding = bench.try({ prompt });
        if (!seeding.ok) return false;
        const load = bench.send(seeding.seed);
        load();
        seeding.seed.markSuccess();
        seeding.seed.release(bench.now);
        // A spill has made an owner that has room: going there makes no further one.
        return seeding.seed.plan.claim !== undefined;
      };
      const [first, second] = prefix % 2 === 0 ? [spilled, seeded] : [seeded, spilled];
      expect([first(), second()]).to.deep.equal([true, false]);
      expect(bench.owners(prompt)).to.have.length(2);
      const winner = prefix % 2 === 0 ? "spill" : "seed";
      outcomes.set(winner, (outcomes.get(winner) ?? 0) + 1);
    }
    expect([...outcomes]).to.deep.equal([
      ["spill", 16],
      ["seed", 16],
    ]);
    expect(bench.selector.protections.entries).to.equal(32);
  });

  it("P-14 are refused when their key leads to the seed's worker, before and after its early event", () => {
    // A = w0 owns and is excluded, B = w1 is seeded and the key's worker, C = w2 holds nothing.
    const bench = incident();
    const all = [bench.worker(0), bench.worker(1), bench.worker(2)];
    const routingKey = ["a", "b", "c", "d", "e", "f", "g", "h"].find(
      (key) => workerOfKey(key, all) === bench.worker(1),
    );
    expect(routingKey).not.to.equal(undefined);
    const { end } = bench.sent();
    const ask = { prompt: LONGER, routingKey, excludedWorkerUrls: [url(0)] };
    const refused = (): void => {
      const selection = bench.select(ask);
      expect(selection.ok).to.equal(false);
      if (selection.ok) return;
      const { code, status, retryAfterS } = selection.rejection;
      expect([code, status, retryAfterS]).to.deep.equal([BLOCK, 429, 1]);
    };
    refused();
    bench.stored(1, LONGER);
    refused();
    expect(bench.selector.bookings.claims(bench.worker(1).identity.generation)).to.equal(0);
    end(true);
    bench.passSeconds(6);
    expect(bench.where(ask)).to.equal("w1 routing_key");
  });

  it("may go to an owner that had room after all, while a refused one is under way to it", () => {
    const bench = new SeedBench();
    for (const worker of [0, 1]) bench.stored(worker, PROMPT);
    bench.room([FULL, free(38), free(38)]);
    const { end } = bench.sent();
    expect([...bench.seeder.leases.all()].map(({ worker }) => worker)).to.deep.equal([
      bench.worker(1),
    ]);
    // Owner 0 bears the same, so they would take turns.
    bench.worker(0).runtime.holdLoad();
    bench.worker(0).runtime.holdLoad();
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 cached_owner_hold");
    expect(bench.where({ prompt: tokens(91, 98), targetWorkerUrl: url(1) })).to.match(/^w1 /);
    // The next refused one has no place all the same: there is one at a time.
    expect(bench.seeds()).to.equal("plan_no_clean_peer");
    end(true);
    expect(bench.selector.bookings.leaseOf(bench.worker(1).identity.generation)).to.equal(
      undefined,
    );
  });

  it("hold a claim until they are load, and no seed takes that place", () => {
    const bench = incident();
    const elsewhere = bench.chosen({ prompt: tokens(91, 98), targetWorkerUrl: url(1) });
    expect(bench.seeds()).to.equal("w2 cache_aware_distribution_seed");
    const load = elsewhere.worker.runtime.holdLoad();
    elsewhere.claim();
    expect(bench.slots()).to.equal("w0 0, w1 37, w2 38");
    load();
  });
});

describe("what is told about seeding", () => {
  it("is nothing where it is off", () => {
    const bench = incident({ rules: { mode: "shadow" } });
    const { partitions, headroom, leases, protections } = bench.seeder.explain(bench.now);
    expect([partitions, headroom, leases, protections]).to.deep.equal([[], [], [], []]);
  });

  it("is who is leased, which prefix is in which phase, and how much room each worker has or why not", () => {
    const bench = incident();
    bench.load(2, 3);
    bench.room([FULL, free(38), undefined]);
    bench.sent();
    bench.passSeconds(2);
    const told = bench.seeder.explain(bench.now);
    expect(told.partitions).to.deep.equal([POOL]);
    expect(told.leases).to.deep.equal([
      { partition: POOL, model: DEMO, url: url(1), revision: 1, telemetryRevision: 2, ageMs: 2000 },
    ]);
    expect(told.protections).to.deep.equal([
      {
        partition: POOL,
        phase: "active",
        target: { url: url(1), revision: 1 },
        blocks: 2,
        ageMs: 2000,
      },
    ]);
    const at = { partition: POOL, model: DEMO };
    expect(told.headroom).to.deep.equal([
      {
        ...{ ...at, url: url(0), reason: "seed_under_way", slots: 0, liveLoad: 0 },
        reported: { running: 38, waiting: 64, maxRunning: 38, pressure: 0.89, ageMs: 2000 },
      },
      {
        ...{ ...at, url: url(1), reason: "seed_under_way", slots: 0, liveLoad: 1 },
        reported: { running: 0, waiting: 0, maxRunning: 38, pressure: 0.1, ageMs: 2000 },
      },
      { ...at, url: url(2), reason: "no_sample", slots: 0, liveLoad: 3, reported: undefined },
    ]);
    expect(told.counts).to.have.length(2);
  });
});

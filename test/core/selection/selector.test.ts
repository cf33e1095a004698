// What a choice books, what the end of a request teaches, and what is forgotten with a worker.

import { expect } from "chai";
import fc from "fast-check";
import type { PromptContent } from "../../../extproc/core/identity/prompt.js";
import { invariant } from "../../../extproc/core/model/invariant.js";
import type { Disposer, Worker } from "../../../extproc/core/workers/worker.js";
import { PendingOwners } from "../../../extproc/core/selection/pending-owners.js";
import { CacheAware } from "../../../extproc/core/selection/cache-aware.js";
import { Loads } from "../../../extproc/core/selection/loads.js";
import { OwnershipLookup } from "../../../extproc/core/selection/ownership.js";
import { SeedGuard } from "../../../extproc/core/selection/seed-guard.js";
import { workerConfig } from "../../support/workers.js";
import { Bench, DEMO, NO_REPORT, rank, scripted, text, tokens, url } from "./support.js";

const PROMPT = text("aaaabbbbccccdddd");

describe("the booking of a choice", () => {
  it("is tokens until the end of the request, and a claim until the load is held", () => {
    const bench = new Bench();
    const { worker, booking, claim } = bench.chosen({ prompt: PROMPT, outputLimitTokens: 10 });
    const { generation } = worker.identity;
    const { bookings } = bench.selector;
    expect(bookings.reservedTokens(generation)).to.equal(4 + 10);
    expect(bookings.claims(generation)).to.equal(1);
    worker.runtime.holdLoad();
    claim();
    claim();
    expect(bookings.claims(generation)).to.equal(0);
    expect(bookings.reservedTokens(generation)).to.equal(14);
    booking();
    expect(bookings.size).to.equal(0);
  });

  it("ends the claim with it when the request is never sent", () => {
    const bench = new Bench();
    const { booking, claim } = bench.chosen({ prompt: PROMPT });
    booking();
    expect(bench.selector.bookings.size).to.equal(0);
    claim();
    expect(bench.selector.bookings.size).to.equal(0);
  });

  it("is never made by a refusal", () => {
    const bench = new Bench();
    expect(bench.select({ targetWorkerUrl: "http://unknown" }).ok).to.equal(false);
    expect(bench.selector.bookings.size).to.equal(0);
  });
});

describe("the end of a request", () => {
  it("makes the worker an owner of the whole prompt after a success, and only then", () => {
    const bench = new Bench();
    const { at, booking, trace } = bench.chosen({ prompt: PROMPT });
    expect(trace).not.to.equal(undefined);
    if (trace === undefined) return;
    expect(bench.owners(PROMPT), "sent").to.deep.equal([]);
    booking();
    bench.selector.ended(trace, false, NO_REPORT, bench.now);
    expect(bench.owners(PROMPT), "failed").to.deep.equal([]);
    bench.selector.ended(trace, true, NO_REPORT, bench.now);
    expect(bench.owners(PROMPT)).to.deep.equal([at]);
  });

  it("leaves no trace for a prompt without a full block, and under other policies", () => {
    expect(new Bench().chosen({ prompt: text("aaa") }).trace).to.equal(undefined);
    expect(new Bench().chosen().trace).to.equal(undefined);
    const bench = new Bench({ policy: "least_load" });
    expect(bench.chosen({ prompt: PROMPT }).trace).to.equal(undefined);
  });

  /** Three prompts and an older one, all answered by the first worker, a second apart. */
  function known(): { bench: Bench; old: PromptContent; prompts: readonly PromptContent[] } {
    const bench = new Bench({ selection: { committed_ttl_s: 100 } });
    const old = text("eeeeffff");
    const prompts = [text("gggghhhh"), text("iiiijjjj"), text("kkkkllll")];
    for (const prompt of [old, ...prompts]) {
      bench.own(prompt, 0);
      bench.passSeconds(1);
    }
    return { bench, old, prompts };
  }

  it("forgets what is older on a worker when three prompts in a row are missing from its cache", () => {
    const { bench, old, prompts } = known();
    // Block size 4: three cached tokens are none. The last prompt was answered 1 s ago, the first 3 s ago.
    for (const prompt of prompts.slice(0, 2)) {
      expect(bench.succeed(bench.chosen({ prompt }), 3)).to.equal(0);
    }
    expect(bench.owners(old)).to.deep.equal([0]);
    const third = bench.chosen({ prompt: prompts[2] });
    expect(third.trace?.expected).to.deep.equal({ lastSuccessAt: bench.now - 1_000 });
    expect(bench.succeed(third, 0), "the two blocks of the old prompt").to.equal(2);
    expect(bench.owners(old)).to.deep.equal([]);
    // Answered anew just now, each of them.
    for (const prompt of prompts) {
      expect(bench.owners(prompt)).to.deep.equal([0]);
    }
  });

  it("forgets nothing for misses on one prompt, with a hit in between, or on short prompts", () => {
    for (const reports of [
      [
        [0, 0],
        [0, 0],
        [0, 0],
        [0, 0],
      ],
      [
        [0, 0],
        [1, 0],
        [0, 4],
        [2, 0],
        [1, 0],
      ],
    ] as const) {
      const { bench, old, prompts } = known();
      for (const [which, cached] of reports) {
        expect(bench.succeed(bench.chosen({ prompt: prompts[which] }), cached)).to.equal(0);
      }
      expect(bench.owners(old)).to.deep.equal([0]);
    }
    for (const [promptTokens, forgotten] of [
      [1_023, 0],
      [undefined, 0],
      [1_024, 2],
    ] as const) {
      const { bench, prompts } = known();
      let sum = 0;
      for (const prompt of prompts) {
        const { booking, trace } = bench.chosen({ prompt });
        booking();
        invariant(trace !== undefined, "the prompt has a full block");
        sum += bench.selector.ended(trace, true, { promptTokens, cachedTokens: 0 }, bench.now);
      }
      expect(sum, String(promptTokens)).to.equal(forgotten);
    }
  });

  it("forgets nothing when the worker was not chosen as an owner, or nothing is reported", () => {
    const bench = new Bench();
    const other = text("eeeeffff");
    bench.own(PROMPT, 0);
    bench.passSeconds(1);
    const byLoad = bench.chosen({ prompt: other, targetWorkerUrl: url(0) });
    expect(byLoad.trace?.expected).to.equal(undefined);
    expect(bench.succeed(byLoad, 0)).to.equal(0);
    expect(bench.succeed(bench.chosen({ prompt: other }))).to.equal(0);
    expect(bench.owners(PROMPT)).to.deep.equal([0]);
  });

  it("does not expect of a worker named by events what a success has not told", () => {
    const bench = new Bench({ ownership: "events" });
    bench.stored(1, tokens(1, 8));
    const { at, trace } = bench.chosen({ prompt: tokens(1, 8) });
    expect(at).to.equal(1);
    expect(trace).not.to.equal(undefined);
    expect(trace?.expected).to.equal(undefined);
  });

  it("teaches nothing about a worker that was removed meanwhile, nor about its successor", () => {
    const bench = new Bench();
    const { trace, booking } = bench.chosen({ prompt: PROMPT, targetWorkerUrl: url(0) });
    bench.registry.remove(url(0));
    bench.add({ url: url(0) });
    booking();
    expect(trace).not.to.equal(undefined);
    if (trace !== undefined) bench.selector.ended(trace, true, NO_REPORT, bench.now);
    expect(bench.owners(PROMPT)).to.deep.equal([]);
    expect(bench.selector.committed.blocksOf(trace?.generation ?? 0)).to.equal(0);
  });
});

describe("the selector", () => {
  it("forgets everything of a removed worker, and keeps it for one that is replaced", () => {
    const bench = new Bench({ ownership: "events" });
    bench.own(PROMPT, 0);
    bench.stored(0, tokens(1, 8));
    const { identity } = bench.worker(0);
    bench.registry.put(workerConfig({ url: url(0) }));
    expect(bench.selector.committed.blocksOf(identity.generation)).to.equal(4);
    expect(bench.selector.events.blocksOf(identity.generation)).to.equal(2);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 owner_match");
    bench.registry.remove(url(0));
    expect(bench.selector.committed.blocksOf(identity.generation)).to.equal(0);
    expect(bench.selector.events.blocksOf(identity.generation)).to.equal(0);
    bench.add({ url: url(0) });
    expect(bench.where({ prompt: PROMPT })).to.match(/no_owner$/);
  });

  it("sweeps away what has expired, and says when there is more", () => {
    const bench = new Bench({
      selection: { committed_ttl_s: 10, max_prefix_blocks: 20_000, max_tree_size: 1 << 24 },
    });
    bench.own(text("a".repeat(4 * 12_000)), 0);
    bench.passSeconds(11);
    expect(bench.selector.sweep(bench.now)).to.equal(true);
    expect(bench.selector.sweep(bench.now)).to.equal(false);
    expect(bench.selector.committed.blocksOf(bench.worker(0).identity.generation)).to.equal(0);
  });

  it("collects spills that nothing depends on any more", () => {
    const bench = new Bench({
      selection: { max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 1 },
    });
    bench.own(PROMPT, 0);
    bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] });
    expect(bench.selector.protections.entries).to.equal(1);
    bench.passSeconds(61);
    bench.selector.sweep(bench.now);
    expect(bench.selector.protections.entries).to.equal(0);
  });

  it("falls back by load when a seed refuses the spill of a prompt that nobody owns", () => {
    const bench = new Bench({
      selection: { max_cached_owners_per_prefix: 2, balance_abs_threshold: 1 },
    });
    const { selection, hasher, telemetry } = bench;
    const { committed, events, bookings } = bench.selector;
    const lookup = new OwnershipLookup({ selection, hasher, committed, events });
    const cacheAware = new CacheAware({
      selection,
      telemetry,
      lookup,
      loads: new Loads(bookings, scripted()),
      pending: new PendingOwners(),
    });
    bench.load(0, 2);
    const healthy = [bench.worker(0), bench.worker(1)];
    const facts = {
      candidates: { healthy, selectable: healthy, leases: 0, withheld: false },
      prefix: lookup.read(lookup.hash(DEMO, "committed", PROMPT)),
      unread: "no_prompt",
      guard: new SeedGuard([], 0),
      memory: { spill: () => ({ kind: "refused" as const }), provisionalOwner: () => undefined },
    } as const;
    const choice = cacheAware.choose(facts, bench.now);
    expect(choice.worker).to.equal(bench.worker(1));
    expect(choice.result).to.equal("fallback_existing_owner");
  });
});

describe("pending owners", () => {
  it("are counted per request and gone with the last one", () => {
    const { hasher } = new Bench();
    const keys = hasher.text(DEMO, "aaaabbbb", 4, 16);
    const pending = new PendingOwners();
    const of = (): number[] => [...(pending.of(keys, 2)?.keys() ?? [])];
    const first = pending.add(keys, 2, 7);
    const second = pending.add(keys, 2, 7);
    const other = pending.add(keys, 2, 8);
    expect(of()).to.deep.equal([7, 8]);
    expect(pending.of(keys, 1), "another prefix").to.equal(undefined);
    first();
    first();
    expect(of()).to.deep.equal([7, 8]);
    other();
    expect(of()).to.deep.equal([7]);
    second();
    expect(pending.size).to.equal(0);
    const again = pending.add(keys, 2, 8);
    other();
    expect(of(), "a second end of the same request").to.deep.equal([8]);
    again();
    expect(pending.size).to.equal(0);
  });
});

describe("the longest match among some workers", () => {
  it("is what looking at every length finds, for any holdings and any workers asked", () => {
    const prompt = "abcdefgh".repeat(4);
    const held = fc.array(fc.nat(8), { minLength: 5, maxLength: 5 });
    const asked = fc.uniqueArray(fc.nat(4), { maxLength: 5 });
    fc.assert(
      fc.property(held, asked, fc.boolean(), (blocks, numbers, events) => {
        const bench = new Bench({ workers: 5, selection: { cache_threshold: 0 } });
        const ids = Array.from({ length: 32 }, (_, index) => index + 1);
        for (const [index, count] of blocks.entries()) {
          if (count === 0) continue;
          if (events) bench.stored(index, tokens(1, 4 * count));
          else bench.own(text(prompt.slice(0, 4 * count)), index);
        }
        const { selection, hasher } = bench;
        const { committed, events: published } = bench.selector;
        const lookup = new OwnershipLookup({ selection, hasher, committed, events: published });
        const content = events ? tokens(1, ids.length) : text(prompt);
        const prefix = lookup.read(lookup.hash(DEMO, events ? "events" : "committed", content));
        expect(prefix).not.to.equal(undefined);
        if (prefix === undefined) return;
        const among = numbers.toSorted((a, b) => a - b).map((index) => bench.worker(index));
        const found = lookup.find(prefix, among, bench.now);
        const longest = Math.max(0, ...numbers.map((index) => blocks[index] ?? 0));
        expect(found.matchedBlocks).to.equal(longest);
        const owners = among.filter(
          (worker) => longest > 0 && blocks[bench.numberOf(worker)] === longest,
        );
        expect(found.owners).to.deep.equal(owners);
        const known = Math.max(...blocks) > 0;
        if (longest === 0) expect(found.miss).to.equal(known ? "no_usable_owner" : "no_owner");
      }),
    );
  });
});

interface Live {
  readonly generation: number;
  readonly tokens: number;
  readonly worker: Worker;
  readonly end: () => void;
}

describe("load accounting under random fleets", () => {
  it("always equals the live requests of each generation, whoever is added, removed or replaced", () => {
    const step = fc.oneof(
      { weight: 8, arbitrary: fc.record({ kind: fc.constant("select"), at: fc.nat(5) }) },
      { weight: 6, arbitrary: fc.record({ kind: fc.constant("end"), at: fc.nat(40) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("remove"), at: fc.nat(3) }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("add"), at: fc.nat(3) }) },
    );
    const policies = fc.constantFrom("cache_aware", "power_of_two", "least_load", "round_robin");
    const budgets = fc.nat(2);
    fc.assert(
      fc.property(policies, budgets, fc.array(step, { maxLength: 60 }), (policy, owners, steps) => {
        const bench = new Bench({
          policy: policy as "cache_aware",
          selection: { max_cached_owners_per_prefix: owners },
        });
        const live: Live[] = [];
        for (const { kind, at } of steps) {
          if (kind === "add") bench.add({ url: url(at) });
          else if (kind === "remove") bench.registry.remove(url(at));
          else if (kind === "select") {
            const prompt = text(`${"abcdef"[at] ?? ""}aaabbbb`);
            const selection = bench.select({ prompt, outputLimitTokens: at });
            if (!selection.ok) continue;
            const { worker, claim, booking, trace } = selection;
            const load: Disposer = worker.runtime.holdLoad();
            claim();
            const { generation } = worker.identity;
            const end = (): void => {
              load();
              booking();
              if (trace !== undefined) bench.selector.ended(trace, true, NO_REPORT, bench.now);
            };
            live.push({ generation, tokens: 2 + at, worker, end });
          } else if (live.length > 0) {
            const [ended] = live.splice(at % live.length, 1);
            ended?.end();
            ended?.end();
          }
          const present = new Set<number>();
          for (const { identity, runtime } of bench.registry.all()) {
            present.add(identity.generation);
            const own = live.filter(({ generation }) => generation === identity.generation);
            const sum = own.reduce((total, request) => total + request.tokens, 0);
            expect(bench.selector.bookings.reservedTokens(identity.generation)).to.equal(sum);
            expect(bench.selector.bookings.claims(identity.generation)).to.equal(0);
            expect(runtime.liveLoad).to.equal(own.length);
          }
          for (const { generation } of live) {
            if (present.has(generation)) continue;
            expect(bench.selector.bookings.reservedTokens(generation)).to.equal(0);
            expect(bench.selector.committed.blocksOf(generation)).to.equal(0);
          }
        }
      }),
    );
  });
});

describe("the budget of owners", () => {
  it("is never exceeded, with spills, cold bursts, failures and cooldowns racing", () => {
    const step = fc.oneof(
      { weight: 8, arbitrary: fc.record({ kind: fc.constant("select"), at: fc.nat(100) }) },
      { weight: 4, arbitrary: fc.record({ kind: fc.constant("succeed"), at: fc.nat(40) }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("fail"), at: fc.nat(40) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant("heat"), at: fc.nat(255) }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("wait"), at: fc.nat(8) }) },
    );
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.constantFrom(0, 5),
        fc.array(step, { minLength: 20, maxLength: 80 }),
        (owners, cooldown, steps) => {
          const bench = new Bench({
            workers: 8,
            selection: {
              max_cached_owners_per_prefix: owners,
              cache_owner_spill_cooldown_secs: cooldown,
              engine_load: true,
              balance_abs_threshold: 3,
            },
          });
          let hot = 0;
          const live: ReturnType<Bench["chosen"]>[] = [];
          for (const { kind, at } of steps) {
            if (kind === "heat") hot = at;
            if (kind === "wait") bench.passSeconds(at);
            const heat = Array.from({ length: 8 }, (_, bit) => ((hot >> bit) & 1 ? 0.95 : 0.3));
            bench.report(...heat);
            if (kind === "select") {
              const selection = bench.chosen({ prompt: PROMPT });
              selection.worker.runtime.holdLoad();
              selection.claim();
              live.push(selection);
            } else if (kind === "succeed" || kind === "fail") {
              const [ended] = live.splice(at % Math.max(1, live.length), 1);
              if (ended !== undefined && kind === "succeed") bench.succeed(ended);
              else ended?.booking();
            }
            const possible = new Set([...bench.owners(PROMPT), ...live.map((one) => one.at)]);
            expect(possible.size).to.be.at.most(owners);
          }
        },
      ),
    );
  });

  it("leaves prefixes with calm owners alone when one worker of eight is hot", () => {
    const usage = fc.double({ min: 0, max: 0.9, noNaN: true });
    fc.assert(
      fc.property(
        fc.array(usage, { minLength: 8, maxLength: 8 }),
        fc.nat(7),
        fc.array(fc.nat(7), { minLength: 12, maxLength: 12 }),
        fc.array(fc.nat(6), { minLength: 8, maxLength: 8 }),
        (usages, hot, homes, loads) => {
          const bench = new Bench({
            workers: 8,
            selection: { max_cached_owners_per_prefix: 2, engine_load: true },
          });
          const prompts = homes.map((home, index) => {
            const prompt = text(`${"abcdefghijkl"[index] ?? ""}aaabbbb`);
            bench.own(prompt, home);
            return { prompt, home };
          });
          for (const [index, count] of loads.entries()) bench.load(index, count);
          const heated = usages.map((calm, index) =>
            index === hot ? [rank(0.99, { waiting: 20 })] : [rank(calm)],
          );
          bench.load(hot, 100);
          bench.reportRanks(heated);
          for (const { prompt, home } of prompts) {
            if (home === hot) continue;
            expect(bench.where({ prompt })).to.equal(`w${String(home)} cached_owner_hold`);
          }
        },
      ),
    );
  });
});

// May a prefix get one more holder now? Every transition of the two stores, their bounds, and any
// history against a naive table of transitions.

import { expect } from "chai";
import fc from "fast-check";
import { modelId } from "../../../extproc/core/model/ids.js";
import type { MonotonicMs } from "../../../extproc/core/model/time.js";
import type { BlockKeys } from "../../../extproc/core/prefixes/block-keys.js";
import { CommittedIndex } from "../../../extproc/core/prefixes/committed-index.js";
import {
  PrefixProtections,
  sameProtections,
  type ProtectionEntry,
  type ProtectionPhase,
  type SeedClaim,
  type SeedTarget,
  type Spill,
} from "../../../extproc/core/prefixes/protections.js";
import { at, hasher, keysOf, range } from "./support.js";

const COOLDOWN_MS = 5_000;
const W1 = "http://w1:1";
const W2: SeedTarget = { url: "http://w2:1", revision: 3 };
const KEYS = keysOf(...range(1, 8));

class Bench {
  readonly protections: PrefixProtections;

  constructor(
    cooldownMs = COOLDOWN_MS,
    limits: { maxSeeds?: number; maxReplications?: number } = {},
  ) {
    this.protections = new PrefixProtections({ cooldownMs, ...limits });
  }

  claim(seconds: number, keys = KEYS, target = W2): SeedClaim | undefined {
    return this.protections.claimSeed(keys, keys.count, target, at(seconds));
  }

  /** A claim that must succeed. */
  claimed(seconds: number, keys = KEYS, target = W2): SeedClaim {
    const claim = this.claim(seconds, keys, target);
    if (claim === undefined) throw new Error("the claim was refused");
    return claim;
  }

  /** A spill that chooses `url` when it may choose. */
  spill(
    seconds: number,
    url = W1,
    keys = KEYS,
    candidates: readonly string[] = [W1, W2.url],
  ): Spill {
    const set = new Set(candidates);
    return this.protections.spill(keys, keys.count, set, () => url, at(seconds));
  }

  owner(seconds: number, keys = KEYS): string | undefined {
    return this.protections.provisionalOwner(keys, keys.count, at(seconds));
  }

  phases(seconds: number, keys = KEYS): ProtectionPhase[] {
    return this.protections.snapshot([keys], at(seconds)).map(({ phase }) => phase);
  }
}

const REFUSED: Spill = { kind: "refused" };

describe("PrefixProtections: spills", () => {
  it("sends the first spill to a new owner, and lets later ones of the cooldown join it", () => {
    const bench = new Bench();
    expect(bench.spill(0)).to.deep.equal({ kind: "new", owner: W1 });
    expect(bench.spill(4.999, W2.url)).to.deep.equal({ kind: "joined", owner: W1 });
    // Joining keeps the time of the first one.
    expect(bench.spill(5, W2.url)).to.deep.equal({ kind: "new", owner: W2.url });
    expect(bench.spill(9.9)).to.deep.equal({ kind: "joined", owner: W2.url });
    expect(bench.protections.entries).to.equal(1);
  });

  it("chooses anew, from now on, when the recent owner is no candidate", () => {
    const bench = new Bench();
    bench.spill(0);
    expect(bench.spill(3, W2.url, KEYS, [W2.url])).to.deep.equal({ kind: "new", owner: W2.url });
    expect(bench.spill(7.9)).to.deep.equal({ kind: "joined", owner: W2.url });
  });

  it("names the provisional owner until it is as old as the cooldown, for its own prefix only", () => {
    const bench = new Bench();
    expect(bench.owner(0)).to.equal(undefined);
    bench.spill(0);
    expect([bench.owner(0), bench.owner(4.999), bench.owner(5)]).to.deep.equal([W1, W1, undefined]);
    expect(bench.owner(1, keysOf(...range(1, 7)))).to.equal(undefined);
  });

  it("remembers and refuses nothing without a cooldown", () => {
    const bench = new Bench(0);
    expect(bench.spill(0)).to.deep.equal({ kind: "new", owner: W1 });
    expect(bench.spill(0, W2.url)).to.deep.equal({ kind: "new", owner: W2.url });
    expect([bench.owner(0), bench.protections.entries]).to.deep.equal([undefined, 0]);
    expect(bench.claim(0)).to.equal(undefined);
    expect(bench.protections.seeds).to.equal(0);
  });

  it("does not choose for a spill that joins or is refused", () => {
    const bench = new Bench();
    const never = (): string => expect.fail("chosen");
    const spill = (): Spill => bench.protections.spill(KEYS, 8, new Set([W1]), never, at(1));
    bench.spill(0);
    expect(spill().kind).to.equal("joined");
    const seeded = new Bench();
    seeded.claimed(0);
    expect(seeded.protections.spill(KEYS, 8, new Set([W1]), never, at(1))).to.deep.equal(REFUSED);
  });
});

describe("PrefixProtections: seeds", () => {
  it("P-12 refuses a seed on a prefix that was spilled 4 s ago, keeps the spill, and grants it after 6 s", () => {
    const bench = new Bench();
    bench.spill(0);
    expect(bench.claim(4)).to.equal(undefined);
    expect([bench.owner(4), bench.protections.seeds]).to.deep.equal([W1, 0]);
    expect(bench.phases(4)).to.deep.equal([]);
    expect(bench.claim(6)).to.not.equal(undefined);
    expect([bench.owner(6), bench.phases(6)]).to.deep.equal([undefined, ["active"]]);
  });

  it("P-13 lets exactly one of a spill and a seed win on each of 32 prefixes, with 2 owners at most", () => {
    const bench = new Bench(60_000);
    const committed = new CommittedIndex({ maxBytesPerWorker: 100_000, ttlMs: 600_000 });
    const urls = [W1, W2.url, "http://w3:1"];
    for (const prefix of range(1, 32)) {
      const keys = keysOf(prefix, prefix + 1);
      committed.commit(keys, 0, at(0));
      let winners = 0;
      const race = [
        (): void => {
          const spill = bench.spill(0, urls[2], keys, urls);
          if (spill.kind === "refused") return;
          winners += 1;
          committed.commit(keys, urls.indexOf(spill.owner), at(0));
        },
        (): void => {
          const claim = bench.claim(0, keys);
          if (claim === undefined) return;
          winners += 1;
          claim.markSuccess();
          claim.drop(true, at(0));
          committed.commit(keys, 1, at(0));
        },
      ];
      if (prefix % 2 === 0) race.reverse();
      for (const run of race) run();
      expect(winners).to.equal(1);
      expect(committed.match(keys, at(1)).owners).to.have.length(2);
    }
    expect([bench.protections.entries, bench.protections.seeds]).to.deep.equal([32, 16]);
  });

  it("refuses spills and further seeds while a seed is active, however long that is", () => {
    const bench = new Bench();
    bench.claimed(0);
    for (const seconds of [0, 4, 6, 1_000]) {
      expect([bench.spill(seconds), bench.claim(seconds)]).to.deep.equal([REFUSED, undefined]);
      bench.protections.collect(at(seconds));
      expect(bench.phases(seconds)).to.deep.equal(["active"]);
    }
    expect(bench.owner(1)).to.equal(undefined);
  });

  it("puts a dispatched seed without success into quarantine until it is as old as the cooldown", () => {
    const bench = new Bench();
    bench.claimed(0).drop(true, at(10));
    expect([bench.spill(14.999), bench.claim(14.999)]).to.deep.equal([REFUSED, undefined]);
    expect(bench.phases(14.999)).to.deep.equal(["failure_quarantine"]);
    expect(bench.phases(12, keysOf(...range(1, 12)))).to.deep.equal(["failure_quarantine"]);
    expect(bench.phases(12, keysOf(...range(91, 94)))).to.deep.equal([]);
    expect(bench.phases(15)).to.deep.equal([]);
    expect(bench.claim(16)).to.not.equal(undefined);
  });

  it("lets a successful seed cool down, however often success was marked, and a spill follow it", () => {
    const bench = new Bench();
    const claim = bench.claimed(0);
    claim.markSuccess();
    claim.markSuccess();
    expect(bench.phases(1)).to.deep.equal(["active"]);
    claim.drop(true, at(2));
    expect(bench.phases(3)).to.deep.equal(["success_cooldown"]);
    expect([bench.spill(6.9), bench.claim(6.9)]).to.deep.equal([REFUSED, undefined]);
    expect(bench.spill(7)).to.deep.equal({ kind: "new", owner: W1 });
    expect(bench.phases(7)).to.deep.equal([]);
    expect(bench.claim(8)).to.equal(undefined);
  });

  it("leaves nothing of a seed that was never dispatched: seed and spill are possible at once", () => {
    const bench = new Bench();
    bench.claimed(0).drop(false, at(1));
    expect([bench.protections.seeds, bench.protections.entries]).to.deep.equal([0, 0]);
    expect(bench.phases(1)).to.deep.equal([]);
    bench.claimed(1).drop(false, at(1));
    expect(bench.spill(1)).to.deep.equal({ kind: "new", owner: W1 });
  });

  it("ends a claim once: a second drop, or a late mark, changes nothing, not even a successor", () => {
    const bench = new Bench();
    const first = bench.claimed(0);
    first.drop(true, at(1));
    first.markSuccess();
    first.drop(false, at(2));
    expect(bench.phases(3)).to.deep.equal(["failure_quarantine"]);
    const second = bench.claimed(7);
    first.drop(true, at(8));
    expect(bench.phases(9)).to.deep.equal(["active"]);
    second.drop(false, at(9));
    second.markSuccess();
    second.drop(true, at(9));
    expect([bench.phases(9), bench.protections.entries]).to.deep.equal([[], 0]);
  });

  it("keeps 64 seeds and refuses the 65th, until one of them has cooled down or vanished", () => {
    const bench = new Bench();
    const claims = range(1, 64).map((prefix) => bench.claimed(0, keysOf(prefix)));
    expect(bench.claim(1, keysOf(65))).to.equal(undefined);
    expect([bench.protections.seeds, bench.protections.entries]).to.deep.equal([64, 64]);
    claims[0]?.drop(true, at(1));
    expect(bench.claim(5.9, keysOf(65))).to.equal(undefined);
    expect(bench.claim(6, keysOf(65))).to.not.equal(undefined);
    expect(bench.claim(6, keysOf(66))).to.equal(undefined);
    claims[1]?.drop(false, at(6));
    expect(bench.claim(6, keysOf(66))).to.not.equal(undefined);
    expect(bench.protections.seeds).to.equal(64);
  });
});

describe("PrefixProtections: the snapshot of a request", () => {
  it("lists the seeds on the request's own prefix and on shorter ones, no siblings, no longer ones", () => {
    const bench = new Bench();
    bench.claimed(0, keysOf(1, 2, 3, 4));
    bench.claimed(0, keysOf(1, 2, 9));
    bench.claimed(0, keysOf(1, 2, 3, 4, 5));
    const count = (...blocks: number[]): number => bench.phases(1, keysOf(...blocks)).length;
    expect([count(1, 2, 3, 4), count(1, 2, 3, 4, 6), count(1, 2, 3, 4, 5, 6)]).to.deep.equal([
      1, 1, 2,
    ]);
    expect([count(1, 2, 3), count(2, 3, 4), count(), count(1, 2, 9, 9)]).to.deep.equal([
      0, 0, 0, 1,
    ]);
    const other = hasher.tokens(modelId("k4"), [1, 2, 3, 4], 1, 100);
    expect(bench.phases(1, other)).to.deep.equal([]);
  });

  it("takes several chains of one request: a seed on its text and one on its tokens", () => {
    const bench = new Bench();
    const text = hasher.text(modelId("k3"), "abcdefgh", 4, 10);
    bench.claimed(0, keysOf(1, 2));
    bench.claimed(0, text, { url: W1, revision: 1 });
    const snapshot = (...chains: BlockKeys[]): readonly ProtectionEntry[] =>
      bench.protections.snapshot(chains, at(1));
    expect(snapshot(text, keysOf(1, 2, 3))).to.deep.equal([
      { phase: "active", target: { url: W1, revision: 1 } },
      { phase: "active", target: W2 },
    ]);
    expect([snapshot(text).length, snapshot().length]).to.deep.equal([1, 0]);
  });

  it("keeps all of one worker's, sorted by url, revision and phase", () => {
    const bench = new Bench();
    const on = (depth: number, target: SeedTarget): SeedClaim =>
      bench.claimed(0, keysOf(...range(1, depth)), target);
    on(5, { url: "b", revision: 1 }).drop(true, at(0));
    on(4, { url: "b", revision: 10 });
    const success = on(3, { url: "b", revision: 1 });
    success.markSuccess();
    success.drop(true, at(0));
    on(2, { url: "b", revision: 1 });
    on(1, { url: "a", revision: 20 });
    const listed = bench.protections.snapshot([KEYS], at(1));
    expect(listed.map(({ phase, target }) => [target.url, target.revision, phase])).to.deep.equal([
      ["a", 20, "active"],
      ["b", 1, "active"],
      ["b", 1, "success_cooldown"],
      ["b", 1, "failure_quarantine"],
      ["b", 10, "active"],
    ]);
    expect(sameProtections(listed, [...listed])).to.equal(true);
    expect(sameProtections(listed, bench.protections.snapshot([KEYS], at(2)))).to.equal(true);
    expect(sameProtections(listed, bench.protections.snapshot([KEYS], at(6)))).to.equal(false);
  });

  it("tells two snapshots apart by target, by revision, by phase and by length", () => {
    const entry = (url: string, revision: number, phase: ProtectionPhase): ProtectionEntry => ({
      phase,
      target: { url, revision },
    });
    const one = [entry("a", 1, "active")];
    expect(sameProtections([], [])).to.equal(true);
    expect(sameProtections(one, [entry("a", 1, "active")])).to.equal(true);
    for (const other of [
      [],
      [entry("b", 1, "active")],
      [entry("a", 2, "active")],
      [entry("a", 1, "success_cooldown")],
      [...one, ...one],
    ]) {
      expect(sameProtections(one, other)).to.equal(false);
    }
  });
});

describe("PrefixProtections: what is kept", () => {
  it("forgets a seed's protection when it is older than the cooldown, its history after a minute", () => {
    const bench = new Bench();
    bench.claimed(0).drop(true, at(0));
    bench.protections.collect(at(5));
    expect(bench.protections.seeds).to.equal(1);
    bench.protections.collect(at(5.001));
    expect([bench.protections.seeds, bench.protections.entries]).to.deep.equal([0, 1]);
    bench.protections.collect(at(60));
    expect(bench.protections.entries).to.equal(1);
    bench.protections.collect(at(60.001));
    expect(bench.protections.entries).to.equal(0);
  });

  it("remembers for four cooldowns when those are more than a minute, and active seeds for ever", () => {
    const bench = new Bench(20_000);
    bench.spill(0, W1, keysOf(1));
    bench.claimed(0, keysOf(2));
    bench.protections.collect(at(80));
    expect(bench.protections.entries).to.equal(2);
    bench.protections.collect(at(80.001));
    expect([bench.protections.entries, bench.protections.seeds]).to.deep.equal([1, 1]);
  });

  it("forgets the oldest spill over its limit, and no seed that still binds", () => {
    const bench = new Bench(COOLDOWN_MS, { maxReplications: 3 });
    bench.claimed(0, keysOf(1));
    bench.spill(0, W1, keysOf(2));
    bench.spill(0, W1, keysOf(3));
    expect([bench.owner(1, keysOf(2)), bench.protections.entries]).to.deep.equal([W1, 3]);
    bench.spill(1, W1, keysOf(4));
    expect([bench.owner(1, keysOf(2)), bench.owner(1, keysOf(3))]).to.deep.equal([undefined, W1]);
    expect(bench.phases(1, keysOf(1))).to.deep.equal(["active"]);
    expect(bench.spill(1, W1, keysOf(1))).to.deep.equal(REFUSED);
    expect(bench.protections.entries).to.equal(3);
  });
});

/** The table of transitions, on one entry per prefix. */
class NaiveTable {
  readonly entries = new Map<
    string,
    { state: ProtectionPhase | "ordinary"; owner: string; time: number }
  >();

  #binds(id: string, now: number): boolean {
    const entry = this.entries.get(id);
    return entry !== undefined && (entry.state === "active" || now - entry.time < COOLDOWN_MS);
  }

  claim(id: string, owner: string, now: number, seedsMax: number): boolean {
    const seeds = [...this.entries.entries()].filter(
      ([key, { state }]) => state !== "ordinary" && this.#binds(key, now),
    );
    if (seeds.length >= seedsMax || this.#binds(id, now)) return false;
    this.entries.set(id, { state: "active", owner, time: now });
    return true;
  }

  spill(id: string, owner: string, candidates: readonly string[], now: number): string {
    const entry = this.entries.get(id);
    if (entry !== undefined && this.#binds(id, now)) {
      if (entry.state !== "ordinary") return "refused";
      if (candidates.includes(entry.owner)) return `joined ${entry.owner}`;
    }
    this.entries.set(id, { state: "ordinary", owner, time: now });
    return `new ${owner}`;
  }

  drop(id: string, success: boolean, dispatched: boolean, now: number): void {
    const entry = this.entries.get(id);
    if (entry === undefined) return;
    if (!success && !dispatched) this.entries.delete(id);
    else {
      entry.state = success ? "success_cooldown" : "failure_quarantine";
      entry.time = now;
    }
  }

  snapshot(prompt: readonly number[], now: number): string[] {
    return range(1, prompt.length).flatMap((count) => {
      const id = prompt.slice(0, count).join();
      const entry = this.entries.get(id);
      if (entry === undefined || entry.state === "ordinary" || !this.#binds(id, now)) return [];
      return [`${entry.owner} ${entry.state}`];
    });
  }

  owner(id: string, now: number): string | undefined {
    const entry = this.entries.get(id);
    return entry?.state === "ordinary" && this.#binds(id, now) ? entry.owner : undefined;
  }
}

describe("PrefixProtections against the table of transitions", () => {
  const prompt = fc.array(fc.nat(1), { minLength: 1, maxLength: 3 });
  const url = fc.constantFrom("a", "b", "c");
  const step = fc.oneof(
    fc.record({ kind: fc.constant("claim" as const), prompt, url }),
    fc.record({
      kind: fc.constant("spill" as const),
      prompt,
      url,
      candidates: fc.subarray(["a", "b", "c"]),
    }),
    fc.record({
      kind: fc.constant("drop" as const),
      which: fc.nat(20),
      success: fc.boolean(),
      dispatched: fc.boolean(),
    }),
    fc.record({ kind: fc.constant("wait" as const), seconds: fc.nat(4) }),
    fc.constant({ kind: "collect" as const }),
  );
  const seedsMax = 4;

  it("does the same after any history", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const bench = new Bench(COOLDOWN_MS, { maxSeeds: seedsMax });
        const naive = new NaiveTable();
        const active: { id: string; claim: SeedClaim }[] = [];
        let now = 0;
        const time = (): MonotonicMs => at(now);
        for (const each of steps) {
          if (each.kind === "wait") now += each.seconds;
          else if (each.kind === "collect") bench.protections.collect(time());
          else if (each.kind === "drop") {
            const [ended] = active.splice(each.which % Math.max(1, active.length), 1);
            if (ended === undefined) continue;
            if (each.success) ended.claim.markSuccess();
            ended.claim.drop(each.dispatched, time());
            ended.claim.drop(!each.dispatched, time());
            naive.drop(ended.id, each.success, each.dispatched, now * 1_000);
          } else if (each.kind === "claim") {
            const id = each.prompt.join();
            const target = { url: each.url, revision: 1 };
            const claim = bench.claim(now, keysOf(...each.prompt), target);
            expect(claim !== undefined).to.equal(naive.claim(id, each.url, now * 1_000, seedsMax));
            if (claim !== undefined) active.push({ id, claim });
          } else {
            const keys = keysOf(...each.prompt);
            const spill = bench.spill(now, each.url, keys, each.candidates);
            const said = spill.kind === "refused" ? "refused" : `${spill.kind} ${spill.owner}`;
            const id = each.prompt.join();
            expect(said).to.equal(naive.spill(id, each.url, each.candidates, now * 1_000));
          }
          for (const one of [[0], [1, 0], [0, 1, 1, 0]]) {
            const keys = keysOf(...one);
            const listed = bench.protections.snapshot([keys], time());
            const said = listed.map(({ target, phase }) => `${target.url} ${phase}`);
            expect(said.sort()).to.deep.equal(naive.snapshot(one, now * 1_000).sort());
            expect(bench.owner(now, keys)).to.equal(naive.owner(one.join(), now * 1_000));
          }
          expect(bench.protections.seeds).to.be.at.most(seedsMax);
        }
      }),
      { numRuns: 500 },
    );
  });
});

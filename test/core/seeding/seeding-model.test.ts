// Goal: whatever happens in whatever order, seeding keeps its promises. Method: random histories of
// ordinary requests, spills, seeds, engines that report, repeat themselves, fall silent and publish what
// they hold, workers that are replaced, removed and unhealthy, and requests that just vanish; after each
// step a book that knows only what happened is compared with what the code says:
//   one seed per partition; one winner per prefix and cooldown; a lease lives exactly as long as its
//   request; who has no success is never committed; no ordinary request meets the target of a seed; and
//   what is sent goes to a clean worker with room, by a sample not older than 30 s.

import { expect } from "chai";
import fc from "fast-check";
import type { PromptContent } from "../../../extproc/core/identity/prompt.js";
import type { Seed } from "../../../extproc/core/seeding/seed.js";
import type { OwnershipSource } from "../../../extproc/core/model/selection-config.js";
import type { RankReading } from "../../../extproc/core/workers/telemetry-reading.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { DEMO, POOL, tokens, url, type Bench } from "../selection/support.js";
import { free, FULL, r, SeedBench } from "./support.js";

const COOLDOWN_MS = 5_000;
const WORKERS = 4;
/** A prefix, what goes on from it, a sibling, and something else. */
const PROMPTS = [tokens(1, 8), tokens(1, 12), tokens(1, 4), tokens(91, 98)];
const SPILLS = ["owner_pressure_spill", "excluded_owner_spill", "no_suitable_owner_spill"];

const ROOMS: readonly (RankReading | undefined)[] = [
  FULL,
  free(8),
  free(1),
  r(3, 0, 0.95, 0.2, 8),
  r(2, 1, 0.1, 0.2, 8),
  undefined,
];

const which = fc.nat(9);
const prompt = fc.nat(PROMPTS.length - 1);
const worker = fc.nat(WORKERS - 1);
const mask = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(15));
const STEP = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant("ask" as const), prompt, mask }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant("end" as const), which, success: fc.boolean() }),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant("seed" as const),
      prompt,
      mask,
      sendsAtOnce: fc.boolean(),
    }),
  },
  { weight: 8, arbitrary: fc.constant({ kind: "send" as const }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant("endSeed" as const), success: fc.boolean() }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("report" as const),
      rooms: fc.array(fc.nat(ROOMS.length - 1), { minLength: WORKERS, maxLength: WORKERS }),
    }),
  },
  { weight: 4, arbitrary: fc.constant({ kind: "incident" as const }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("publish" as const), worker, prompt }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("clear" as const), worker }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("wait" as const),
      seconds: fc.constantFrom(1, 2, 3, 5, 6, 31),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom("replace" as const, "remove" as const, "sick" as const),
      worker,
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "sweep" as const }) },
);
type Step = typeof STEP extends fc.Arbitrary<infer T> ? T : never;

interface Asked {
  readonly worker: Worker;
  readonly prompt: number;
  readonly selection: ReturnType<Bench["chosen"]>;
  readonly load: () => void;
}

interface Seeding {
  readonly seed: Seed;
  readonly prompt: number;
  /** Key of the prefix that it claimed; undefined = no new owner is made. */
  readonly prefix: string | undefined;
  load: (() => void) | undefined;
}

interface Winner {
  readonly kind: "spill" | "seed";
  /** When it stops to matter is counted from here; undefined = it is under way. */
  since: number | undefined;
}

interface Reported {
  readonly worker: Worker;
  readonly rank: RankReading;
  readonly at: number;
}

class World {
  /** Seeds whose worker was the last usable one when somebody asked. */
  readonly #shared = new WeakSet<Seed>();
  readonly bench: SeedBench;
  readonly asked: Asked[] = [];
  seeding: Seeding | undefined;
  readonly winners = new Map<string, Winner>();
  readonly reported = new Map<string, Reported>();
  /** Generation and prompt of every answer that ended well. */
  readonly successes = new Set<string>();
  sent = 0;
  made = 0;

  constructor(ownership: OwnershipSource, budget: number) {
    this.bench = new SeedBench({
      workers: WORKERS,
      ownership,
      selection: { max_cached_owners_per_prefix: budget, engine_load: true },
    });
  }

  step(step: Step): void {
    const { bench } = this;
    switch (step.kind) {
      case "ask": {
        this.#ask(step.prompt, excluded(step.mask));
        return;
      }
      case "end": {
        this.#end(step.which, step.success);
        return;
      }
      case "seed":
        this.#seed(step.prompt, excluded(step.mask));
        if (step.sendsAtOnce) this.#send();
        return;
      case "send": {
        this.#send();
        return;
      }
      case "endSeed": {
        this.#endSeed(step.success);
        return;
      }
      case "report": {
        this.#report(step.rooms.map((room) => ROOMS[room]));
        return;
      }
      case "incident":
        if (bench.registry.get(url(0)) !== undefined) bench.stored(0, PROMPTS[0] ?? tokens(1, 8));
        this.#own(0, 0);
        {
          this.#report(
            [...bench.registry.all()].map(({ identity }) =>
              identity.url === url(0) ? FULL : free(8),
            ),
          );
          return;
        }
      case "publish":
        if (bench.registry.get(url(step.worker)) !== undefined) {
          bench.stored(step.worker, promptOf(step.prompt));
        }
        return;
      case "clear": {
        const at = bench.registry.get(url(step.worker));
        if (at === undefined) return;
        bench.selector.events.cleared({
          ...{ generation: at.identity.generation, rank: 0, model: DEMO },
        });
        return;
      }
      case "wait":
        bench.passSeconds(step.seconds);
        return;
      case "replace":
        bench.add({ url: url(step.worker) });
        return;
      case "remove":
        bench.registry.remove(url(step.worker));
        return;
      case "sick":
        if (bench.registry.get(url(step.worker)) !== undefined) {
          bench.registry.recordHealth(url(step.worker), false);
        }
        return;
      case "sweep":
        bench.selector.sweep(bench.now);
        return;
    }
  }

  /** What must hold at any time. */
  check(): void {
    const { bench, seeding } = this;
    const { leases } = bench.seeder;
    const worker = seeding?.seed.worker;
    expect([...leases.all()].map((lease) => lease.worker)).to.deep.equal(
      worker === undefined ? [] : [worker],
    );
    expect(leases.count(POOL)).to.equal(seeding === undefined ? 0 : 1);
    for (const { identity } of bench.registry.all()) {
      const leased = bench.selector.bookings.leaseOf(identity.generation) !== undefined;
      expect(leased).to.equal(identity.generation === worker?.identity.generation);
    }
    const active = bench.selector.protections
      .list(bench.now)
      .filter(({ phase }) => phase === "active");
    const expected = seeding?.prefix === undefined ? [] : [worker?.identity.url];
    expect(active.map(({ target }) => target.url)).to.deep.equal(expected);
    for (const [index, prompt] of PROMPTS.entries()) {
      const match = bench.selector.committed.match(bench.keysOf(prompt), bench.now);
      if (match.blocks < bench.keysOf(prompt).count) continue;
      for (const { generation } of match.owners) {
        expect(this.#succeeded(generation, index), "committed without a success").to.equal(true);
      }
    }
  }

  /** Everything ends, each in its own way. */
  finish(): void {
    while (this.asked.length > 0) this.#end(0, true);
    this.#endSeed(false);
    this.check();
    const { bookings, pending } = this.bench.selector;
    expect([bookings.size, pending.size]).to.deep.equal([0, 0]);
    for (const { runtime } of this.bench.registry.all()) expect(runtime.liveLoad).to.equal(0);
  }

  #ask(prompt: number, excludedWorkerUrls: readonly string[]): void {
    const { bench, seeding } = this;
    const selection = bench.select({ prompt: promptOf(prompt), excludedWorkerUrls });
    if (!selection.ok) return;
    const { worker, decision } = selection;
    const usable = [...bench.registry.all()].filter((one) => one.usable(bench.now));
    // The last usable worker is shared at once, and stays so.
    if (seeding !== undefined && usable.length === 1 && usable[0] === seeding.seed.worker) {
      this.#shared.add(seeding.seed);
    }
    // Only where a new owner is made is the worker kept for the seed alone.
    const isKept = seeding?.prefix !== undefined && !this.#shared.has(seeding.seed);
    const kept = isKept ? seeding.seed.worker : undefined;
    expect(worker.identity.generation, "an ordinary request met a seed").not.to.equal(
      kept?.identity.generation,
    );
    const prefix = prefixOf(prompt, decision.matchedBlocks);
    if (SPILLS.includes(decision.result)) this.#spilled(prefix, prompt);
    if (seeding?.prefix !== undefined && begins(seeding.prefix, prompt)) {
      expect(decision.result).to.match(/hold$/);
    }
    const load = worker.runtime.holdLoad();
    selection.claim();
    const at = bench.numberOf(worker);
    this.asked.push({ worker, prompt, selection: { ...selection, at }, load });
  }

  /** A spill that opened up a new worker, unless one younger than the cooldown was joined. */
  #spilled(prefix: string, prompt: number): void {
    const last = this.winners.get(prefix);
    if (last?.kind === "seed") expect(this.#isOver(last), "a spill beside a seed").to.equal(true);
    const { seeding } = this;
    if (seeding?.prefix !== undefined) {
      expect(begins(seeding.prefix, prompt), "a spill beneath a seed").to.equal(false);
    }
    this.winners.set(prefix, { kind: "spill", since: this.bench.now });
  }

  #end(which: number, success: boolean): void {
    const [ended] = this.asked.splice(which % Math.max(1, this.asked.length), 1);
    if (ended === undefined) return;
    const { worker, prompt, selection, load } = ended;
    load();
    if (success) {
      this.successes.add(`${String(worker.identity.generation)} ${String(prompt)}`);
      this.bench.succeed(selection);
    } else selection.booking();
  }

  #seed(prompt: number, excludedWorkerUrls: readonly string[]): void {
    const { bench } = this;
    const seeding = bench.try({ prompt: promptOf(prompt), excludedWorkerUrls });
    if (!seeding.ok) return;
    expect(this.seeding, "two seeds in one partition").to.equal(undefined);
    const { seed } = seeding;
    expect(excludedWorkerUrls).not.to.include(seed.worker.identity.url);
    const expands = seed.plan.claim !== undefined;
    const prefix = expands ? prefixOf(prompt, seed.plan.ownership.blocks) : undefined;
    if (prefix !== undefined) {
      const last = this.winners.get(prefix);
      if (last !== undefined) expect(this.#isOver(last), "two winners").to.equal(true);
      this.winners.set(prefix, { kind: "seed", since: undefined });
      expect(seed.plan.ownership.owners).not.to.include(seed.worker);
      this.made += 1;
    }
    this.seeding = { seed, prompt, prefix, load: undefined };
  }

  #send(): void {
    const { bench, seeding } = this;
    if (seeding === undefined || seeding.load !== undefined) return;
    const { worker } = seeding.seed;
    if (seeding.seed.verify(bench.now) !== undefined) {
      this.#endSeed(false);
      return;
    }
    const last = this.reported.get(worker.identity.url);
    expect(last?.worker, "sent without a sample of this very worker").to.equal(worker);
    expect(bench.registry.get(worker.identity.url)).to.equal(worker);
    expect(worker.healthy).to.equal(true);
    if (last === undefined) return;
    expect(bench.now - last.at).to.be.at.most(30_000);
    const { running, waiting, tokenUsage, maxRunning } = last.rank as Record<string, number>;
    expect([waiting, (tokenUsage ?? 1) < 0.9]).to.deep.equal([0, true]);
    const occupied = Math.max(running ?? 0, worker.runtime.liveLoad);
    expect(occupied).to.be.below(maxRunning ?? 0);
    seeding.load = worker.runtime.holdLoad();
    seeding.seed.dispatched();
    this.sent += 1;
  }

  /** Ends the seed; what was never sent ends without a trace, whatever is said of it. */
  #endSeed(success: boolean): void {
    const { bench, seeding } = this;
    if (seeding === undefined) return;
    const { seed, prompt, prefix, load } = seeding;
    this.seeding = undefined;
    if (load !== undefined && success) seed.markSuccess();
    load?.();
    const end = seed.release(bench.now);
    const outcome = load === undefined ? "undispatched" : success ? "succeeded" : "failed";
    expect(end.outcome).to.equal(outcome);
    if (end.published) {
      expect(outcome).to.equal("succeeded");
      this.successes.add(`${String(seed.worker.identity.generation)} ${String(prompt)}`);
    }
    if (prefix === undefined) return;
    if (outcome === "undispatched") this.winners.delete(prefix);
    else this.winners.set(prefix, { kind: "seed", since: bench.now });
  }

  #own(worker: number, prompt: number): void {
    const target = { prompt: promptOf(prompt), targetWorkerUrl: url(worker) };
    const selection = this.bench.select(target);
    if (!selection.ok) return;
    if (SPILLS.includes(selection.decision.result)) {
      this.#spilled(prefixOf(prompt, selection.decision.matchedBlocks), prompt);
    }
    const { generation } = selection.worker.identity;
    this.successes.add(`${String(generation)} ${String(prompt)}`);
    this.bench.succeed(selection);
  }

  #report(rooms: readonly (RankReading | undefined)[]): void {
    const { bench } = this;
    for (const [index, worker] of [...bench.registry.all()].entries()) {
      const rank = rooms[index];
      if (rank === undefined || !worker.healthy) this.reported.delete(worker.identity.url);
      else this.reported.set(worker.identity.url, { worker, rank, at: bench.now });
    }
    bench.room(rooms);
  }

  #isOver({ since }: Winner): boolean {
    return since !== undefined && this.bench.now - since >= COOLDOWN_MS;
  }

  /** The generation answered this prompt, or one that begins with it, well. */
  #succeeded(generation: number, prompt: number): boolean {
    const prefix = prefixOf(prompt, 0);
    return PROMPTS.some(
      (_, index) =>
        begins(prefix, index) && this.successes.has(`${String(generation)} ${String(index)}`),
    );
  }
}

function promptOf(index: number): PromptContent {
  return PROMPTS[index] ?? tokens(1, 8);
}

function tokensOf(index: number): readonly number[] {
  const prompt = promptOf(index);
  return prompt.kind === "tokens" ? [...prompt.tokens] : [];
}

/** The tokens of so many blocks; 0 = of the whole prompt. */
function prefixOf(prompt: number, blocks: number): string {
  const all = tokensOf(prompt);
  return all.slice(0, blocks === 0 ? all.length : 4 * blocks).join();
}

function begins(prefix: string, prompt: number): boolean {
  return `${tokensOf(prompt).join()},`.startsWith(`${prefix},`);
}

function excluded(mask: number): readonly string[] {
  return [0, 1, 2, 3].filter((bit) => (mask >> bit) & 1).map(url);
}

describe("seeding under random histories", () => {
  for (const ownership of ["events", "committed"] as const) {
    it(`keeps its promises where ${ownership} name the owners`, function () {
      let sent = 0;
      let made = 0;
      fc.assert(
        fc.property(
          fc.constantFrom(2, 8),
          fc.array(STEP, { minLength: 20, maxLength: 60 }),
          (budget, steps) => {
            const world = new World(ownership, budget);
            for (const step of [{ kind: "incident" } as const, ...steps]) {
              world.step(step);
              world.check();
            }
            world.finish();
            sent += world.sent;
            made += world.made;
          },
        ),
        { numRuns: 250 },
      );
      // A run in which hardly anything is seeded would prove nothing.

      expect([sent > 150, made > 150], `${String(sent)} sent, ${String(made)} made`).to.deep.equal([
        true,
        true,
      ]);
    });
  }
});

// An hour of traffic on virtual time at a whole core that seeds: four engines of which one after the other
// drowns, a handful of prompts, ordinary requests, spills and seeds among each other, answers that are
// good, bad, broken off or never come, engines that are not heard, workers that are replaced in the middle
// of a seed. An onlooker keeps its own book from what is sent and answered, and compares it after every
// event: one seed at a time, nobody else at its worker, owners by whole good answers alone, and nothing left
// at the end. The seed is printed; SIM_SEED replays it.

import { expect } from "chai";
import { clusterName, modelId } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { SettlementRecord } from "../../../extproc/core/request/settlement-record.js";
import { Chance } from "../../sim/chance.js";
import { chosenSeed } from "../../sim/chosen-seed.js";
import { EventQueue } from "../../sim/event-queue.js";
import { bytes, NOTHING_LEFT, type Driven } from "../../support/desk.js";
import { GOOD_ANSWER, SeedingDesk } from "../../support/seeding-desk.js";

const MINUTE_MS = 60_000;
const CEILING = 8;
const WORKERS = [1, 2, 3, 4] as const;
const BLOCK_CHARS = 256;
/** Whole blocks of each, that differ from the first character on. */
const PROMPT_BLOCKS = [2, 3, 4] as const;
/** What stands before the text of a message in its canonical form. */
const HEAD_CHARS = "\u0081user\u0082".length;

const promptOf = (index: number): string =>
  String(index).padEnd((PROMPT_BLOCKS[index] ?? 0) * BLOCK_CHARS - HEAD_CHARS, "once upon a time ");

const urlOf = (port: number): string => `http://127.0.0.1:${String(port)}`;

interface Running {
  readonly driven: Driven;
  readonly prompt: number;
  readonly url: string;
  readonly generation: number;
  readonly seed: boolean;
  /** A seed that makes a new owner, not one to an owner that had room. */
  readonly makesOwner: boolean;
  /** The worker was taken out or registered anew meanwhile. */
  replaced: boolean;
}

class Fleet {
  readonly bench = new SeedingDesk({
    workers: WORKERS.map((port) => ({
      url: urlOf(port),
      cluster: `worker_${String(port)}`,
      models: ["demo"],
    })),
    scheduler: { max_concurrent_requests: 200, queue_size: 50, queue_timeout_secs: 20 },
    selection: {
      max_cached_owners_per_prefix: 3,
      cache_owner_spill_cooldown_secs: 5,
      committed_ttl_s: 86_400,
    },
  });
  readonly met = new Map<string, number>();
  readonly #chance: Chance;
  readonly #events = new EventQueue();
  readonly #endMs: number;
  readonly #running = new Set<Running>();
  /** Requests at an engine that Weir knows nothing of. */
  readonly #foreign = new Map<string, number>();
  /** Prompts that a registration of a worker has answered well. */
  readonly #owned = new Map<number, Set<number>>();
  #settled = 0;
  #asked = 0;

  constructor(seed: number, minutes: number) {
    this.#chance = new Chance(seed);
    this.#endMs = minutes * MINUTE_MS;
  }

  run(): void {
    this.#every(400, () => {
      this.#ask();
    });
    this.#every(1_000, () => {
      this.#report();
    });
    this.#every(30_000, () => {
      this.#drown();
    });
    this.#every(45_000, () => {
      this.#replace();
    });
    for (let event = this.#events.next(); event !== undefined; event = this.#events.next()) {
      this.bench.now = monotonicMs(event.atMs);
      event.run();
      this.bench.desk.expire(this.bench.now);
      this.#check();
    }
  }

  get seedsUnderWay(): number {
    return [...this.#running].filter(({ seed }) => seed).length;
  }

  #every(meanMs: number, run: () => void): void {
    const at = this.bench.now + this.#chance.exponential(meanMs);
    if (at > this.#endMs) return;
    this.#events.plan(at, "", () => {
      run();
      this.#every(meanMs, run);
    });
  }

  #ask(): void {
    const { bench } = this;
    const prompt = this.#chance.whole(0, PROMPT_BLOCKS.length - 1);
    const content = promptOf(prompt);
    const stream = this.#chance.once(0.1);
    const body = bytes({ model: "demo", messages: [{ role: "user", content }], stream });
    this.#asked += 1;
    const driven = bench.drive({}, body);
    const verdict = driven.last();
    if (verdict?.kind === "refuse") {
      this.#note(this.#ended());
      return;
    }
    expect(verdict?.kind, "there are more slots than requests").to.equal("route");
    if (verdict?.kind !== "route") return;
    const { url, generation } = verdict.worker.identity;
    const seed = bench.guarded[0] > this.seedsUnderWay;
    const others = [...this.#running].filter((one) => one.seed);
    // The lease of a seed that makes a new owner keeps everybody else of the model away.
    const makers = others.filter((one) => one.makesOwner);
    expect(makers.map((one) => one.generation)).to.not.include(generation);
    if (seed) expect(others, "one seed at a time").to.deep.equal([]);
    const makesOwner = seed && bench.guarded[1].includes("active");
    const running = { driven, prompt, url, generation, seed, makesOwner, replaced: false };
    this.#running.add(running);
    this.#events.plan(bench.now + this.#chance.exponential(6_000), "", () => {
      this.#end(running);
    });
  }

  #end(running: Running): void {
    const { bench } = this;
    const { driven, prompt, generation, seed } = running;
    this.#running.delete(running);
    const draw = this.#chance.unit();
    const good = draw < 0.7;
    if (good) bench.reply(driven);
    else if (draw < 0.8) bench.reply(driven, { error: { message: "no" } }, { status: 500 });
    else if (draw < 0.9) bench.reply(driven, GOOD_ANSWER, {}, false);
    else bench.desk.end(driven.request, false, bench.now);
    const record = this.#ended();
    expect(record.seed?.kind === "seeded").to.equal(seed);
    const present = this.#generations().includes(generation);
    if (good && present && !(seed && running.replaced)) this.#ownedBy(generation).add(prompt);
    this.#note(record);
  }

  #ownedBy(generation: number): Set<number> {
    const owned = this.#owned.get(generation) ?? new Set();
    this.#owned.set(generation, owned);
    return owned;
  }

  #generations(): readonly number[] {
    return Array.from(this.bench.registry.all(), ({ identity }) => identity.generation);
  }

  /** What every engine says; now and then one is not heard, or says what cannot be. */
  #report(): void {
    const reports = this.bench.urls.map((url) => {
      if (this.#chance.once(0.03)) return undefined;
      const all = this.#loadOf(url) + (this.#foreign.get(url) ?? 0);
      const running = Math.min(CEILING, all);
      const maxRunning = this.#chance.once(0.03) ? undefined : CEILING;
      return { running, waiting: all - running, tokenUsage: running / CEILING / 2, maxRunning };
    });
    this.bench.report(...reports);
  }

  #loadOf(url: string): number {
    return [...this.#running].filter((one) => one.url === url).length;
  }

  /** Other traffic falls upon one engine, or leaves them all. */
  #drown(): void {
    this.#foreign.clear();
    if (this.#chance.once(0.8)) this.#foreign.set(urlOf(this.#chance.pick(WORKERS)), 40);
  }

  /** A worker is described anew, or registered anew in its place. */
  #replace(): void {
    const { registry } = this.bench;
    const seeds = [...this.#running].filter((one) => one.seed);
    const [first] = seeds;
    const url =
      first !== undefined && this.#chance.once(0.7) ? first.url : urlOf(this.#chance.pick(WORKERS));
    for (const one of seeds) if (one.url === url) one.replaced = true;
    if (this.#chance.once(0.5)) registry.remove(url);
    const port = Number(url.slice(url.lastIndexOf(":") + 1));
    const cluster = clusterName(`worker_${String(port)}`);
    registry.put({
      ...{ id: cluster, url, cluster, engine: undefined, models: [modelId("demo")] },
      labels: { max_running_requests: undefined, admission_partition: undefined },
      ...{ load_monitor_interval_secs: 10, telemetry_url: url },
      ...{ api_key: undefined, kv_events: undefined },
    });
    registry.recordHealth(url, true);
    for (const generation of [...this.#owned.keys()]) {
      if (!this.#generations().includes(generation)) this.#owned.delete(generation);
    }
  }

  /** The record of the request that has just ended. */
  #ended(): SettlementRecord {
    this.#settled += 1;
    expect(this.bench.settled.length, "each request settles once").to.equal(this.#settled);
    return this.bench.last;
  }

  #note({ seed, selection }: SettlementRecord): void {
    let what = selection?.result ?? "refused";
    if (seed?.kind === "seeded") what = `seed ${seed.outcome} ${String(seed.published)}`;
    else if (seed?.kind === "refused") what = `refused ${seed.refusal}`;
    else if (seed?.kind === "ineligible") what = `ineligible ${seed.reason}`;
    this.met.set(what, (this.met.get(what) ?? 0) + 1);
  }

  #check(): void {
    const { bench } = this;
    const { leases } = bench.core.seeder.explain(bench.now);
    expect(leases.length, "a lease for every seed, and none beyond").to.equal(this.seedsUnderWay);
    expect(this.seedsUnderWay).to.be.at.most(1);
    expect(bench.desk.counts.live).to.equal(this.#running.size);
    for (const generation of this.#generations()) {
      const owned = [...(this.#owned.get(generation) ?? [])];
      const blocks = owned.reduce((sum, prompt) => sum + (PROMPT_BLOCKS[prompt] ?? 0), 0);
      expect(bench.blocksOf(generation), "owners by whole good answers alone").to.equal(blocks);
    }
    expect(this.#asked).to.equal(this.#settled + this.#running.size);
  }
}

describe("an hour of seeds", function () {
  this.timeout(120_000);

  it("never has two seeds in flight, makes owners by whole good answers alone, and leaves nothing", () => {
    const seed = chosenSeed();
    const minutes = process.env["CI"] === undefined ? 60 : 30;
    console.log(`      SIM_SEED=${String(seed)}, ${String(minutes)} minutes`);
    const fleet = new Fleet(seed, minutes);
    fleet.run();
    expect(fleet.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(fleet.bench.guarded[0]).to.equal(0);
    if (process.env["SIM_VERBOSE"] !== undefined) console.log([...fleet.met].sort());
    expect([...fleet.met.keys()]).to.include.members([
      "seed succeeded true",
      "seed failed false",
      "ineligible streaming",
      "refused plan_prefix_protected",
    ]);
  });
});

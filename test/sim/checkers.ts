// What must hold of Weir at every moment? A second, naive book of who waits, runs and has ended, kept
// from what passes between Weir and the simulated Envoy alone. After each event it is compared with
// Weir's own numbers. Every difference is a violation; the first one ends the run.

import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { Bench } from "../support/desk.js";
import { CacheBook } from "./cache-book.js";
import { FairBook, type FairStats } from "./fair-book.js";
import { CLASSES, type FleetState, type WorkerState } from "./fleet.js";
import { PartitionBook, type Entry, type PartitionStats } from "./partition-book.js";

export interface Arrival {
  readonly id: string;
  readonly model: string;
  readonly partition: string;
  /** Rank of the class after the tenant's ceiling. */
  readonly rank: number;
  readonly tokens: number;
  readonly prompt: string;
  /** Key of who pays. */
  readonly tenant: string;
  /** The model a proxy vouched for. */
  readonly requestModel: string | undefined;
  /** Output tokens booked while it runs. */
  readonly estimateTokens: number;
}

interface Known extends Entry {
  readonly model: string;
  readonly partition: PartitionBook;
  readonly arrival: Arrival;
  /** asking: its body is with Weir this moment. */
  state: "open" | "asking" | "held" | "running" | "ended";
  /** Worker and generation. */
  worker: string;
  /** Envoy told Weir that the request is over, or Weir refused it. */
  mayEnd: boolean;
  /** The whole answer passed, usage included. */
  delivered: boolean;
}

/** Time that Weir asks for beyond the queue timeout. */
const HOLD_MARGIN_SECS = 5;

export class Book {
  readonly violations: string[] = [];
  readonly outcomes = new Map<string, number>();
  readonly rejections = new Map<string, number>();
  readonly #fleet: FleetState;
  readonly #timerSlackMs: number;
  readonly #bench: Bench;
  readonly #known = new Map<string, Known>();
  readonly #partitions: ReadonlyMap<string, PartitionBook>;
  readonly #load = new Map<string, number>();
  readonly #fair: FairBook | undefined;
  readonly #caches: CacheBook | undefined;
  #opened = 0;
  #settled = 0;

  /** @param timerSlackMs how late a timer may be */
  constructor(fleet: FleetState, timerSlackMs: number, bench: Bench) {
    this.#fleet = fleet;
    this.#timerSlackMs = timerSlackMs;
    this.#bench = bench;
    const violate = (what: string): void => {
      this.violate(what);
    };
    const fair = fleet.plan.fair && new FairBook(fleet.plan.fair, violate);
    this.#fair = fair;
    this.#caches = fleet.plan.policy === undefined ? undefined : new CacheBook(violate);
    const next = fair && ((lane: readonly Entry[]): Entry | undefined => fair.next(lane));
    this.#partitions = new Map(
      fleet.plan.partitions.map(({ name, queueSize }) => [
        name,
        new PartitionBook(name, queueSize, violate, next),
      ]),
    );
    this.fleetChanged();
  }

  get settled(): number {
    return this.#settled;
  }

  /** Sums over the partitions. */
  get stats(): PartitionStats {
    const total = { grants: 0, promotions: 0, contested: 0, heldBack: 0, victims: 0, shrunk: 0 };
    for (const { stats } of this.#partitions.values()) {
      for (const key of Object.keys(total) as (keyof PartitionStats)[]) total[key] += stats[key];
    }
    return total;
  }

  /** What fair sharing met; undefined without it. */
  get fairStats(): FairStats | undefined {
    return this.#fair?.stats;
  }

  /** What the choice by caches met; undefined without it. */
  get cacheStats(): CacheBook["stats"] | undefined {
    return this.#caches?.stats;
  }

  /** Workers came, went, or report something else. */
  fleetChanged(): void {
    for (const [name, slots] of this.#fleet.slots()) {
      this.#partitions.get(name)?.resize(slots, this.#fleet.reserved(name, slots));
    }
  }

  opened(arrival: Arrival): void {
    const { id, model, partition, rank } = arrival;
    this.#opened += 1;
    this.#known.set(id, {
      id,
      model,
      partition: this.#partition(partition),
      rank,
      arrival,
      state: "open",
      heldAt: 0,
      answerBegan: false,
      preemptedBy: undefined,
      promoted: false,
      spared: false,
      worker: "",
      mayEnd: false,
      delivered: false,
    });
  }

  /** The body is about to reach Weir; `told` hands it over. */
  asks(id: string, told: () => void): void {
    const known = this.#get(id, "open");
    if (known === undefined) return;
    known.state = "asking";
    known.heldAt = this.#bench.now;
    known.partition.lane(known.rank).push(known);
    // Whom nobody serves is refused before it asks for a slot.
    if (this.#fleet.serves(known.model, known.partition.name)) {
      const { partition, rank } = known;
      this.#fair?.register(known.arrival, {
        lane: `${partition.name} ${String(rank)}`,
        others: partition.lane(rank).filter((one) => one !== known),
        slots: partition.capacity,
        waits: partition.queued > 1 || partition.availableTo(rank) <= 0,
      });
    }
    told();
    // The request is put on from elsewhere meanwhile, which the compiler does not see.
    if ((known.state as Known["state"]) === "asking") this.violate(`${id} gets no answer`);
  }

  held(id: string, budgetSecs: number): void {
    const known = this.#get(id, "asking");
    if (known === undefined) return;
    known.state = "held";
    const secs = (CLASSES[known.rank]?.queueTimeoutSecs ?? 0) + HOLD_MARGIN_SECS;
    this.#same(`hold budget of ${id}`, budgetSecs, secs);
    // An empty queue is also full when it has no places.
    if (known.partition.queued > known.partition.queueSize) this.violate(`${id} has no place`);
    if (this.#overCeiling(known)) this.violate(`${id} has no place: its tenant has enough`);
  }

  routed(id: string, worker: WorkerState): void {
    const known = this.#known.get(id);
    if (known === undefined || (known.state !== "asking" && known.state !== "held")) {
      this.violate(`${id} is routed while it is ${known?.state ?? "settled"}`);
      return;
    }
    if (!worker.present || worker.healthy !== true) this.violate(`${id} goes to a lost worker`);
    if (this.#fleet.partitionOf(worker) !== known.partition.name) {
      this.violate(`${id} goes to a worker of another partition`);
    }
    if (worker.rule.model !== known.model) this.violate(`${id} goes to another model's worker`);
    known.partition.grant(known, this.#bench.now);
    this.#fair?.reserve(id, known.partition.lane(known.rank));
    known.state = "running";
    known.worker = runtimeOf(worker);
    this.#load.set(known.worker, (this.#load.get(known.worker) ?? 0) + 1);
    const present = Array.from(
      this.#bench.registry.all(),
      ({ identity }) => `${identity.url} ${String(identity.generation)}`,
    );
    this.#caches?.routed(id, known.model, known.arrival.prompt, present, this.#bench.now);
  }

  /** Weir refuses a request that a worker has. */
  preempted(id: string): void {
    const victim = this.#get(id, "running");
    if (victim === undefined) return;
    victim.partition.preempt(victim, this.#bench.now);
  }

  /** Response headers are about to reach Weir. */
  answers(id: string): void {
    const known = this.#known.get(id);
    if (known !== undefined) known.answerBegan = true;
  }

  /**
   * Envoy is about to tell Weir that an answer is over; only the first time counts, and not for a
   * victim, whose slot is in use until its stream has ended.
   */
  over(id: string, delivered: boolean): void {
    const known = this.#known.get(id);
    if (known === undefined || known.mayEnd || known.preemptedBy !== undefined) return;
    known.mayEnd = true;
    known.delivered = delivered;
  }

  /** Envoy is about to end the stream. */
  streamOver(id: string): void {
    const known = this.#known.get(id);
    if (known !== undefined) known.mayEnd = true;
  }

  /** Weir says that a request has ended. */
  settle(record: SettlementRecord): void {
    const id = record.requestId;
    const known = this.#known.get(id);
    this.#settled += 1;
    count(this.outcomes, record.outcome);
    if (record.rejection !== undefined) count(this.rejections, record.rejection);
    if (known === undefined || known.state === "ended") {
      this.violate(`${id} is settled twice`);
      return;
    }
    if (record.class !== CLASSES[known.rank]?.name) this.violate(`${id} ran as ${record.class}`);
    const refused = record.rejection !== undefined && record.rejection !== "scheduler_preempted";
    if (refused) this.#checkRefusal(known, record.rejection);
    else if (!known.mayEnd) this.violate(`${id} is settled before its end`);
    this.#checkVictim(known, record);
    this.#checkCharge(known, record);
    this.#fair?.end(id, record.charge?.tokens ?? 0, record.charge?.clockTokens ?? 0);
    this.#caches?.ended(
      id,
      [known.model, known.arrival.prompt, known.worker],
      record.selection,
      record.outcome === "success",
      this.#bench.now,
    );
    if (known.state === "asking" || known.state === "held") known.partition.leaveLane(known);
    else if (known.state === "running") {
      if (record.promoted !== known.promoted) {
        this.violate(`${id} was promoted: Weir says ${String(record.promoted)}`);
      }
      known.partition.running.delete(known);
      this.#load.set(known.worker, (this.#load.get(known.worker) ?? 0) - 1);
    }
    known.state = "ended";
  }

  /** The stream is closed: nothing can come any more. */
  closed(id: string): void {
    const known = this.#known.get(id);
    if (known?.state !== "ended") this.violate(`${id} is over and not settled`);
    this.#known.delete(id);
  }

  /** Compares the book with Weir. `turnPending`: Weir has asked for another turn. */
  check(turnPending: boolean): void {
    const { desk, registry, ledger, now, core } = this.#bench;
    const { selector } = core;
    let queued = 0;
    for (const view of desk.partitions(now)) {
      const book = this.#partition(view.name);
      const running = book.inFlight();
      queued += book.queued;
      this.#same(`slots of ${view.name}`, view.capacity ?? -1, book.capacity);
      for (const [rank, { name, queueTimeoutSecs }] of CLASSES.entries()) {
        const where = `${name} in ${view.name}`;
        const lane = book.lane(rank);
        this.#same(`slots in use of ${where}`, view.in_flight[rank] ?? -1, running[rank] ?? 0);
        this.#same(`waiters of ${where}`, view.queued[rank] ?? -1, lane.length);
        this.#same(`reserve of ${where}`, view.reserved[rank] ?? -1, book.reserved[rank] ?? 0);
        const [head] = lane;
        const patienceMs = queueTimeoutSecs * 1_000 + this.#timerSlackMs;
        if (head !== undefined && now - head.heldAt > patienceMs) {
          this.violate(`${head.id} waits longer than the queue timeout`);
        }
      }
      if (book.queued > book.queueSize) this.violate(`${view.name} has more waiters than places`);
      if (!turnPending) book.checkRest(now, this.#timerSlackMs);
    }
    for (const worker of registry.all()) {
      const { url, generation } = worker.identity;
      const load = this.#load.get(`${url} ${String(generation)}`) ?? 0;
      this.#same(`load of ${url}`, worker.runtime.liveLoad, load);
      // A choice becomes load in the same step, so between events nothing is merely claimed.
      this.#same(`claims on ${url}`, selector.bookings.claims(generation), 0);
      const reserved = selector.bookings.reservedTokens(generation);
      if (reserved > 0 !== load > 0) this.violate(`${url} has ${String(reserved)} tokens reserved`);
    }
    if (this.#fair !== undefined && ledger !== undefined) this.#fair.check(ledger);
    this.#same("waiters", desk.counts.queued, queued);
    this.#same("live requests", desk.counts.live, this.#opened - this.#settled);
  }

  /** At the end nothing is left. */
  checkEmpty(): void {
    this.check(false);
    this.#same("requests without an end", this.#known.size, 0);
    for (const [what, left] of Object.entries(this.#bench.leftovers())) {
      this.#same(`${what} at the end`, left, 0);
    }
  }

  violate(what: string): void {
    this.violations.push(what);
  }

  #checkRefusal(known: Known, code: string): void {
    const { id, partition } = known;
    const waitedMs = this.#bench.now - known.heldAt;
    switch (code) {
      case "scheduler_queue_timeout": {
        const patienceMs = (CLASSES[known.rank]?.queueTimeoutSecs ?? 0) * 1_000;
        if (known.state !== "held" || waitedMs < patienceMs) {
          this.violate(`${id} times out after ${String(waitedMs)} ms`);
        }
        if (partition.lane(known.rank)[0] !== known) this.violate(`${id} times out out of turn`);
        return;
      }
      case "scheduler_queue_full":
        if (known.state === "held") {
          this.#checkDisplaced(known);
          return;
        }
        this.#checkNobodyGivesWay(known);
        // The request itself stands in the book's lane.
        if (this.#overCeiling(known)) {
          if (this.#fair !== undefined) this.#fair.stats.ceilings += 1;
        } else if (partition.queued !== partition.queueSize + 1) {
          this.violate(`${id} finds a full queue of ${String(partition.queued - 1)}`);
        }
        if (partition.availableTo(known.rank) > 0) this.violate(`${id} is refused a free slot`);
        return;
      case "model_not_found":
        if (this.#fleet.serves(known.model, partition.name)) {
          this.violate(`${id} is told that nobody serves ${known.model}`);
        }
        if (known.state === "held") this.#grantInVain(known);
        return;
      case "no_worker":
        this.#grantInVain(known);
        return;
      default:
        this.violate(`${id} is refused with ${code}`);
    }
  }

  /** A slot for which no worker is there: it is granted by the rules and given back at once. */
  #grantInVain(known: Known): void {
    known.partition.grant(known, this.#bench.now);
    this.#fair?.reserve(known.id, known.partition.lane(known.rank));
    known.partition.running.delete(known);
    known.partition.lane(known.rank).unshift(known);
  }

  #checkVictim({ id, preemptedBy, mayEnd }: Known, record: SettlementRecord): void {
    if (preemptedBy === undefined && record.preemptedBy === undefined) return;
    if (record.rejection !== "scheduler_preempted" || record.outcome !== "http_5xx") {
      this.violate(`${id}, a victim, ends as ${record.outcome} ${String(record.rejection)}`);
    }
    if (record.preemptedBy !== CLASSES[preemptedBy ?? -1]?.name) {
      this.violate(`${id} gave way to ${String(record.preemptedBy)}`);
    }
    if (!mayEnd) this.violate(`${id}, a victim, is settled before its stream has ended`);
  }

  #checkCharge(known: Known, record: SettlementRecord): void {
    const tokens = record.charge?.tokens ?? -1;
    if (known.state !== "running") this.#same(`charge of ${known.id}, never sent`, tokens, 0);
    else if (known.preemptedBy !== undefined)
      this.#same(`charge of ${known.id}, a victim`, tokens, 0);
    else if (known.delivered) this.#same(`charge of ${known.id}`, tokens, known.arrival.tokens);
    this.#same(`estimate of ${known.id}`, record.estimateTokens, known.arrival.estimateTokens);
    const least = record.charge?.kind === "cancelled" ? 0 : 1;
    const onTheClock = record.charge?.clockTokens ?? 0;
    this.#same(`charge of ${known.id} on the clock`, onTheClock, Math.max(least, tokens));
  }

  /** A waiter loses its place to the request that is asking. */
  #checkDisplaced(known: Known): void {
    const { id, partition } = known;
    const fair = this.#fair;
    const waiters = partition.lanes.flat() as Known[];
    const newcomer = waiters.find(({ state }) => state === "asking");
    if (fair === undefined || newcomer === undefined) {
      this.violate(`${id} loses its place in the queue`);
      return;
    }
    fair.stats.displaced += 1;
    const right =
      partition.queued === partition.queueSize + 1 &&
      fair.givingWay(newcomer, waiters).includes(known);
    if (!right) this.violate(`${id} loses its place to ${newcomer.id} against the rule`);
  }

  /** Whoever is refused by a full queue has found nobody that could give way. */
  #checkNobodyGivesWay(newcomer: Known): void {
    const fair = this.#fair;
    if (fair === undefined || this.#overCeiling(newcomer)) return;
    const waiters = newcomer.partition.lanes.flat() as Known[];
    if (fair.givingWay(newcomer, waiters).length === 0) return;
    this.violate(`${newcomer.id} is refused although another has more places`);
  }

  /** Its tenant has more waiting in the partition than it may have. */
  #overCeiling({ id, partition }: Known): boolean {
    const fair = this.#fair;
    return (
      fair !== undefined &&
      fair.queuedWith(id, partition.lanes.flat()) > fair.rule.maxQueuedPerTenant
    );
  }

  #same(what: string, actual: number, expected: number): void {
    if (actual !== expected) {
      this.violate(`${what}: Weir says ${String(actual)}, the book ${String(expected)}`);
    }
  }

  #get(id: string, state: Known["state"]): Known | undefined {
    const known = this.#known.get(id);
    if (known?.state === state) return known;
    this.violate(`${id} is ${known?.state ?? "settled"}, not ${state}`);
    return undefined;
  }

  #partition(name: string): PartitionBook {
    const partition = this.#partitions.get(name);
    if (partition === undefined) throw new Error(`no such partition: ${name}`);
    return partition;
  }
}

/** Names a worker for as long as it is not registered anew. */
function runtimeOf({ rule, generation }: WorkerState): string {
  return `http://127.0.0.1:${String(rule.port)} ${String(generation)}`;
}

function count(counts: Map<string, number>, what: string): void {
  counts.set(what, (counts.get(what) ?? 0) + 1);
}

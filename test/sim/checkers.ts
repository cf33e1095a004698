// What must hold of Weir at every moment? A second, naive book of who waits, runs and has ended, kept
// from what passes between Weir and the simulated Envoy alone. After each event it is compared with
// Weir's own numbers. Every difference is a violation; the first one ends the run.

import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { Bench } from "../support/desk.js";

export interface PartitionRule {
  readonly name: string;
  /** Share of the fleet's slots. */
  readonly weight: number;
  readonly queueSize: number;
}

export interface Rules {
  readonly partitions: readonly PartitionRule[];
  readonly queueTimeoutMs: number;
  /** How late a timer may be. */
  readonly timerSlackMs: number;
}

interface Known {
  readonly partition: string;
  readonly tokens: number;
  state: "open" | "held" | "running" | "ended";
  heldAt: number;
  worker: string;
  /** Envoy told Weir that the request is over, or Weir refused it. */
  mayEnd: boolean;
  /** The whole answer passed, usage included. */
  delivered: boolean;
}

/** Slots of each partition: largest remainders over the weights, ties to the smaller name. */
export function naiveSplit(
  partitions: readonly PartitionRule[],
  fleet: number,
): Map<string, number> {
  const sum = partitions.reduce((total, { weight }) => total + weight, 0);
  const total = Math.min(fleet, sum);
  const shares = new Map(
    partitions.map(({ name, weight }) => [name, Math.floor((weight * total) / sum)]),
  );
  let left = total - [...shares.values()].reduce((a, b) => a + b, 0);
  const byRemainder = [...partitions].sort(
    (a, b) => ((b.weight * total) % sum) - ((a.weight * total) % sum) || (a.name < b.name ? -1 : 1),
  );
  for (const { name } of byRemainder) {
    if (left === 0) break;
    shares.set(name, (shares.get(name) ?? 0) + 1);
    left -= 1;
  }
  return shares;
}

export class Book {
  readonly violations: string[] = [];
  readonly outcomes = new Map<string, number>();
  readonly #rules: Rules;
  readonly #bench: Bench;
  readonly #known = new Map<string, Known>();
  readonly #queues = new Map<string, string[]>();
  readonly #running = new Map<string, number>();
  readonly #load = new Map<string, number>();
  #capacity = new Map<string, number>();
  #opened = 0;
  #settled = 0;

  constructor(rules: Rules, bench: Bench) {
    this.#rules = rules;
    this.#bench = bench;
    for (const { name } of rules.partitions) {
      this.#queues.set(name, []);
      this.#running.set(name, 0);
    }
  }

  get settled(): number {
    return this.#settled;
  }

  /** Slots that the engines which count as healthy offer together. */
  fleetIs(slots: number): void {
    this.#capacity = naiveSplit(this.#rules.partitions, slots);
  }

  opened(id: string, partition: string, tokens: number): void {
    this.#opened += 1;
    this.#known.set(id, {
      partition,
      tokens,
      state: "open",
      heldAt: 0,
      worker: "",
      mayEnd: false,
      delivered: false,
    });
  }

  held(id: string): void {
    const known = this.#get(id, "open");
    if (known === undefined) return;
    known.state = "held";
    known.heldAt = this.#bench.now;
    this.#queue(known).push(id);
  }

  routed(id: string, worker: string): void {
    const known = this.#known.get(id);
    if (known === undefined || (known.state !== "open" && known.state !== "held")) {
      this.violate(`${id} is routed while it is ${known?.state ?? "settled"}`);
      return;
    }
    const queue = this.#queue(known);
    const passed = known.state === "held" ? queue.indexOf(id) : queue.length;
    if (passed !== 0) this.violate(`${id} passes ${String(passed)} that waited longer`);
    if (known.state === "held") queue.shift();
    known.state = "running";
    known.worker = worker;
    const running = (this.#running.get(known.partition) ?? 0) + 1;
    this.#running.set(known.partition, running);
    this.#load.set(worker, (this.#load.get(worker) ?? 0) + 1);
    const slots = this.#capacity.get(known.partition) ?? 0;
    if (running > slots) {
      this.violate(`${id} gets slot ${String(running)} of ${String(slots)} in ${known.partition}`);
    }
  }

  /** Envoy is about to tell Weir that a request is over; only the first time counts. */
  over(id: string, delivered: boolean): void {
    const known = this.#known.get(id);
    if (known === undefined || known.mayEnd) return;
    known.mayEnd = true;
    known.delivered = delivered;
  }

  /** Weir says that a request has ended. */
  settle(record: SettlementRecord): void {
    const id = record.requestId;
    const known = this.#known.get(id);
    this.#settled += 1;
    this.outcomes.set(record.outcome, (this.outcomes.get(record.outcome) ?? 0) + 1);
    if (known === undefined || known.state === "ended") {
      this.violate(`${id} is settled twice`);
      return;
    }
    if (record.rejection !== undefined) this.#checkRefusal(id, known, record.rejection);
    else if (!known.mayEnd) this.violate(`${id} is settled before its end`);
    this.#checkCharge(id, known, record);
    if (known.state === "held") {
      const queue = this.#queue(known);
      queue.splice(queue.indexOf(id), 1);
    } else if (known.state === "running") {
      this.#running.set(known.partition, (this.#running.get(known.partition) ?? 0) - 1);
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
    const { desk, registry, now } = this.#bench;
    let queued = 0;
    for (const view of desk.partitions()) {
      const { name } = view;
      const queue = this.#queues.get(name) ?? [];
      const size = this.#rules.partitions.find((rule) => rule.name === name)?.queueSize ?? 0;
      queued += queue.length;
      this.#same(`slots in use in ${name}`, view.in_flight, this.#running.get(name) ?? 0);
      this.#same(`waiters in ${name}`, view.queued, queue.length);
      this.#same(`slots of ${name}`, view.capacity, this.#capacity.get(name) ?? 0);
      if (queue.length > size) this.violate(`${name} has more waiters than places`);
      if (!turnPending && queue.length > 0 && view.in_flight < view.capacity) {
        this.violate(`${name} leaves a slot free while ${String(queue.length)} wait`);
      }
      const head = this.#known.get(queue[0] ?? "");
      const patience = this.#rules.queueTimeoutMs + this.#rules.timerSlackMs;
      if (head !== undefined && now - head.heldAt > patience) {
        this.violate(`${String(queue[0])} waits longer than the queue timeout`);
      }
    }
    for (const worker of registry.all()) {
      const { url } = worker.identity;
      this.#same(`load of ${url}`, worker.runtime.liveLoad, this.#load.get(url) ?? 0);
    }
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

  #checkRefusal(id: string, known: Known, code: string): void {
    const queue = this.#queue(known);
    // Whoever is refused while held is the one that waited longest: its turn came, or its time is up.
    if (known.state === "held" && queue[0] !== id) this.violate(`${id} is refused out of turn`);
    const waitedMs = this.#bench.now - known.heldAt;
    const size = this.#rules.partitions.find(({ name }) => name === known.partition)?.queueSize;
    if (code === "scheduler_queue_timeout") {
      if (known.state !== "held" || waitedMs < this.#rules.queueTimeoutMs) {
        this.violate(`${id} times out after ${String(waitedMs)} ms`);
      }
    } else if (code === "scheduler_queue_full") {
      if (queue.length !== size)
        this.violate(`${id} finds a full queue of ${String(queue.length)}`);
    } else if (code !== "no_worker") this.violate(`${id} is refused with ${code}`);
  }

  #checkCharge(id: string, known: Known, record: SettlementRecord): void {
    const tokens = record.charge?.tokens;
    if (known.state !== "running") this.#same(`charge of ${id}, never sent`, tokens ?? -1, 0);
    else if (known.delivered) this.#same(`charge of ${id}`, tokens ?? -1, known.tokens);
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

  #queue(known: Known): string[] {
    return this.#queues.get(known.partition) ?? [];
  }
}

// One partition in the naive book: who waits in which lane, who runs, what was dispatched lately, and
// whether the next grant is the right one. Every rule is worked out anew from (capacity, reservations,
// in flight per class) at the moment of the grant, by plain loops over plain lists.

import { CLASSES, STARVATION_MAX_SHARE, sum } from "./fleet.js";

export interface Entry {
  readonly id: string;
  readonly rank: number;
  /** When it came to wait. */
  heldAt: number;
  /** The answer's headers have been told to Weir. */
  answerBegan: boolean;
  /** Rank of the class it gave way to. */
  preemptedBy: number | undefined;
  /** Its lane was starved when it was served. */
  promoted: boolean;
  /** It passed a higher class when it was served, so it does not give way. */
  spared: boolean;
}

/** Dispatches that contested promotions are counted over, and how many of them may be such. */
const WINDOW = 64;
const CONTESTED_MAX = Math.floor(STARVATION_MAX_SHARE * WINDOW);
const RANKS = [0, 1, 2, 3];
/** The highest class has nobody before it, so it is never starved. */
const LOW_RANKS = [0, 1, 2];
/** A head is over its threshold when it is older, not when it is as old. */
const OLDER_MS = 1;
const NOT_CONTESTED = -1;

const nameOf = (rank: number): string => CLASSES[rank]?.name ?? "";

/** Slots a class may take: what is free, less what is still kept back for each higher class. */
export function available(
  rank: number,
  capacity: number,
  reserved: readonly number[],
  running: readonly number[],
): number {
  let free = Math.max(0, capacity - sum(running));
  for (const higher of RANKS.filter((other) => other > rank)) {
    free = Math.max(0, free - Math.max(0, (reserved[higher] ?? 0) - (running[higher] ?? 0)));
  }
  return free;
}

export interface PartitionStats {
  grants: number;
  promotions: number;
  contested: number;
  /** Grants while no further contested promotion was allowed and one was due. */
  heldBack: number;
  victims: number;
  /** Capacities below what was in flight. */
  shrunk: number;
}

export class PartitionBook {
  readonly name: string;
  readonly queueSize: number;
  readonly lanes: readonly Entry[][] = [[], [], [], []];
  /** In the order of admission. */
  readonly running = new Set<Entry>();
  readonly stats: PartitionStats = {
    grants: 0,
    promotions: 0,
    contested: 0,
    heldBack: 0,
    victims: 0,
    shrunk: 0,
  };
  readonly #violate: (what: string) => void;
  readonly #next: (lane: readonly Entry[]) => Entry | undefined;
  /** Lane of the contested promotion, per dispatch, oldest first. */
  readonly #recent: number[] = [];
  /** Dispatches that passed a starved lane, and the most starved lanes there were meanwhile. */
  readonly #passed = LOW_RANKS.map(() => ({ dispatches: 0, lanes: 0 }));
  #capacity = 0;
  #reserved: readonly number[] = [0, 0, 0, 0];

  /** @param next whose turn it is in a lane; absent = the oldest waiter's */
  constructor(
    name: string,
    queueSize: number,
    violate: (what: string) => void,
    next: (lane: readonly Entry[]) => Entry | undefined = ([oldest]) => oldest,
  ) {
    this.name = name;
    this.queueSize = queueSize;
    this.#violate = violate;
    this.#next = next;
  }

  get capacity(): number {
    return this.#capacity;
  }

  get reserved(): readonly number[] {
    return this.#reserved;
  }

  get queued(): number {
    return sum(this.lanes.map(({ length }) => length));
  }

  resize(capacity: number, reserved: readonly number[]): void {
    if (capacity < this.running.size && capacity < this.#capacity) this.stats.shrunk += 1;
    this.#capacity = capacity;
    this.#reserved = reserved;
  }

  inFlight(): number[] {
    const counts = [0, 0, 0, 0];
    for (const { rank } of this.running) counts[rank] = (counts[rank] ?? 0) + 1;
    return counts;
  }

  availableTo(rank: number): number {
    return available(rank, this.#capacity, this.#reserved, this.inFlight());
  }

  lane(rank: number): Entry[] {
    return this.lanes[rank] ?? [];
  }

  leaveLane(entry: Entry): void {
    const lane = this.lane(entry.rank);
    lane.splice(lane.indexOf(entry), 1);
  }

  /** A waiter, or a request that came this moment, gets a slot. */
  grant(entry: Entry, now: number): void {
    const { id, rank } = entry;
    const next = this.#next(this.lane(rank));
    if (next !== entry) {
      const ahead = this.lane(rank).indexOf(entry);
      this.#violate(
        `${id} passes ${String(ahead)} that waited longer: it is the turn of ${String(next?.id)}`,
      );
    }
    if (this.running.size >= this.#capacity) {
      const slot = this.running.size + 1;
      this.#violate(`${id} gets slot ${String(slot)} of ${String(this.#capacity)} in ${this.name}`);
    }
    const contested = this.#contested(rank);
    entry.promoted = this.#starved(rank, now);
    entry.spared = entry.promoted && contested;
    this.#checkTurn(entry, contested, now);
    this.#countPassed(rank, now);
    this.#recent.push(contested ? rank : NOT_CONTESTED);
    if (this.#recent.length > WINDOW) this.#recent.shift();
    this.stats.grants += 1;
    if (entry.promoted) this.stats.promotions += 1;
    if (contested) this.stats.contested += 1;
    if (this.#contestedLately() > CONTESTED_MAX) {
      this.#violate(`${id} is contested promotion ${String(this.#contestedLately())} of 64`);
    }
    this.leaveLane(entry);
    this.running.add(entry);
  }

  /** A running request is told to give way; to which class is worked out from who waits. */
  preempt(victim: Entry, now: number): void {
    const { id } = victim;
    if (victim.answerBegan) this.#violate(`${id} is preempted after its answer began`);
    if (victim.preemptedBy !== undefined) this.#violate(`${id} is preempted twice`);
    const open = [...this.running].filter(
      ({ answerBegan, preemptedBy, spared }) =>
        !answerBegan && !spared && preemptedBy === undefined,
    );
    const lowest = Math.min(...open.map(({ rank }) => rank));
    if (open.findLast(({ rank }) => rank === lowest) !== victim) {
      this.#violate(`${id} is preempted before another of a lower class, or a younger one`);
    }
    const by = this.#classInNeed(victim, now);
    if (by !== undefined) victim.preemptedBy = by;
    this.stats.victims += 1;
  }

  /** The highest class with a waiter that this victim, and nothing less, gets a slot. */
  #classInNeed(victim: Entry, now: number): number | undefined {
    const { id } = victim;
    const higher = RANKS.filter((rank) => rank > victim.rank).reverse();
    const unserved = higher.filter((rank) => this.#served(rank) < this.lane(rank).length);
    const helped = unserved.filter((rank) => this.#served(rank, victim) > this.#served(rank));
    const entitled = helped.filter((rank) => CLASSES[rank]?.canPreempt === true);
    const [by] = entitled;
    if (by !== undefined) {
      const due = LOW_RANKS.find((rank) => this.#starved(rank, now));
      if (due !== undefined && due < by && this.#contestedLately() < CONTESTED_MAX) {
        this.#violate(`${id} is preempted in vain: the starved lane ${nameOf(due)} is next`);
      }
    } else if (helped[0] !== undefined) {
      this.#violate(`${id} gives way to the class ${nameOf(helped[0])}`);
    } else if (unserved[0] !== undefined) {
      this.#violate(`${id} is preempted in vain: no waiter gets a slot by that`);
    } else {
      this.#violate(`${id} is preempted without need`);
    }
    return by;
  }

  /** Waiters of a class that get a slot once every victim, and this one, is gone. */
  #served(rank: number, victim?: Entry): number {
    const counts = [0, 0, 0, 0];
    for (const entry of this.running) {
      if (entry.preemptedBy !== undefined || entry === victim) continue;
      counts[entry.rank] = (counts[entry.rank] ?? 0) + 1;
    }
    let served = 0;
    for (const at of RANKS.filter((other) => other >= rank).reverse()) {
      served = 0;
      while (
        served < this.lane(at).length &&
        available(at, this.#capacity, this.#reserved, counts) > 0
      ) {
        counts[at] = (counts[at] ?? 0) + 1;
        served += 1;
      }
    }
    return served;
  }

  /** What must hold whenever Weir has nothing left to do. `slackMs`: how late a timer may be. */
  checkRest(now: number, slackMs: number): void {
    for (const rank of RANKS) {
      const waiting = this.lane(rank).length;
      if (waiting > 0 && this.availableTo(rank) > 0) {
        this.#violate(`${this.name} leaves a slot free while ${String(waiting)} wait`);
      }
      const starved = rank < 3 && this.#starved(rank, now - slackMs);
      if (starved && this.running.size < this.#capacity) {
        this.#violate(
          `the lane ${nameOf(rank)} of ${this.name} is over its threshold while a slot is free`,
        );
      }
    }
  }

  /** The grant is the one that the rules name: a starved lane first, else the highest class. */
  #checkTurn({ id, rank }: Entry, contested: boolean, now: number): void {
    const starved = LOW_RANKS.filter((low) => this.#starved(low, now));
    const full = this.#contestedLately() >= CONTESTED_MAX;
    const due = starved.filter((low) => !full || !this.#contested(low));
    if (due.length < starved.length) this.stats.heldBack += 1;
    const [first] = due.sort((a, b) => this.#promotionsOf(a) - this.#promotionsOf(b) || a - b);
    if (first !== undefined) {
      if (first !== rank) this.#violate(`${id} is served before the starved lane ${nameOf(first)}`);
      return;
    }
    const lastingly = starved.includes(rank);
    if (contested) {
      this.#violate(
        lastingly
          ? `${id} is one contested promotion too many`
          : `${id} is served before a higher class`,
      );
    } else if (this.availableTo(rank) <= 0) {
      this.#violate(`${id} takes a slot that is kept back for a higher class`);
    }
  }

  /** No starved lane is passed by more than 64 dispatches for each lane that is starved. */
  #countPassed(served: number, now: number): void {
    const starved = LOW_RANKS.filter((rank) => this.#starved(rank, now));
    for (const [rank, passed] of this.#passed.entries()) {
      if (rank === served || !starved.includes(rank)) {
        passed.dispatches = 0;
        passed.lanes = 0;
        continue;
      }
      passed.dispatches += 1;
      passed.lanes = Math.max(passed.lanes, starved.length);
      if (passed.dispatches > WINDOW * passed.lanes) {
        const count = String(passed.dispatches);
        this.#violate(`the starved lane ${nameOf(rank)} of ${this.name} is passed ${count} times`);
      }
    }
  }

  #starved(rank: number, now: number): boolean {
    const head = this.lane(rank)[0];
    const thresholdMs = (CLASSES[rank]?.starvationSecs ?? 0) * 1_000;
    return rank < 3 && head !== undefined && head.heldAt + thresholdMs + OLDER_MS <= now;
  }

  /** A waiter of a higher class could take the slot under its own rule. */
  #contested(rank: number): boolean {
    return RANKS.some(
      (higher) => higher > rank && this.lane(higher).length > 0 && this.availableTo(higher) > 0,
    );
  }

  #contestedLately(): number {
    return this.#recent.filter((rank) => rank !== NOT_CONTESTED).length;
  }

  #promotionsOf(rank: number): number {
    return this.#recent.filter((one) => one === rank).length;
  }
}

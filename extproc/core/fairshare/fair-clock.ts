// The clock by which contenders take turns: weighted start-time fair queueing, corrected when the true
// cost of a request is known. Each contender has a virtual finish F = S + p / w: what it was charged
// for good, per weight (S), and the estimates of its running requests (p, whole tokens). Whoever waits
// with the smallest F goes next.
//
// V, the clock's own time, is the least S of those that wait (of those that run, when nobody waits). It
// never decreases, and a contender that begins to wait again starts at V at least, so that idle time
// earns nothing. V looks at S, not at F: otherwise the estimate of a request just begun would lift V,
// and the refund that follows would be cut off; shares would drift for good. Lanes that are served
// unevenly have times of their own beside it (lane-time.ts).
//
// A refund never takes F below the floor, the V at which the contender began to wait. Unit of service:
// output tokens; S, V and floor are tokens per weight.

import { invariant } from "../model/invariant.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";

/**
 * V at which the clock begins at 0 again: a token of the heaviest tenant allowed, 1/10000, must still be
 * far more than the rounding of a double (2^30 x 2^-52 = 2.4e-7), or its requests would cost nothing.
 */
export const REBASE_AT = 2 ** 30;

/** Whoever sorts by an entry's virtual finish and must hear that it changed. */
export interface Place {
  readonly moved: () => void;
}

/** What earlier rebases took off; all entries of a clock share it. */
interface Scale {
  base: number;
}

/** One contender of one clock. Only its clock changes it. */
export class ClockEntry {
  readonly key: string;
  readonly weight: number;
  readonly #scale: Scale;
  /** Waiting and running requests. */
  queued = 0;
  active = 0;
  /** S: charged for good, per weight. */
  settled = 0;
  /** p: estimates of running requests, in tokens. */
  provisionalTokens = 0;
  floor = 0;
  /** What the clock has added to its F over time, to bring it up to V. */
  lifted = 0;
  queuedNode: HeapNode<ClockEntry> | undefined;
  activeNode: HeapNode<ClockEntry> | undefined;
  readonly places = new Set<Place>();

  /** @param weight > 0 */
  constructor(key: string, weight: number, scale: Scale) {
    this.key = key;
    this.weight = weight;
    this.#scale = scale;
  }

  /** F since the start of the process. */
  get virtualFinish(): number {
    return this.#scale.base + this.finish;
  }

  /** S since the start of the process. */
  get virtualSettled(): number {
    return this.#scale.base + this.settled;
  }

  /** F on the clock's present scale. */
  get finish(): number {
    return this.settled + this.provisionalTokens / this.weight;
  }
}

const bySettled = (one: ClockEntry, other: ClockEntry): boolean => one.settled < other.settled;

export class FairClock {
  readonly #entries = new Set<ClockEntry>();
  readonly #queued = new IndexedHeap<ClockEntry>(bySettled);
  readonly #active = new IndexedHeap<ClockEntry>(bySettled);
  readonly #rebaseAt: number;
  readonly #scale: Scale = { base: 0 };
  #virtual = 0;

  constructor(rebaseAt = REBASE_AT) {
    this.#rebaseAt = rebaseAt;
  }

  /** V since the start of the process. */
  get virtualTime(): number {
    return this.#scale.base + this.#virtual;
  }

  add(key: string, weight: number): ClockEntry {
    const entry = new ClockEntry(key, weight, this.#scale);
    this.#entries.add(entry);
    return entry;
  }

  /** True when an entry could be forgotten without a gain: idle, and not ahead of the clock. */
  isSpent(entry: ClockEntry): boolean {
    return entry.queued === 0 && entry.active === 0 && entry.finish <= this.#virtual;
  }

  forget(entry: ClockEntry): void {
    invariant(this.isSpent(entry), "only an idle entry that is not ahead is forgotten");
    this.#entries.delete(entry);
  }

  /** A request of the entry begins to wait. */
  register(entry: ClockEntry): void {
    if (entry.queued === 0) {
      const provisional = entry.provisionalTokens / entry.weight;
      const settled = Math.max(entry.settled, this.#virtual - provisional);
      entry.lifted += settled - entry.settled;
      this.#setSettled(entry, settled);
      entry.floor = this.#virtual;
      entry.queuedNode = this.#queued.push(entry);
    }
    entry.queued += 1;
    this.#advance();
  }

  /** A waiting request leaves without having run. */
  unregister(entry: ClockEntry): void {
    this.#leaveQueue(entry);
    this.#advance();
  }

  /** A waiting request begins to run; the entry is booked its estimate. */
  reserve(entry: ClockEntry, estimateTokens: number): void {
    this.#leaveQueue(entry);
    entry.active += 1;
    entry.activeNode ??= this.#active.push(entry);
    entry.provisionalTokens += estimateTokens;
    this.#changed(entry);
    this.#advance();
  }

  /** A running request has ended: its estimate is replaced by what it cost, 0 for cancelled work. */
  settle(entry: ClockEntry, estimateTokens: number, chargedTokens: number): void {
    invariant(entry.active > 0, "only a running request is settled");
    entry.provisionalTokens -= estimateTokens;
    const least = entry.floor - entry.provisionalTokens / entry.weight;
    this.#setSettled(entry, Math.max(entry.settled + chargedTokens / entry.weight, least));
    this.#advance();
    entry.active -= 1;
    if (entry.active === 0 && entry.activeNode !== undefined) {
      invariant(entry.provisionalTokens === 0, "nothing is booked when nothing runs");
      this.#active.remove(entry.activeNode);
      entry.activeNode = undefined;
    }
  }

  #leaveQueue(entry: ClockEntry): void {
    invariant(entry.queued > 0, "only a waiting request leaves the queue");
    entry.queued -= 1;
    if (entry.queued > 0 || entry.queuedNode === undefined) return;
    this.#queued.remove(entry.queuedNode);
    entry.queuedNode = undefined;
  }

  #setSettled(entry: ClockEntry, settled: number): void {
    entry.settled = settled;
    if (entry.queuedNode !== undefined) this.#queued.moved(entry.queuedNode);
    if (entry.activeNode !== undefined) this.#active.moved(entry.activeNode);
    this.#changed(entry);
  }

  #changed(entry: ClockEntry): void {
    for (const place of entry.places) place.moved();
  }

  #advance(): void {
    const least = this.#queued.first ?? this.#active.first;
    if (least === undefined || least.settled <= this.#virtual) return;
    this.#virtual = least.settled;
    if (this.#virtual > this.#rebaseAt) this.#rebase();
  }

  /** Counts from 0 again. Taking the same number off everywhere changes the order of nobody. */
  #rebase(): void {
    const off = this.#virtual;
    for (const entry of this.#entries) {
      entry.settled -= off;
      entry.floor -= off;
    }
    this.#virtual = 0;
    this.#scale.base += off;
  }
}

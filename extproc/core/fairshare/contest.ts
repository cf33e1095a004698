// Who of those that wait is next? Contenders stand in a heap by virtual finish, and by what they are ahead
// of it in this lane; of equal ones a named tenant comes before the bucket of all others, then the tenant whose key is smaller by its bytes. Behind
// each contender stand its waiters, in the order in which they came, or, behind a bucket, a second contest.
// The estimate of a request plays no part in the choice, only in what is booked afterwards.
//
// What a contender is ahead by does not change while it waits, so the order moves with the clock alone,
// and every heap in which an entry stands hears when it moves.

import { TransientMap } from "../model/transient-map.js";
import { byteOrder } from "../model/byte-order.js";
import { invariant } from "../model/invariant.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import type { ClockEntry, Place } from "./fair-clock.js";
import { LaneTime } from "./lane-time.js";
import type { Contender } from "./ticket.js";

/** Where a waiter stands: behind a contender, or, behind a bucket, in the contest within. */
export interface Stand<W> {
  readonly seat: Seat<W>;
  readonly within: QueueNode<W> | Stand<W>;
}

/** Why a contender is next: nobody else waits, the lowest virtual finish, or the first of equals. */
export type ChoiceReason = "only" | "lowest" | "tie";

export interface Choice {
  readonly entry: ClockEntry;
  /** Its virtual finish, and what it is ahead by in this lane. */
  readonly position: number;
  readonly reason: ChoiceReason;
  /** Who would be next without it. */
  readonly runnerUp: ClockEntry | undefined;
  readonly runnerUpPosition: number | undefined;
}

/** A contender with those that wait behind it. */
class Seat<W> implements Place {
  readonly entry: ClockEntry;
  readonly waiters = new LinkedQueue<W>();
  /** The contest within a bucket; undefined behind a tenant. */
  readonly inner: Contest<W> | undefined;
  /** How far ahead of its F it stands here. */
  readonly ahead: number;
  readonly #heap: IndexedHeap<Seat<W>>;
  readonly #node: HeapNode<Seat<W>>;

  constructor(
    entry: ClockEntry,
    ahead: number,
    inner: Contest<W> | undefined,
    heap: IndexedHeap<Seat<W>>,
  ) {
    this.entry = entry;
    this.ahead = ahead;
    this.inner = inner;
    this.#heap = heap;
    this.#node = heap.push(this);
    entry.places.add(this);
  }

  /** Where it stands among the others: its F and what it is ahead by here. */
  get position(): number {
    return this.entry.finish + this.ahead;
  }

  /** The same since the start of the process. */
  get virtualPosition(): number {
    return this.entry.virtualFinish + this.ahead;
  }

  get empty(): boolean {
    return this.inner === undefined ? this.waiters.size === 0 : this.inner.empty;
  }

  get next(): W | undefined {
    return this.inner === undefined ? this.waiters.head : this.inner.next;
  }

  readonly moved = (): void => {
    this.#heap.moved(this.#node);
  };

  close(): void {
    this.#heap.remove(this.#node);
    this.entry.places.delete(this);
  }
}

function before<W>(one: Seat<W>, other: Seat<W>): boolean {
  const mine = one.position;
  const theirs = other.position;
  if (mine !== theirs) return mine < theirs;
  const named = one.inner === undefined;
  if (named !== (other.inner === undefined)) return named;
  return byteOrder(one.entry.key, other.entry.key) < 0;
}

export class Contest<W> {
  readonly #heap = new IndexedHeap<Seat<W>>(before);
  readonly #seats = new TransientMap<ClockEntry, Seat<W>>();
  /** The contests within buckets; they outlast those that wait there. */
  readonly #inner = new Map<ClockEntry, Contest<W>>();
  readonly #time = new LaneTime();

  get empty(): boolean {
    return this.#seats.size === 0;
  }

  /** Whom to serve next; undefined when nobody waits. */
  get next(): W | undefined {
    return this.#heap.first?.next;
  }

  /**
   * Lets a waiter contend, behind the earlier ones of its tenant.
   *
   * @param contenders from the outermost in; at least one
   * @param catchUpTokens how far behind the next one a contender may begin, output tokens
   */
  join(contenders: readonly Contender[], waiter: W, catchUpTokens: number): Stand<W> {
    const [contender, ...rest] = contenders;
    invariant(contender !== undefined, "a waiter contends somewhere");
    const seat = this.#seatOf(contender, rest.length > 0, catchUpTokens);
    const within = seat.inner?.join(rest, waiter, catchUpTokens) ?? seat.waiters.push(waiter);
    return { seat, within };
  }

  /** Takes a waiter out, wherever it stands. */
  leave({ seat, within }: Stand<W>): void {
    if ("seat" in within) seat.inner?.leave(within);
    else seat.waiters.remove(within);
    if (!seat.empty) return;
    seat.close();
    this.#seats.delete(seat.entry);
  }

  /** The times that a request of these contenders moves, from the outermost in. */
  timesOf([contender, ...rest]: readonly Contender[]): readonly LaneTime[] {
    if (contender === undefined) return [];
    const inner = rest.length > 0 ? this.#innerOf(contender.entry).timesOf(rest) : [];
    return [this.#time, ...inner];
  }

  /** The contenders that are next, from the outermost in, and why. */
  explain(): readonly Choice[] {
    const first = this.#heap.first;
    if (first === undefined) return [];
    const second = this.#heap.second;
    const differs = second === undefined ? "only" : "lowest";
    const choice: Choice = {
      entry: first.entry,
      position: first.virtualPosition,
      reason: second?.position === first.position ? "tie" : differs,
      runnerUp: second?.entry,
      runnerUpPosition: second?.virtualPosition,
    };
    return [choice, ...(first.inner?.explain() ?? [])];
  }

  #seatOf({ entry }: Contender, isBucket: boolean, catchUpTokens: number): Seat<W> {
    const known = this.#seats.get(entry);
    if (known !== undefined) return known;
    const next = this.#heap.first;
    const least = next && next.entry.virtualSettled + next.ahead - catchUpTokens / entry.weight;
    const inner = isBucket ? this.#innerOf(entry) : undefined;
    const seat = new Seat<W>(entry, this.#time.ahead(entry, least), inner, this.#heap);
    this.#seats.set(entry, seat);
    return seat;
  }

  #innerOf(bucket: ClockEntry): Contest<W> {
    let inner = this.#inner.get(bucket);
    if (inner === undefined) {
      inner = new Contest<W>();
      this.#inner.set(bucket, inner);
    }
    return inner;
  }
}

// Who of those that wait is next? Contenders stand in a heap by virtual finish; of equal ones a named
// tenant comes before the bucket of all others, then the tenant whose key is smaller by its bytes. Behind
// each contender stand its waiters, in the order in which they came, or, behind a bucket, a second contest.
// The estimate of a request plays no part in the choice, only in what is booked afterwards.
//
// The order rests on the clock alone, so every heap in which an entry stands hears when it moves.

import { byteOrder } from "../model/byte-order.js";
import { invariant } from "../model/invariant.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import type { ClockEntry, Place } from "./fair-clock.js";
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
  readonly reason: ChoiceReason;
  /** Who would be next without it. */
  readonly runnerUp: ClockEntry | undefined;
}

/** A contender with those that wait behind it. */
class Seat<W> implements Place {
  readonly entry: ClockEntry;
  readonly waiters = new LinkedQueue<W>();
  /** The contest within a bucket; undefined behind a tenant. */
  readonly inner: Contest<W> | undefined;
  readonly #heap: IndexedHeap<Seat<W>>;
  readonly #node: HeapNode<Seat<W>>;

  constructor(entry: ClockEntry, isBucket: boolean, heap: IndexedHeap<Seat<W>>) {
    this.entry = entry;
    this.inner = isBucket ? new Contest<W>() : undefined;
    this.#heap = heap;
    this.#node = heap.push(this);
    entry.places.add(this);
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
  const mine = one.entry.finish;
  const theirs = other.entry.finish;
  if (mine !== theirs) return mine < theirs;
  const named = one.inner === undefined;
  if (named !== (other.inner === undefined)) return named;
  return byteOrder(one.entry.key, other.entry.key) < 0;
}

export class Contest<W> {
  readonly #heap = new IndexedHeap<Seat<W>>(before);
  readonly #seats = new Map<ClockEntry, Seat<W>>();

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

  /** The contenders that are next, from the outermost in, and why. */
  explain(): readonly Choice[] {
    const first = this.#heap.first;
    if (first === undefined) return [];
    const runnerUp = this.#heap.second?.entry;
    const { entry } = first;
    const differs = runnerUp === undefined ? "only" : "lowest";
    const reason = runnerUp?.finish === entry.finish ? "tie" : differs;
    return [{ entry, reason, runnerUp }, ...(first.inner?.explain() ?? [])];
  }

  /**
   * A contender that begins to wait here is lifted to near where the others are. Its clock alone is not
   * enough for that: a waiter in another lane or partition that is not served holds the clock's time
   * back, and whoever begins at that time would catch up on all that the others were served meanwhile.
   */
  #seatOf({ clock, entry }: Contender, isBucket: boolean, catchUpTokens: number): Seat<W> {
    let seat = this.#seats.get(entry);
    if (seat === undefined) {
      const next = this.#heap.first?.entry;
      if (next !== undefined) clock.lift(entry, next.settled - catchUpTokens / entry.weight);
      seat = new Seat<W>(entry, isBucket, this.#heap);
      this.#seats.set(entry, seat);
    }
    return seat;
  }
}

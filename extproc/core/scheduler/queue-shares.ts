// Who holds the places of a partition's queue? A full queue in which one contender has many places and
// another comes for its first would undo the sharing of slots: whoever cannot even wait is never
// chosen. So a newcomer takes the place of the newest waiter of whoever has the most, as long as that
// leaves the newcomer's own side with no more places than the other had.
//
// A contender is a tenant, or the bucket of all others of a model's profile, which has its places
// together. Weights play no part: places are for waiting, and a few are enough to have one's share of
// the slots. Nobody gives up a place to a lower class. Everything costs O(log contenders).

import type { ClockEntry } from "../fairshare/fair-clock.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";

class Holder<W> {
  readonly contender: ClockEntry;
  /** In the order in which they came. */
  readonly waiters: PerClass<LinkedQueue<W>> = perClass(() => new LinkedQueue<W>());
  readonly node: HeapNode<Holder<W>>;
  /** Number of the holder, in the order in which they came: of equals the first one comes first. */
  readonly since: number;
  places = 0;

  constructor(contender: ClockEntry, since: number, fullest: IndexedHeap<Holder<W>>) {
    this.contender = contender;
    this.since = since;
    this.node = fullest.push(this);
  }
}

/** A place in the queue. */
export interface QueuePlace<W> {
  readonly holder: Holder<W>;
  readonly rank: ClassRank;
  readonly node: QueueNode<W>;
}

export class QueueShares<W> {
  readonly #holders = new Map<ClockEntry, Holder<W>>();
  readonly #fullest = new IndexedHeap<Holder<W>>((one, other) =>
    one.places === other.places ? one.since < other.since : one.places > other.places,
  );
  #holdersSoFar = 0;

  enter(contender: ClockEntry, rank: ClassRank, waiter: W): QueuePlace<W> {
    const holder = this.#holderOf(contender);
    holder.places += 1;
    this.#fullest.moved(holder.node);
    return { holder, rank, node: holder.waiters[rank].push(waiter) };
  }

  leave({ holder, rank, node }: QueuePlace<W>): void {
    if (!holder.waiters[rank].remove(node)) return;
    holder.places -= 1;
    if (holder.places > 0) {
      this.#fullest.moved(holder.node);
      return;
    }
    this.#fullest.remove(holder.node);
    this.#holders.delete(holder.contender);
  }

  /** Who gives up its place to a newcomer that has entered already; undefined = nobody. */
  givesWayTo({ holder: own, rank }: QueuePlace<W>): W | undefined {
    const fullest = this.#fullest.first;
    if (fullest === undefined || fullest.places <= own.places) return undefined;
    const lowest = RANKS.find((at) => at <= rank && fullest.waiters[at].size > 0);
    return lowest === undefined ? undefined : fullest.waiters[lowest].tail;
  }

  #holderOf(contender: ClockEntry): Holder<W> {
    const known = this.#holders.get(contender);
    if (known !== undefined) return known;
    this.#holdersSoFar += 1;
    const holder = new Holder<W>(contender, this.#holdersSoFar, this.#fullest);
    this.#holders.set(contender, holder);
    return holder;
  }
}

// The queue of one partition: a lane per class, first in first out, over one budget. Within a lane all
// waiters have the same patience, so the oldest is also the next to time out, and entering, leaving
// from anywhere and timing out all cost the same at any length.

import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";
import { after, type MonotonicMs } from "../model/time.js";
import type { Waiter } from "./admission.js";

/** A waiter as its lane keeps it. */
export interface LaneWaiter<T> extends Waiter<T> {
  /** Its place; undefined when it no longer waits. */
  node: QueueNode<LaneWaiter<T>> | undefined;
}

/** A waiter that stands nowhere yet. `patienceMs` is how long it waits at most. */
export function newWaiter<T>(
  facts: Pick<Waiter<T>, "request" | "partition" | "rank">,
  now: MonotonicMs,
  patienceMs: number,
): LaneWaiter<T> {
  return {
    ...facts,
    enqueuedAt: now,
    deadline: after(now, patienceMs),
    node: undefined,
  };
}

export class Lanes<T> {
  readonly #lanes: PerClass<LinkedQueue<LaneWaiter<T>>> = perClass(
    () => new LinkedQueue<LaneWaiter<T>>(),
  );
  #size = 0;

  /** Waiters of all lanes. */
  get size(): number {
    return this.#size;
  }

  get depths(): PerClass<number> {
    return perClass((rank) => this.#lanes[rank].size);
  }

  depth(rank: ClassRank): number {
    return this.#lanes[rank].size;
  }

  /** The oldest waiter of a lane. */
  head(rank: ClassRank): LaneWaiter<T> | undefined {
    return this.#lanes[rank].head;
  }

  push(waiter: LaneWaiter<T>): void {
    waiter.node = this.#lanes[waiter.rank].push(waiter);
    this.#size += 1;
  }

  /** Takes a waiter out, wherever it stands; false when it no longer waits. */
  remove(waiter: LaneWaiter<T>): boolean {
    const { node } = waiter;
    if (node === undefined) return false;
    waiter.node = undefined;
    this.#lanes[waiter.rank].remove(node);
    this.#size -= 1;
    return true;
  }

  /** The oldest waiter whose time is over, in any lane. */
  overdue(now: MonotonicMs): LaneWaiter<T> | undefined {
    for (const rank of RANKS) {
      const head = this.#lanes[rank].head;
      if (head !== undefined && head.deadline <= now) return head;
    }
    return undefined;
  }
}

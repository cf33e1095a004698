// Whom to preempt. The question is asked anew whenever something changed, from the state alone: counting
// every victim that is still unwinding as gone, and serving the waiters in their order under the class
// rule, is there one of a class that may preempt which still gets no slot, and would get one if one more
// request gave way? So a burst of waiters marks as many victims as it needs and no more, a victim whose
// waiter has left serves the next one, and nobody is preempted for a waiter behind others that would
// take the slot.
//
// The victim is of the lowest class below the waiter's that has a request before its first byte;
// inside the class the most recently admitted, which has the least work to lose. A request that passed
// a higher class because its lane was starved is no victim, or its lane would starve all the same.

import { LinkedQueue } from "../model/linked-queue.js";
import { perClass, RANKS, RANKS_DOWN, type ClassRank, type PerClass } from "../model/priority.js";
import type { Admitted } from "./permit.js";
import type { SlotPool } from "./slot-pool.js";

type Counts = [number, number, number, number];

/** A victim and the class it gives way to. */
export interface Victim<T> {
  readonly admitted: Admitted<T>;
  readonly by: ClassRank;
}

export class Preemption<T> {
  /** Admitted requests that can be preempted, per class, in the order of admission. */
  readonly open: PerClass<LinkedQueue<Admitted<T>>> = perClass(
    () => new LinkedQueue<Admitted<T>>(),
  );
  /** Victims whose slot is still in use. */
  readonly #unwinding: Counts = [0, 0, 0, 0];

  /**
   * Marks one victim, if one is needed and would help; call it again until it marks none.
   *
   * @param waiting waiters per class
   * @param may whether a class may preempt now
   */
  mark(
    waiting: PerClass<number>,
    may: (rank: ClassRank) => boolean,
    slots: SlotPool,
  ): Victim<T> | undefined {
    for (const rank of RANKS_DOWN) {
      if (waiting[rank] === 0 || !may(rank)) continue;
      const served = this.#served(rank, waiting, slots, undefined);
      if (served >= waiting[rank]) continue;
      const admitted = this.#candidate(rank);
      if (admitted === undefined) continue;
      if (this.#served(rank, waiting, slots, admitted.rank) <= served) continue;
      if (!admitted.preempt()) continue;
      this.#unwinding[admitted.rank] += 1;
      return { admitted, by: rank };
    }
    return undefined;
  }

  /** A request gave its slot back. */
  released(admitted: Admitted<T>): void {
    if (admitted.preempted) this.#unwinding[admitted.rank] -= 1;
  }

  /** Waiters of a class that get a slot once all victims, and one more of `victim`, are gone. */
  #served(
    rank: ClassRank,
    waiting: PerClass<number>,
    slots: SlotPool,
    victim: ClassRank | undefined,
  ): number {
    const change: Counts = [0, 0, 0, 0];
    for (const at of RANKS) change[at] = -this.#unwinding[at];
    if (victim !== undefined) change[victim] -= 1;
    let served = 0;
    for (const at of RANKS_DOWN) {
      if (at < rank) break;
      served = Math.min(waiting[at], slots.availableWith(at, change));
      change[at] += served;
    }
    return served;
  }

  #candidate(rank: ClassRank): Admitted<T> | undefined {
    for (const lower of RANKS) {
      if (lower >= rank) return undefined;
      const latest = this.open[lower].tail;
      if (latest !== undefined) return latest;
    }
    return undefined;
  }
}

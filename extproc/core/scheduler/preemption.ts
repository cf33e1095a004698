// Whom to preempt for a waiter that may. A victim is worth its pain only if the waiter then gets a
// slot under its class rule, counting every victim that is still unwinding as gone and every waiter
// that already counts on one as served. So a burst of waiters marks as many victims as it needs and
// no more, and a victim whose waiter has left serves the next one.
//
// The victim is of the lowest class below the waiter's that has a request before its first byte;
// inside the class the most recently admitted, which has the least work to lose.

import { LinkedQueue } from "../model/linked-queue.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";
import type { LaneWaiter } from "./lanes.js";
import type { Admitted } from "./permit.js";
import type { SlotPool } from "./slot-pool.js";

type Counts = [number, number, number, number];

export class Preemption<T> {
  /** Admitted requests before their first byte, per class, in the order of admission. */
  readonly open: PerClass<LinkedQueue<Admitted<T>>> = perClass(
    () => new LinkedQueue<Admitted<T>>(),
  );
  /** Victims whose slot is still in use. */
  readonly #unwinding: Counts = [0, 0, 0, 0];
  /** Waiters that count on a victim's slot. */
  readonly #expecting: Counts = [0, 0, 0, 0];

  /** Victims still unwinding and waiters that count on them; for checks. */
  get pending(): { readonly unwinding: number; readonly expecting: number } {
    const sum = (counts: Counts): number => counts.reduce((left, right) => left + right, 0);
    return { unwinding: sum(this.#unwinding), expecting: sum(this.#expecting) };
  }

  /**
   * Marks at most one victim for a waiter that found no slot. Undefined when none would help, or none
   * is needed because one is already on its way out.
   */
  markFor(waiter: LaneWaiter<T>, slots: SlotPool): Admitted<T> | undefined {
    const change = perClass((rank) => this.#expecting[rank] - this.#unwinding[rank]);
    if (slots.availableWith(waiter.rank, change) > 0) {
      this.#expect(waiter);
      return undefined;
    }
    const victim = this.#candidate(waiter.rank);
    if (victim === undefined) return undefined;
    const without = perClass((rank) => change[rank] - (rank === victim.rank ? 1 : 0));
    if (slots.availableWith(waiter.rank, without) <= 0 || !victim.preempt()) return undefined;
    this.#unwinding[victim.rank] += 1;
    this.#expect(waiter);
    return victim;
  }

  /** A waiter was served, or gave up. */
  waiterLeft(waiter: LaneWaiter<T>): void {
    if (!waiter.expectsVictim) return;
    waiter.expectsVictim = false;
    this.#expecting[waiter.rank] -= 1;
  }

  /** A request gave its slot back. */
  released(admitted: Admitted<T>): void {
    if (admitted.preempted) this.#unwinding[admitted.rank] -= 1;
  }

  #candidate(rank: ClassRank): Admitted<T> | undefined {
    for (const lower of RANKS) {
      if (lower >= rank) return undefined;
      const latest = this.open[lower].tail;
      if (latest !== undefined) return latest;
    }
    return undefined;
  }

  #expect(waiter: LaneWaiter<T>): void {
    waiter.expectsVictim = true;
    this.#expecting[waiter.rank] += 1;
  }
}

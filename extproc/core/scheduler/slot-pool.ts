// The slots of one partition, and the rule by which a class may take one: a slot is free for a class
// when the capacity exceeds what is in flight plus what is still kept back for higher classes. A
// class's own reservation never hurts it, and a reservation in use no longer counts.
//
// Check and take are one step. A capacity below what is in flight takes nothing away.

import { invariant } from "../model/invariant.js";
import type { ClassRank, PerClass } from "../model/priority.js";

const NOBODY: PerClass<number> = [0, 0, 0, 0];

export class SlotPool {
  #capacity = 0;
  #reserved: PerClass<number> = NOBODY;
  readonly #inFlight: [number, number, number, number] = [0, 0, 0, 0];
  #total = 0;

  get capacity(): number {
    return this.#capacity;
  }

  get total(): number {
    return this.#total;
  }

  get inFlight(): PerClass<number> {
    return [...this.#inFlight];
  }

  get reserved(): PerClass<number> {
    return this.#reserved;
  }

  /** Slots free when reservations are ignored. */
  get free(): number {
    return Math.max(0, this.#capacity - this.#total);
  }

  /**
   * Publishes a capacity with its reservations. Growing raises the reservations first and shrinking
   * lowers the capacity first, so that no moment in between admits more than either state does.
   */
  resize(capacity: number, reserved: PerClass<number>): void {
    invariant(Number.isInteger(capacity) && capacity >= 0, "a capacity is a whole number of slots");
    if (capacity >= this.#capacity) {
      this.#reserved = reserved;
      this.#capacity = capacity;
    } else {
      this.#capacity = capacity;
      this.#reserved = reserved;
    }
  }

  /** Slots a class may take now. */
  available(rank: ClassRank): number {
    return this.availableWith(rank, NOBODY);
  }

  /**
   * Slots a class could take if `change` requests per class were in flight in addition (negative:
   * fewer).
   */
  availableWith(rank: ClassRank, change: PerClass<number>): number {
    let free = Math.max(
      0,
      this.#capacity - this.#total - change[0] - change[1] - change[2] - change[3],
    );
    for (let higher = rank + 1; higher <= 3; higher += 1) {
      const at = higher as ClassRank;
      const kept = this.#reserved[at] - this.#inFlight[at] - change[at];
      if (kept > 0) free = Math.max(0, free - kept);
    }
    return free;
  }

  /** Takes a slot under the class rule. */
  tryTake(rank: ClassRank): boolean {
    if (this.available(rank) <= 0) return false;
    this.#take(rank);
    return true;
  }

  /** Takes a slot that may be kept back for a higher class. */
  tryTakeIgnoringReservations(rank: ClassRank): boolean {
    if (this.free <= 0) return false;
    this.#take(rank);
    return true;
  }

  release(rank: ClassRank): void {
    invariant(this.#inFlight[rank] > 0, "more slots released than taken");
    this.#inFlight[rank] -= 1;
    this.#total -= 1;
  }

  #take(rank: ClassRank): void {
    this.#inFlight[rank] += 1;
    this.#total += 1;
    invariant(this.#total <= this.#capacity, "more slots taken than there are");
  }
}

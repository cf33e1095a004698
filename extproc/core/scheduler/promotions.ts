// Bounds how often a starved lane may pass a higher class. A promotion is contested when a waiter of
// a higher class could have taken the slot; among a partition's last 64 dispatches at most a share of
// them (`starvation_max_share`) may be contested promotions. Without this bound the order of classes
// inverts under sustained overload: once the lowest lane's oldest waiter is over its threshold, every
// freed slot goes to it.
//
// Bound: with k lanes over their threshold and share s, a lane is served within its threshold plus
// 64 x k dispatches of its partition, because within 64 dispatches some promotion is allowed and the
// lane with the fewest goes first.

import type { ClassRank } from "../model/priority.js";

/** Dispatches looked back on. */
export const PROMOTION_WINDOW = 64;

const NONE = -1;

export class PromotionWindow {
  readonly #limit: number;
  readonly #recent: number[] = [];
  #next = 0;
  readonly #perLane: [number, number, number, number] = [0, 0, 0, 0];
  #contested = 0;

  /** @param maxShare share of contested promotions among the last 64 dispatches, 0..1 */
  constructor(maxShare: number) {
    this.#limit = Math.floor(maxShare * PROMOTION_WINDOW);
  }

  /** True while one more contested promotion stays within the bound. */
  get allowsContested(): boolean {
    return this.#contested < this.#limit || this.#limit === PROMOTION_WINDOW;
  }

  /** Contested promotions of a lane among the last 64 dispatches. */
  countOf(rank: ClassRank): number {
    return this.#perLane[rank];
  }

  /** Notes a dispatch; `promoted` is the lane of a contested promotion, undefined otherwise. */
  dispatched(promoted: ClassRank | undefined): void {
    const old = this.#recent[this.#next] ?? NONE;
    if (old !== NONE) {
      this.#perLane[old as ClassRank] -= 1;
      this.#contested -= 1;
    }
    this.#recent[this.#next] = promoted ?? NONE;
    this.#next = (this.#next + 1) % PROMOTION_WINDOW;
    if (promoted !== undefined) {
      this.#perLane[promoted] += 1;
      this.#contested += 1;
    }
  }
}

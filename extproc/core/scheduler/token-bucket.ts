// A token bucket: a capacity, filled at a rate. As a rate check it bounds requests per second with
// bursts up to its capacity; with tokens given back and a rate of 0 it is a semaphore.

import { after, type MonotonicMs } from "../model/time.js";

export class TokenBucket {
  readonly #capacity: number;
  readonly #perSecond: number;
  #tokens: number;
  #filledAt: MonotonicMs;

  /**
   * @param capacity tokens at most, more than 0; it starts full
   * @param perSecond tokens that come back by themselves, 0 or more
   */
  constructor(capacity: number, perSecond: number, now: MonotonicMs) {
    this.#capacity = capacity;
    this.#perSecond = perSecond;
    this.#tokens = capacity;
    this.#filledAt = now;
  }

  /** Takes one token; false when there is none. */
  tryTake(now: MonotonicMs): boolean {
    this.#fill(now);
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Gives one token back, never above the capacity. */
  giveBack(): void {
    this.#tokens = Math.min(this.#capacity, this.#tokens + 1);
  }

  /** The moment at which a token will be there by itself; undefined = never. */
  nextTokenAt(now: MonotonicMs): MonotonicMs | undefined {
    this.#fill(now);
    if (this.#tokens >= 1) return now;
    if (this.#perSecond <= 0) return undefined;
    return after(now, ((1 - this.#tokens) / this.#perSecond) * 1_000);
  }

  #fill(now: MonotonicMs): void {
    if (now <= this.#filledAt) return;
    const filled = this.#tokens + ((now - this.#filledAt) / 1_000) * this.#perSecond;
    this.#tokens = Math.min(this.#capacity, filled);
    this.#filledAt = now;
  }
}

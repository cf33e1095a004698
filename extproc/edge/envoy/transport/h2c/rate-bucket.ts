// Is something happening too often? A bucket that holds a burst and is refilled evenly. It counts what
// a sound peer does seldom, so that a broken one cannot keep the process busy with it.

export class RateBucket {
  readonly #burst: number;
  readonly #perMs: number;
  #level: number;
  #atMs: number;

  constructor(burst: number, perSecond: number, nowMs: number) {
    this.#burst = burst;
    this.#perMs = perSecond / 1_000;
    this.#level = burst;
    this.#atMs = nowMs;
  }

  /** Counts one; false when it is one too many. Time never runs backwards. */
  take(nowMs: number): boolean {
    const refill = (nowMs - this.#atMs) * this.#perMs;
    this.#level = Math.min(this.#burst, this.#level + refill);
    this.#atMs = nowMs;
    if (this.#level < 1) return false;
    this.#level -= 1;
    return true;
  }
}

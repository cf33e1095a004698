// How fast a partition frees its slots: an exponentially weighted moving average of releases per
// second, sampled only when somebody asks for a Retry-After. It turns "n requests are ahead of you"
// into seconds.

import type { MonotonicMs } from "../model/time.js";

/** Weight of the newest observation. */
const ALPHA = 0.25;
/** Observations over a shorter time would be noise. */
const SAMPLE_MIN_MS = 1_000;

export class ReleaseRate {
  #releases = 0;
  #perSecond: number | undefined;
  #sampledAt: MonotonicMs;

  constructor(now: MonotonicMs) {
    this.#sampledAt = now;
  }

  /** Counts one freed slot. */
  released(): void {
    this.#releases += 1;
  }

  /**
   * Seconds until a request with `ahead` others before it may expect a slot: ceil((ahead + 1) /
   * rate), at least 1 and at most `timeoutSecs`; `timeoutSecs` while no slot was ever freed.
   */
  retryAfterS(ahead: number, timeoutSecs: number, now: MonotonicMs): number {
    const elapsedMs = now - this.#sampledAt;
    if (elapsedMs >= SAMPLE_MIN_MS) {
      const observed = this.#releases / (elapsedMs / 1_000);
      if (observed > 0) {
        this.#perSecond =
          this.#perSecond === undefined
            ? observed
            : (1 - ALPHA) * this.#perSecond + ALPHA * observed;
      }
      this.#releases = 0;
      this.#sampledAt = now;
    }
    const longest = Math.max(1, Math.floor(timeoutSecs));
    if (this.#perSecond === undefined) return longest;
    return Math.min(longest, Math.max(1, Math.ceil((ahead + 1) / this.#perSecond)));
  }
}

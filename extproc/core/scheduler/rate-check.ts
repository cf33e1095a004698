// Requests per second in front of the scheduler: one token each, none given back. It does not look at
// concurrency, which is the scheduler's, so that no limit counts twice.

import type { MonotonicMs } from "../model/time.js";
import { TokenBucket } from "./token-bucket.js";

export type RateVerdict =
  | { readonly allowed: true }
  | {
      readonly allowed: false;
      /** Whole seconds until a token is there, at least 1. */
      readonly retryAfterS: number;
    };

const ALLOWED: RateVerdict = { allowed: true };

export class RateCheck {
  readonly #bucket: TokenBucket;

  /** @param burst requests that may come at once; the fleet's slots */
  constructor(perSecond: number, burst: number, now: MonotonicMs) {
    this.#bucket = new TokenBucket(burst, perSecond, now);
  }

  take(now: MonotonicMs): RateVerdict {
    if (this.#bucket.tryTake(now)) return ALLOWED;
    const at = this.#bucket.nextTokenAt(now) ?? now;
    return { allowed: false, retryAfterS: Math.max(1, Math.ceil((at - now) / 1_000)) };
  }
}

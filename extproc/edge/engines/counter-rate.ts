// Tokens per second of an engine that only counts: the growth of its counters between two scrapes. A
// counter that went down was reset and begins anew; so does one that was not there before. Either makes
// this one rate unknown, since a part of a sum looks like a slower engine. After a long gap the mean
// over it says nothing about now, and the counters begin anew as well.

import type { MonotonicMs } from "../../core/model/time.js";
import type { TokenCounters } from "./parsed.js";

/** Two scrapes closer than this give a rate that is mostly noise; the earlier one is kept. */
export const RATE_GAP_MIN_MS = 100;
/** Two scrapes further apart than this are a new start. */
export const RATE_GAP_MAX_MS = 300_000;

export class CounterRate {
  #counters: TokenCounters | undefined;
  #at: MonotonicMs | undefined;

  /**
   * Takes the counters of a scrape.
   *
   * @returns tokens per second since the scrape before, 0 or more; undefined = unknown
   */
  observe(counters: TokenCounters, at: MonotonicMs): number | undefined {
    const before = this.#counters;
    const gapMs = this.#at === undefined ? Number.POSITIVE_INFINITY : at - this.#at;
    if (before !== undefined && gapMs < RATE_GAP_MIN_MS) return undefined;
    this.#counters = counters;
    this.#at = at;
    if (before === undefined || gapMs > RATE_GAP_MAX_MS) return undefined;
    const tokens = growth(before, counters);
    return tokens === undefined ? undefined : (tokens * 1_000) / gapMs;
  }
}

/** Growth of all series together; undefined unless the same series grew or stood still. */
function growth(before: TokenCounters, counters: TokenCounters): number | undefined {
  if (counters.size === 0 || before.size !== counters.size) return undefined;
  let tokens = 0;
  for (const [series, value] of counters) {
    const old = before.get(series);
    // Written so that NaN is no growth either.
    if (old === undefined || !(value >= old)) return undefined;
    tokens += value - old;
  }
  return Number.isFinite(tokens) ? tokens : undefined;
}

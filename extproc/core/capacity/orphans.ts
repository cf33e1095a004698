// Which requests at the workers are not Weir's own? After a restart the engines still run what the
// last process sent them. Weir does not count these requests, and without them it would fill every
// slot a second time. Owns one count per worker, which only ever falls: what a worker runs beyond
// Weir's own live load when it is first heard of, and never more than any later sample leaves room
// for. After ten minutes the count is 0 for good, because what still runs beyond the live load then is
// a difference of sampling times and not a rest of the last process.
//
// Without telemetry the count is 0: an unknown rest cannot be held back. Requests, monotonic
// milliseconds.

import { after, type MonotonicMs } from "../model/time.js";

/** Longer than the answers of the last process usually run on. */
export const ORPHAN_AGE_MAX_MS = 600_000;

interface WorkerOrphans {
  count: number;
  readonly until: MonotonicMs;
}

export class Orphans {
  readonly #byUrl = new Map<string, WorkerOrphans>();

  /**
   * Takes one sample of a worker; the first one of its url starts the count.
   *
   * @param running requests the worker reports as running
   * @param liveLoad Weir's own count of requests in flight to it
   */
  observe(url: string, running: number, liveLoad: number, now: MonotonicMs): void {
    const beyond = Math.max(0, running - liveLoad);
    const known = this.#byUrl.get(url);
    if (known === undefined) {
      const until = after(now, ORPHAN_AGE_MAX_MS);
      this.#byUrl.set(url, { count: beyond, until });
      return;
    }
    known.count = now < known.until ? Math.min(known.count, beyond) : 0;
  }

  /** Requests of the last process at the workers of these urls. */
  total(urls: Iterable<string>, now: MonotonicMs): number {
    let sum = 0;
    for (const url of urls) {
      const known = this.#byUrl.get(url);
      if (known !== undefined && now < known.until) sum += known.count;
    }
    return sum;
  }

  /** Ends the count of a worker that was removed; registered anew it is a new worker. */
  forget(url: string): void {
    this.#byUrl.delete(url);
  }
}

// What one request holds, in the order in which it is given back.

import type { MonotonicMs } from "../model/time.js";

/** Gives one thing back; calling it again does nothing. */
export type Release = (now: MonotonicMs) => void;

export class Holdings {
  readonly #releases: Release[] = [];

  /** Gives this back after everything that is held already. */
  addLast(release: Release): void {
    this.#releases.push(release);
  }

  /** Gives this back before everything that is held already. */
  addFirst(release: Release): void {
    this.#releases.unshift(release);
  }

  /** Gives everything back, each thing once; a fault in one step does not keep the rest. */
  giveBack(now: MonotonicMs): void {
    const next = this.#releases.shift();
    if (next === undefined) return;
    try {
      next(now);
    } finally {
      this.giveBack(now);
    }
  }
}

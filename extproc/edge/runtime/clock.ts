// The process's monotonic clock, and a timer that wakes the core at its next deadline.

import { monotonicMs, type MonotonicMs } from "../../core/model/time.js";

/** Monotonic milliseconds since the process started. */
export const now = (): MonotonicMs => monotonicMs(performance.now());

/** Longest delay a timer takes; a later deadline is simply armed again. */
const DELAY_MAX_MS = 2_147_483_647;

/** One pending wake-up: the earliest of all that were asked for. */
export class DeadlineTimer {
  readonly #wake: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;

  /** @param wake called at or shortly after the armed moment; it arms the next one */
  constructor(wake: () => void) {
    this.#wake = wake;
  }

  /** Asks for a wake-up at `at`; an earlier one already armed stays. */
  arm(at: MonotonicMs | undefined): void {
    if (at === undefined || at >= this.#at) return;
    this.stop();
    this.#at = at;
    const delayMs = Math.min(Math.max(0, Math.ceil(at - now())), DELAY_MAX_MS);
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.#timer = undefined;
      // A timer of the runtime may fire a fraction of a millisecond early.
      if (now() < at) this.arm(at);
      else this.#wake();
    }, delayMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#at = Number.POSITIVE_INFINITY;
  }
}

// Circuit breaker of one worker: takes a worker out of selection when its answers fail, and lets one
// probe through after a pause. It opens after N failures in a row, or when at least M answers were
// seen inside the window and the failing share reached the ratio. The window is kept in ten slots,
// so memory does not grow with traffic and an answer leaves the count at most a tenth late.
//
// Only answers that say something about the worker count (settlement's worker verdict); a client
// that left, an overflow of Envoy's own limits or a missing cluster is neutral.

import type { BreakerConfig } from "../model/config.js";
import { after, type MonotonicMs } from "../model/time.js";

export type BreakerState = "closed" | "open" | "half_open";
export type BreakerVerdict = "success" | "failure" | "neutral";

/** Says under which breaker state a request was sent; handed back with its verdict. */
export interface BreakerTicket {
  readonly probe: boolean;
  readonly epoch: number;
}

const SLOTS = 10;

interface Slot {
  index: number;
  total: number;
  failed: number;
}

export class Breaker {
  readonly #config: BreakerConfig;
  readonly #slotMs: number;
  /** Sparse: a slot is there once an answer fell into it. */
  readonly #slots: (Slot | undefined)[] = [];
  #failuresInRow = 0;
  #openUntil: MonotonicMs | undefined;
  #probing = false;
  /** Counts openings and closings: a verdict of an earlier epoch no longer matters. */
  #epoch = 0;

  constructor(config: BreakerConfig) {
    this.#config = config;
    this.#slotMs = (config.window_secs * 1000) / SLOTS;
  }

  state(now: MonotonicMs): BreakerState {
    if (this.#openUntil === undefined) return "closed";
    return now >= this.#openUntil ? "half_open" : "open";
  }

  /** True when a request may be sent now: closed, or half open with no probe under way. */
  admits(now: MonotonicMs): boolean {
    const state = this.state(now);
    return state === "closed" || (state === "half_open" && !this.#probing);
  }

  /** Notes that a request goes to the worker; the first one of a half-open breaker is its probe. */
  begin(now: MonotonicMs): BreakerTicket {
    const probe = this.state(now) === "half_open" && !this.#probing;
    if (probe) this.#probing = true;
    return { probe, epoch: this.#epoch };
  }

  /** Takes the verdict on a request that `begin` announced. Call it once per ticket. */
  record(ticket: BreakerTicket, verdict: BreakerVerdict, now: MonotonicMs): void {
    if (ticket.epoch !== this.#epoch) return;
    if (ticket.probe) {
      this.#probing = false;
      if (verdict === "success") this.#close();
      else if (verdict === "failure") this.#open(now);
      return;
    }
    if (verdict === "neutral" || this.#openUntil !== undefined) return;
    const failed = verdict === "failure";
    this.#failuresInRow = failed ? this.#failuresInRow + 1 : 0;
    this.#count(failed, now);
    if (failed && this.#mustOpen(now)) this.#open(now);
  }

  #mustOpen(now: MonotonicMs): boolean {
    if (this.#failuresInRow >= this.#config.consecutive_failures) return true;
    const oldest = Math.floor(now / this.#slotMs) - SLOTS;
    let total = 0;
    let failed = 0;
    for (const slot of this.#slots) {
      if (slot === undefined || slot.index <= oldest) continue;
      total += slot.total;
      failed += slot.failed;
    }
    return total >= this.#config.window_requests && failed >= total * this.#config.failure_ratio;
  }

  #count(failed: boolean, now: MonotonicMs): void {
    const index = Math.floor(now / this.#slotMs);
    const at = ((index % SLOTS) + SLOTS) % SLOTS;
    let slot = this.#slots[at];
    if (slot?.index !== index) {
      slot = { index, total: 0, failed: 0 };
      this.#slots[at] = slot;
    }
    slot.total += 1;
    if (failed) slot.failed += 1;
  }

  #open(now: MonotonicMs): void {
    this.#openUntil = after(now, this.#config.open_secs * 1000);
    this.#reset();
  }

  #close(): void {
    this.#openUntil = undefined;
    this.#reset();
  }

  #reset(): void {
    this.#epoch += 1;
    this.#probing = false;
    this.#failuresInRow = 0;
    this.#slots.length = 0;
  }
}

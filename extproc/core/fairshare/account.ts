// What one tenant has cost: token totals of the whole process, whatever the model or the partition, and
// its entry in each clock it has ever contended in.

import type { ClockEntry, FairClock } from "./fair-clock.js";

export class Account {
  readonly key: string;
  /** Named in the configuration; it is never forgotten. */
  readonly listed: boolean;
  /** Output tokens charged for good, since the account exists. */
  charged = 0;
  /** Output tokens booked for running requests. */
  reserved = 0;
  /** Requests that wait or run. */
  queued = 0;
  active = 0;
  readonly #entries = new Map<FairClock, ClockEntry>();

  constructor(key: string, listed: boolean) {
    this.key = key;
    this.listed = listed;
  }

  /** Its entry in a clock, made with this weight when it contends there for the first time. */
  entryIn(clock: FairClock, weight: number): ClockEntry {
    let entry = this.#entries.get(clock);
    if (entry === undefined) {
      entry = clock.add(this.key, weight);
      this.#entries.set(clock, entry);
    }
    return entry;
  }

  /** Its entry in a clock; undefined when it never contended there. */
  existingEntry(clock: FairClock): ClockEntry | undefined {
    return this.#entries.get(clock);
  }

  /** True when forgetting it would earn its tenant nothing: idle, and ahead in no clock. */
  get isSpent(): boolean {
    for (const [clock, entry] of this.#entries) if (!clock.isSpent(entry)) return false;
    return true;
  }

  /** Takes its entries out of the clocks. */
  close(): void {
    for (const [clock, entry] of this.#entries) clock.forget(entry);
    this.#entries.clear();
  }
}

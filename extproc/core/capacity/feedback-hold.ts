// What did a worker last report, when its newest poll failed? One lost poll says nothing about the
// engine, but it may push the coverage below its minimum, and then the static limit holds: for one
// interval a partition would send its engines everything that waits. So the last reading stands in
// until it is as old as any reading may be. A worker that was never heard of stays unknown, and so
// does one that has been silent for longer.
//
// Owns the last reading of each healthy worker of one partition and when it first came; monotonic
// milliseconds. The same object is the same sample: bringing it again does not make it younger.

import type { MonotonicMs } from "../model/time.js";
import type { ObservedWorker, WorkerReading } from "./feedback-inputs.js";

/** Age from which a reading is unknown, the same wherever readings of engines are used. */
export const READING_AGE_MAX_MS = 30_000;

export interface HeldReadings {
  readonly workers: readonly ObservedWorker[];
  /** At least one worker brought a sample that was not there before. */
  readonly fresh: boolean;
  /** Workers whose last reading stands in for a lost poll. */
  readonly held: number;
}

interface LastReading {
  readonly reading: WorkerReading;
  readonly since: MonotonicMs;
}

export class ReadingHold {
  readonly #ageMaxMs: number;
  #last = new Map<string, LastReading>();

  /** @param ageMaxMs 0 = a lost poll makes a worker unknown at once */
  constructor(ageMaxMs: number = READING_AGE_MAX_MS) {
    this.#ageMaxMs = ageMaxMs;
  }

  /** Takes one publication, all healthy workers of the partition, and fills its gaps. */
  apply(workers: readonly ObservedWorker[], now: MonotonicMs): HeldReadings {
    const next = new Map<string, LastReading>();
    let fresh = false;
    let held = 0;
    const filled = workers.map((worker): ObservedWorker => {
      const { url, reading } = worker;
      const last = this.#last.get(url);
      if (reading === undefined) {
        if (last === undefined || now - last.since >= this.#ageMaxMs) return worker;
        next.set(url, last);
        held += 1;
        return { url, reading: last.reading };
      }
      const known = last?.reading === reading;
      if (!known) fresh = true;
      next.set(url, known ? last : { reading, since: now });
      return worker;
    });
    this.#last = next;
    return { workers: filled, fresh, held };
  }
}

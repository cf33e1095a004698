// Which workers are under too much pressure by what their engines report? Pressure is the highest of
// KV usage and utilization over the ranks of a worker: one full rank makes its requests wait. Where every
// candidate has a known ceiling of running requests, it is also the part of that ceiling in use: what the
// engine ran and queued, and what Weir has sent it and got back since. A cache can be nearly empty while
// requests queue for a slot, and a report of ten seconds ago alone would send everybody to whoever was
// calm then. A plan exists only when every candidate has a sample that is young enough; with one of them unknown, the
// unknown worker would look either full or idle, and both are guesses. Then counts decide.
//
// The limit is near the calmest candidate: 0.10 above its pressure, and at most 0.90; when even the
// calmest is above 0.90, only the calmest is left.

import type { MonotonicMs } from "../model/time.js";
import type { WorkerSample } from "../workers/telemetry.js";
import {
  SAMPLE_AGE_MAX_MS,
  type TelemetryEntry,
  type TelemetryStore,
} from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";

/** From here on a worker is hot. */
export const PRESSURE_HIGH = 0.9;
/** Workers this close to the calmest are as good as it. */
const PRESSURE_SLACK = 0.1;

/** What an engine reported, unless it is too old to say anything about now. */
export function freshEntry(
  telemetry: TelemetryStore | undefined,
  worker: Worker,
  now: MonotonicMs,
): TelemetryEntry | undefined {
  const entry = telemetry?.get(worker.identity);
  if (entry === undefined || now - entry.observedAt > SAMPLE_AGE_MAX_MS) return undefined;
  return entry;
}

/** The plan for these workers; undefined when the pressure of any of them is unknown. */
export function planPressure(
  workers: readonly Worker[],
  telemetry: TelemetryStore | undefined,
  now: MonotonicMs,
): PressurePlan | undefined {
  const readings = new Map<Worker, Reading>();
  let slotsKnown = true;
  for (const worker of workers) {
    const entry = freshEntry(telemetry, worker, now);
    const pressure = entry === undefined ? undefined : pressureOf(entry.sample);
    if (entry === undefined || pressure === undefined) return undefined;
    readings.set(worker, { pressure, waiting: entry.load.waiting, entry });
    slotsKnown &&= entry.load.maxRunning !== undefined;
  }
  if (slotsKnown) {
    for (const [worker, reading] of readings) {
      reading.pressure = Math.max(reading.pressure, occupancy(worker, reading.entry));
    }
  }
  return new PressurePlan(workers, readings);
}

interface Reading {
  pressure: number;
  readonly waiting: number;
  readonly entry: TelemetryEntry;
}

export class PressurePlan {
  /** Candidates within the limit, in the order of the candidates. */
  readonly allowed: readonly Worker[];
  readonly #readings: ReadonlyMap<Worker, Reading>;

  constructor(workers: readonly Worker[], readings: ReadonlyMap<Worker, Reading>) {
    this.#readings = readings;
    this.allowed = this.calmest(workers);
  }

  /** A worker that is not part of the plan counts as full. */
  pressure(worker: Worker): number {
    return this.#readings.get(worker)?.pressure ?? Infinity;
  }

  /** True when every one of these is hot. */
  allHot(workers: readonly Worker[]): boolean {
    return workers.every((worker) => this.pressure(worker) > PRESSURE_HIGH);
  }

  /** Those of the workers that are within the limit that the calmest of them sets. */
  calmest(workers: readonly Worker[]): readonly Worker[] {
    let best = Infinity;
    for (const worker of workers) best = Math.min(best, this.pressure(worker));
    const limit = best > PRESSURE_HIGH ? best : Math.min(best + PRESSURE_SLACK, PRESSURE_HIGH);
    return workers.filter((worker) => this.pressure(worker) <= limit);
  }

  /** Prefers less pressure, then fewer requests waiting inside the engine. */
  readonly calmer = (a: Worker, b: Worker): number => {
    const one = this.#readings.get(a);
    const other = this.#readings.get(b);
    if (one === undefined || other === undefined) return 0;
    return one.pressure - other.pressure || one.waiting - other.waiting;
  };
}

/** Requests at the engine now, as a part of what it runs at once; above 1 when some wait. */
function occupancy({ runtime }: Worker, { load, liveLoadAtObservation }: TelemetryEntry): number {
  const { running, waiting, maxRunning = 1 } = load;
  const since = runtime.liveLoad - liveLoadAtObservation;
  return Math.max(0, running + waiting + since) / maxRunning;
}

/** Undefined when the engine reported no rank or nothing that can be compared. */
function pressureOf(sample: WorkerSample): number | undefined {
  let pressure = -1;
  for (const { tokenUsage, utilization } of sample.ranks) {
    pressure = Math.max(pressure, tokenUsage, utilization ?? 0);
  }
  return pressure >= 0 && Number.isFinite(pressure) ? pressure : undefined;
}

// How many seeds could each worker of a model take now? The answer counts what the engine reports and
// what Weir has under way, whichever is more, and leaves nothing to a worker that anybody waits for:
//
//   occupied = max(running + waiting, live load)
//   raw      = ceiling - occupied - claims          claims: a lease and ordinary choices not yet sent
//   slots    = raw, if the partition has no seed under way, nobody has a claim on the worker, nobody
//              waits in its engine, and its pressure is below the limit; else 0
//
// A worker that is hot, full or leased stays in the list with 0 slots, so that an owner can be shown to
// be full; one that is not known beyond doubt is left out. The list is advice: taking a lease asks
// everything again. It never adds capacity to any queue. Pure reading; O(workers of the model).

import type { ModelId, PartitionName } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import type { Fleet } from "../selection/candidates.js";
import type { Bookings } from "../workers/bookings.js";
import type { TelemetryStore } from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";
import { SEED_CAP, seedsIn, type SeedingRules } from "./rules.js";
import {
  readStrict,
  RECORD_FAULTS,
  type StrictReading,
  type StrictRecord,
} from "./strict-record.js";

/** Most slots that one worker is said to have. */
export const SLOTS_MAX = 65_535;

/** Why a known worker has no slots, in the order in which it is asked. */
export const SLOT_BLOCKS = [
  "seed_under_way",
  "worker_leased",
  "worker_claimed",
  "not_clean",
  "full",
] as const;
export type SlotBlock = (typeof SLOT_BLOCKS)[number];

/** Why a worker is not in the list at all. */
export const HEADROOM_GAPS = ["unusable", ...RECORD_FAULTS] as const;
export type HeadroomGap = (typeof HEADROOM_GAPS)[number];

export interface HeadroomTarget {
  readonly worker: Worker;
  readonly record: StrictRecord;
  /** Requests that the worker has, by the engine's word or by Weir's own count. */
  readonly occupied: number;
  /** Seeds that it could take, 0..SLOTS_MAX. */
  readonly slots: number;
  /** Undefined exactly when there are slots. */
  readonly block: SlotBlock | undefined;
}

/** One worker of a model, known or not. */
export type WorkerHeadroom =
  | { readonly known: true; readonly target: HeadroomTarget }
  | { readonly known: false; readonly worker: Worker; readonly gap: HeadroomGap };

export interface HeadroomOptions {
  readonly fleet: Fleet;
  readonly rules: SeedingRules;
  /** What the engines report; undefined when nothing is asked of them. */
  readonly telemetry: Pick<TelemetryStore, "get"> | undefined;
  readonly bookings: Bookings;
  /** Leases that are held in a partition. */
  readonly leasesIn: (partition: PartitionName) => number;
}

/** Nobody waits in the engine, and it is strictly below the limit of pressure. */
export function isClean(
  { waiting, pressure }: StrictRecord,
  { maxTokenUsage }: SeedingRules,
): boolean {
  return waiting === 0 && pressure < maxTokenUsage;
}

/** Requests that the worker of a record has now. */
export function occupiedOf({ running, waiting, worker }: StrictRecord): number {
  return Math.max(running + waiting, worker.runtime.liveLoad);
}

export class Headroom {
  readonly #options: HeadroomOptions;

  constructor(options: HeadroomOptions) {
    this.#options = options;
  }

  /** What is known of exactly this worker now. */
  record(worker: Worker, now: MonotonicMs): StrictReading {
    return readStrict(this.#options.telemetry?.get(worker.identity), worker, now);
  }

  /**
   * The known workers of a model in a partition, by ascending url; none where seeding is off. `model`
   * is canonical: no worker serves an alias, so asking with one finds nobody.
   */
  snapshot(partition: PartitionName, model: ModelId, now: MonotonicMs): readonly HeadroomTarget[] {
    if (!seedsIn(this.#options.rules, partition)) return [];
    return this.survey(partition, model, now).flatMap((each) => (each.known ? [each.target] : []));
  }

  /** Every worker of a model in a partition, by ascending url, the unknown ones with their reason. */
  survey(partition: PartitionName, model: ModelId, now: MonotonicMs): readonly WorkerHeadroom[] {
    const { registry, partitionOf } = this.#options.fleet;
    return registry
      .serving(model)
      .filter((worker) => partitionOf(worker, model) === partition)
      .sort((one, other) => (one.identity.url < other.identity.url ? -1 : 1))
      .map((worker) => this.#assess(worker, partition, now));
  }

  #assess(worker: Worker, partition: PartitionName, now: MonotonicMs): WorkerHeadroom {
    // A breaker's probe is no request to found a cache on.
    const isClosed = worker.runtime.breaker.state(now) === "closed";
    if (!worker.healthy || !isClosed) return { known: false, worker, gap: "unusable" };
    const reading = this.record(worker, now);
    if (!reading.ok) return { known: false, worker, gap: reading.fault };
    const { record } = reading;
    const { generation } = worker.identity;
    const { bookings, rules, leasesIn } = this.#options;
    const occupied = occupiedOf(record);
    const leased = bookings.leaseOf(generation) !== undefined;
    const claims = bookings.claims(generation);
    const room = record.maxRunning - occupied - claims - (leased ? 1 : 0);
    let block: SlotBlock | undefined;
    if (leasesIn(partition) >= SEED_CAP) block = "seed_under_way";
    else if (leased) block = "worker_leased";
    else if (claims > 0) block = "worker_claimed";
    else if (!isClean(record, rules)) block = "not_clean";
    else if (room <= 0) block = "full";
    const slots = block === undefined ? Math.min(SLOTS_MAX, room) : 0;
    return { known: true, target: { worker, record, occupied, slots, block } };
  }
}

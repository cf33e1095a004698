// What is known now about the load of each worker? The published samples, one per worker, each bound to
// the identity (url, id, generation, revision) it was taken from. A publication replaces a whole group
// in one step: who failed is gone, so presence means fresh. An entry leaves at once with its worker,
// when the worker is replaced or unhealthy. The time at which a sample was first seen is remembered
// also while the entry is away: an engine that repeats one old sample cannot make it young again.
// Revisions count publications and never requests.

import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import type { WorkerRegistry } from "./registry.js";
import { sameSample, workerLoad, type WorkerLoad, type WorkerSample } from "./telemetry.js";
import type { Worker, WorkerIdentity } from "./worker.js";

/** A sample that an engine still repeats after this long says nothing about now. */
export const SAMPLE_AGE_MAX_MS = 30_000;

export interface TelemetryEntry {
  readonly identity: WorkerIdentity;
  readonly sample: WorkerSample;
  /** The sample as the rules of admission read it, with the worker's label. */
  readonly load: WorkerLoad;
  /** When this sample was first seen. */
  readonly observedAt: MonotonicMs;
  /** The publication in which this sample first appeared. */
  readonly revision: number;
  /** Weir's own requests in flight to the worker when the sample was first seen. */
  readonly liveLoadAtObservation: number;
}

/** One successful poll. */
export interface TelemetryDelivery {
  readonly identity: WorkerIdentity;
  readonly sample: WorkerSample;
  readonly observedAt: MonotonicMs;
  /** Weir's own requests in flight to the worker at `observedAt`. */
  readonly liveLoad: number;
}

export interface PublicationResult {
  /** Workers that repeated one sample for longer than `SAMPLE_AGE_MAX_MS`; they have no entry. */
  readonly stale: readonly WorkerIdentity[];
}

export interface TelemetryStoreOptions {
  readonly workers: Pick<WorkerRegistry, "get">;
  /** Called once after each publication, when all of it can be read. */
  readonly onPublished: () => void;
}

export class TelemetryStore {
  readonly #options: TelemetryStoreOptions;
  readonly #entries = new Map<string, TelemetryEntry>();
  /** The last sample of each worker, with an entry or without. */
  readonly #lastSeen = new Map<string, TelemetryEntry>();
  #revision = 0;

  constructor(options: TelemetryStoreOptions) {
    this.#options = options;
  }

  /** Publications so far. */
  get revision(): number {
    return this.#revision;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Workers whose last sample is remembered, with an entry or without: never more than are registered. */
  get remembered(): number {
    return this.#lastSeen.size;
  }

  /** The entry of exactly this worker: never one of a predecessor under the same url. */
  get(identity: WorkerIdentity): TelemetryEntry | undefined {
    const entry = this.#entries.get(identity.url);
    return entry !== undefined && sameWorker(entry.identity, identity) ? entry : undefined;
  }

  /** Every entry of a worker that is registered and healthy now. */
  *all(): IterableIterator<TelemetryEntry> {
    for (const entry of this.#entries.values()) {
      if (this.#isCurrent(entry.identity)) yield entry;
    }
  }

  /**
   * Replaces what is known of a group: every url of it loses its entry, then the deliveries come in.
   * A delivery of a worker that was removed, replaced or found unhealthy meanwhile is dropped.
   *
   * @param urls the whole group, polled or not; each delivery's url is one of them
   */
  publish(
    urls: Iterable<string>,
    deliveries: readonly TelemetryDelivery[],
    now: MonotonicMs,
  ): PublicationResult {
    this.#revision += 1;
    const group = new Set(urls);
    for (const url of group) this.#entries.delete(url);
    const stale: WorkerIdentity[] = [];
    for (const delivery of deliveries) {
      const { identity } = delivery;
      invariant(group.has(identity.url), `delivery of ${identity.url} outside its group`);
      const worker = this.#current(identity);
      if (worker === undefined) continue;
      const entry = this.#entryOf(delivery, worker);
      this.#lastSeen.set(identity.url, entry);
      if (now - entry.observedAt > SAMPLE_AGE_MAX_MS) stale.push(identity);
      else this.#entries.set(identity.url, entry);
    }
    this.#options.onPublished();
    return { stale };
  }

  /**
   * Drops what belongs to workers that are gone, replaced or unhealthy. To be called on every change
   * of the registry, whose own event tells everybody else; true when an entry left.
   */
  prune(): boolean {
    let changed = false;
    for (const [url, entry] of this.#entries) {
      if (this.#isCurrent(entry.identity)) continue;
      this.#entries.delete(url);
      changed = true;
    }
    for (const [url, entry] of this.#lastSeen) {
      const worker = this.#options.workers.get(url);
      if (worker === undefined || !sameWorker(worker.identity, entry.identity)) {
        this.#lastSeen.delete(url);
      }
    }
    return changed;
  }

  /** The entry for a delivery: the earlier one when the engine gave the same sample again. */
  #entryOf(delivery: TelemetryDelivery, worker: Worker): TelemetryEntry {
    const { identity, sample, observedAt, liveLoad } = delivery;
    const last = this.#lastSeen.get(identity.url);
    if (
      last !== undefined &&
      sameWorker(last.identity, identity) &&
      sameSample(last.sample.token, sample.token)
    ) {
      return last;
    }
    return {
      identity,
      sample,
      load: workerLoad(sample, worker.labels.max_running_requests),
      observedAt,
      revision: this.#revision,
      liveLoadAtObservation: liveLoad,
    };
  }

  #current(identity: WorkerIdentity): Worker | undefined {
    const worker = this.#options.workers.get(identity.url);
    return worker?.healthy === true && sameWorker(worker.identity, identity) ? worker : undefined;
  }

  #isCurrent(identity: WorkerIdentity): boolean {
    return this.#current(identity) !== undefined;
  }
}

function sameWorker(a: WorkerIdentity, b: WorkerIdentity): boolean {
  return (
    a.url === b.url && a.id === b.id && a.generation === b.generation && a.revision === b.revision
  );
}

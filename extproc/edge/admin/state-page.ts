// What `GET /state` shows: the workers, the partitions, how many requests are where and how many slots are
// held by credits, as they are at this moment. It names no tenant, no request and no credit.

import type { CreditsConfig } from "../../core/model/config.js";
import { PRIORITY_CLASSES, type ClassRank, type PerClass } from "../../core/model/priority.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { RequestDesk } from "../../core/request/request-desk.js";
import { sumOf, type PartitionView } from "../../core/scheduler/admission.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";

/** A table per class as an object with the classes' names. */
function byClass<T>(table: PerClass<T>): Readonly<Record<string, T>> {
  return Object.fromEntries(PRIORITY_CLASSES.map((name, rank) => [name, table[rank as ClassRank]]));
}

function partitionState(view: PartitionView): object {
  return {
    name: view.name,
    capacity: view.capacity ?? null,
    queue_size: view.queue_size,
    in_flight: sumOf(view.in_flight),
    queued: sumOf(view.queued),
    classes: {
      in_flight: byClass(view.in_flight),
      queued: byClass(view.queued),
      reserved: byClass(view.reserved),
      retry_after_secs: byClass(view.retry_after_secs),
    },
  };
}

export interface StateSources {
  readonly desk: RequestDesk;
  readonly workers: WorkerRegistry;
  readonly credits: Pick<CreditsConfig, "generation" | "required">;
}

export function statePage(
  { desk, workers: registry, credits }: StateSources,
  ready: boolean,
  now: MonotonicMs,
): object {
  const { live, queued } = desk.counts;
  const partitions = desk.partitions(now);
  return {
    ready,
    draining: desk.draining,
    requests: { live, queued },
    partitions: partitions.map(partitionState),
    credits: creditState(desk, credits, partitions),
    workers: Array.from(registry.all(), (worker) => ({
      ...worker.identity,
      cluster: worker.cluster,
      engine: worker.engine,
      models: [...worker.models],
      labels: worker.labels,
      health: worker.runtime.health.status,
      breaker: worker.runtime.breaker.state(now),
      live_load: worker.runtime.liveLoad,
    })),
  };
}

/** Null while credits are off. */
function creditState(
  { credits: registry }: RequestDesk,
  { generation, required }: StateSources["credits"],
  partitions: readonly PartitionView[],
): object | null {
  if (registry === undefined) return null;
  return {
    generation,
    required,
    remembered: registry.remembered,
    active: Object.fromEntries(partitions.map(({ name }) => [name, registry.active(name)])),
  };
}

// Which workers come into question for a request? Those that serve the model in the admitted partition
// and are usable now are healthy; of these the ones that the trusted headers leave and that no seed has
// for itself are selectable. The difference matters: an owner that a header excludes is still an owner.
// One pass over the model's workers, two lists and nothing per worker.

import type { ModelId, PartitionName } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import type { Bookings } from "../workers/bookings.js";
import type { WorkerRegistry } from "../workers/registry.js";
import type { Worker } from "../workers/worker.js";
import type { SelectionQuery } from "./decision.js";

/** Where workers are looked up. */
export interface Fleet {
  readonly registry: WorkerRegistry;
  readonly partitionOf: (worker: Worker, model: ModelId) => PartitionName;
}

export interface Candidates {
  readonly healthy: readonly Worker[];
  readonly selectable: readonly Worker[];
  /** Healthy workers that a seed of this model and partition has for itself. */
  readonly leases: number;
  /** A healthy worker that the headers allow is left out because a seed has it. */
  readonly withheld: boolean;
}

type Constraints = Pick<SelectionQuery, "targetWorkerUrl" | "excludedWorkerUrls">;

/** True when some worker of the partition is configured for the model, usable or not. */
export function isServed(fleet: Fleet, model: ModelId, partition: PartitionName): boolean {
  return fleet.registry
    .serving(model)
    .some((worker) => fleet.partitionOf(worker, model) === partition);
}

/** The candidates of a request, in the order of registration. */
export function findCandidates(
  fleet: Fleet,
  bookings: Bookings,
  query: SelectionQuery,
  now: MonotonicMs,
): Candidates {
  const { model, partition } = query;
  const healthy: Worker[] = [];
  const selectable: Worker[] = [];
  let leases = 0;
  let withheld = false;
  for (const worker of fleet.registry.serving(model)) {
    if (fleet.partitionOf(worker, model) !== partition) continue;
    const lease = bookings.leaseOf(worker.identity.generation);
    const taken =
      lease?.exclusive === true && lease.model === model && lease.partition === partition;
    if (!worker.usable(now)) continue;
    healthy.push(worker);
    if (taken) leases += 1;
    if (!isAllowed(worker, query)) continue;
    if (!taken) selectable.push(worker);
    else withheld = true;
  }
  return { healthy, selectable, leases, withheld };
}

/** Whether the trusted headers of a request leave this worker. */
export function isAllowed(
  worker: Worker,
  { targetWorkerUrl, excludedWorkerUrls }: Constraints,
): boolean {
  const { url } = worker.identity;
  if (targetWorkerUrl !== undefined) return url === targetWorkerUrl;
  return !excludedWorkerUrls.includes(url);
}

// The number of slots of every partition now: a pure function of the configuration and of the
// healthy workers. Whoever owns the slots asks again whenever the registry reports a change.

import { GLOBAL_PARTITION, type SchedulerConfig } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import type { Worker } from "../workers/worker.js";
import { globalCapacity } from "./global-capacity.js";
import { splitByWeight } from "./partition-split.js";

/**
 * Static partitions share min(fleet capacity, sum of their maxima) in proportion to their maxima;
 * without configured partitions the one partition `global` gets the fleet's capacity.
 */
export function partitionCapacities(
  scheduler: SchedulerConfig,
  workers: Iterable<Worker>,
): Map<PartitionName, number> {
  const ceilings: (number | undefined)[] = [];
  for (const worker of workers) {
    if (worker.healthy) ceilings.push(worker.labels.max_running_requests);
  }
  const fleet = globalCapacity(ceilings, scheduler.max_concurrent_requests);
  if (scheduler.admission_partitions.size === 0) return new Map([[GLOBAL_PARTITION, fleet]]);
  const weights = new Map<PartitionName, number>();
  let sum = 0;
  for (const [name, partition] of scheduler.admission_partitions) {
    weights.set(name, partition.max_concurrent_requests);
    sum += partition.max_concurrent_requests;
  }
  return splitByWeight(weights, Math.min(fleet, sum));
}

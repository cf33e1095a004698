// The number of slots of every partition now: a pure function of the configuration and of the
// healthy workers. Whoever owns the slots asks again whenever the registry reports a change.

import type { PartitionRules } from "../identity/partition.js";
import { partitionOfWorker } from "../identity/partition.js";
import {
  GLOBAL_PARTITION,
  type PartitionConfig,
  type SchedulerConfig,
  type WeirConfig,
} from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import type { Worker } from "../workers/worker.js";
import { globalCapacity } from "./global-capacity.js";
import { splitByWeight } from "./partition-split.js";

/** What counts of a worker; also a configured one that does not run yet. */
export type CountedWorker = Pick<Worker, "healthy" | "labels" | "models">;

/** The healthy workers of one partition, as far as capacity goes. */
interface Replicas {
  healthy: number;
  /** How many of them report a ceiling, and the sum of what they report. */
  reporting: number;
  reported: number;
}

export interface FleetCapacity {
  /** Slots of the whole fleet. */
  readonly total: number;
  readonly partitions: ReadonlyMap<PartitionName, number>;
  readonly healthyReplicas: ReadonlyMap<PartitionName, number>;
}

/**
 * Partitions share min(fleet capacity, sum of their weights) in proportion to their weights; without
 * configured partitions the one partition `global` gets the fleet's capacity.
 *
 * The weight of a static partition is its maximum. The weight of a partition that follows its
 * replicas is the configured number per healthy replica; else the mean of what they report, for all of
 * them; else their part of the fleet.
 */
export function fleetCapacity(
  scheduler: SchedulerConfig,
  rules: PartitionRules,
  workers: Iterable<CountedWorker>,
): FleetCapacity {
  const replicas = countReplicas(rules, workers);
  const all = [...replicas.values()];
  const healthy = all.reduce((sum, { healthy: count }) => sum + count, 0);
  const ceilings = {
    healthy,
    reporting: all.reduce((sum, { reporting }) => sum + reporting, 0),
    reported: all.reduce((sum, { reported }) => sum + reported, 0),
  };
  const total = globalCapacity(ceilings, scheduler.max_concurrent_requests);
  const healthyReplicas = new Map(Array.from(replicas, ([name, { healthy: n }]) => [name, n]));
  if (scheduler.admission_partitions.size === 0) {
    return { total, partitions: new Map([[GLOBAL_PARTITION, total]]), healthyReplicas };
  }
  const weights = new Map<PartitionName, number>();
  let sum = 0;
  for (const [name, partition] of scheduler.admission_partitions) {
    const own = replicas.get(name) ?? { healthy: 0, reporting: 0, reported: 0 };
    const weight = weightOf(partition, own, total, healthy);
    weights.set(name, weight);
    sum += weight;
  }
  return { total, partitions: splitByWeight(weights, Math.min(total, sum)), healthyReplicas };
}

/**
 * The fleet with every configured worker healthy: what reservations, bursts and warnings are measured
 * by, so that what is checked before the start is what runs.
 */
export function wholeFleet(
  { scheduler, workers }: Pick<WeirConfig, "scheduler" | "workers">,
  rules: PartitionRules,
): FleetCapacity {
  const healthy = workers.map(({ labels, models }) => ({
    healthy: true,
    labels,
    models: new Set(models),
  }));
  return fleetCapacity(scheduler, rules, healthy);
}

function weightOf(
  partition: PartitionConfig,
  { healthy, reporting, reported }: Replicas,
  fleet: number,
  fleetHealthy: number,
): number {
  if (partition.max_concurrent_requests !== undefined) return partition.max_concurrent_requests;
  const perReplica = partition.max_concurrent_requests_per_healthy_replica;
  if (perReplica !== undefined) return healthy * perReplica;
  if (reporting > 0) return Math.floor((reported * healthy) / reporting);
  return fleetHealthy > 0 ? Math.floor((fleet * healthy) / fleetHealthy) : 0;
}

function countReplicas(
  rules: PartitionRules,
  workers: Iterable<CountedWorker>,
): Map<PartitionName, Replicas> {
  const replicas = new Map<PartitionName, Replicas>();
  for (const worker of workers) {
    if (!worker.healthy) continue;
    // A worker of several models counts where its first model belongs.
    const [model] = worker.models;
    if (model === undefined) continue;
    const name = partitionOfWorker(rules, worker.labels, model);
    let own = replicas.get(name);
    if (own === undefined) {
      own = { healthy: 0, reporting: 0, reported: 0 };
      replicas.set(name, own);
    }
    own.healthy += 1;
    const ceiling = worker.labels.max_running_requests;
    if (ceiling === undefined) continue;
    own.reporting += 1;
    own.reported += ceiling;
  }
  return replicas;
}

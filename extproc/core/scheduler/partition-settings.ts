// The settings of one partition, derived from the configuration once: class tables, its own queue
// budget and the floors scaled to its part of the fleet.

import type { ClassConfig, SchedulerConfig } from "../model/config.js";
import { GLOBAL_PARTITION } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import { perClass, type ClassRank, type PerClass } from "../model/priority.js";
import { scaleFloor, scaleQueueShares, type ReservationSettings } from "./reservations.js";

export interface ClassSettings {
  readonly queueTimeoutMs: number;
  readonly starvationThresholdMs: number;
  readonly canPreempt: boolean;
  /** Soft share of the queue budget; reported, not enforced. */
  readonly queueShare: number;
}

export interface PartitionSettings {
  readonly name: PartitionName;
  /** Waiters of all classes together. */
  readonly queueSize: number;
  readonly classes: PerClass<ClassSettings>;
  readonly reservations: PerClass<ReservationSettings>;
  /** Part of the capacity that reservations may take together, 0..1. */
  readonly reservedShareMax: number;
  /** Share of contested promotions among the last 64 dispatches, 0..1. */
  readonly starvationMaxShare: number;
}

/**
 * Floors are written for the whole fleet: for the operator's limit, or, without one, for the slots
 * of the fleet with every configured worker healthy.
 *
 * @param initialSlots slots of each partition in that fleet, for floors of partitions that follow
 *   their replicas
 * @param fleetSlots slots of that fleet
 */
export function partitionSettings(
  scheduler: SchedulerConfig,
  initialSlots: ReadonlyMap<PartitionName, number>,
  fleetSlots: number,
): PartitionSettings[] {
  const partitions = scheduler.admission_partitions;
  const globalMax = scheduler.max_concurrent_requests ?? fleetSlots;
  if (partitions.size === 0) {
    return [settingsOf(scheduler, GLOBAL_PARTITION, scheduler.queue_size, (floor) => floor)];
  }
  return Array.from(partitions, ([name, partition]) => {
    const nominal =
      partition.max_concurrent_requests ??
      partition.max_concurrent_requests_per_healthy_replica ??
      initialSlots.get(name) ??
      0;
    return settingsOf(scheduler, name, partition.queue_size, (floor) =>
      scaleFloor(floor, nominal, globalMax),
    );
  });
}

function settingsOf(
  scheduler: SchedulerConfig,
  name: PartitionName,
  queueSize: number,
  scale: (floor: number) => number,
): PartitionSettings {
  const config = (rank: ClassRank): ClassConfig => scheduler.classes[rank];
  const shares = scaleQueueShares(
    perClass((rank) => config(rank).queue_size),
    queueSize,
  );
  return {
    name,
    queueSize,
    classes: perClass((rank) => ({
      queueTimeoutMs: config(rank).queue_timeout_secs * 1_000,
      starvationThresholdMs: config(rank).starvation_threshold_secs * 1_000,
      canPreempt: config(rank).can_preempt,
      queueShare: shares[rank],
    })),
    reservations: perClass((rank) => ({
      floor: scale(config(rank).reserved_floor),
      perSlot: config(rank).reserved_per_slot,
    })),
    reservedShareMax: scheduler.reserved_share_max,
    starvationMaxShare: scheduler.starvation_max_share,
  };
}

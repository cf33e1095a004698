// How many slots does each class reach in a partition where nothing runs? The capacity less what is kept
// back for the classes above. Capacities are those of a fleet in which every configured worker is healthy,
// so what is missing here is given by no recovery. Pure; shared by the warnings that speak of slots.

import { wholeFleet } from "../../core/capacity/partition-capacity.js";
import { partitionRules } from "../../core/identity/partition.js";
import type { WeirConfig } from "../../core/model/config.js";
import type { PartitionName } from "../../core/model/ids.js";
import { RANKS, type ClassRank, type PerClass } from "../../core/model/priority.js";
import { partitionSettings } from "../../core/scheduler/partition-settings.js";
import { classReservations } from "../../core/scheduler/reservations.js";

/** The slots of one idle partition. */
export interface IdleSlots {
  readonly partition: PartitionName;
  readonly capacity: number;
  /** Slots kept back for each class; together at most the capacity. */
  readonly reserved: PerClass<number>;
}

/** Every partition of the fleet, in the order of the file. */
export function idleSlots(config: Pick<WeirConfig, "scheduler" | "workers">): IdleSlots[] {
  const { scheduler } = config;
  const fleet = wholeFleet(config, partitionRules(scheduler));
  const settings = partitionSettings(scheduler, fleet.partitions, fleet.total);
  return settings.map(({ name, reservations, reservedShareMax }) => {
    const capacity = fleet.partitions.get(name) ?? 0;
    const reserved = classReservations(reservations, capacity, reservedShareMax);
    return { partition: name, capacity, reserved };
  });
}

/** Higher classes for which slots are kept back, upwards. */
export function keptFor({ reserved }: IdleSlots, rank: ClassRank): ClassRank[] {
  return RANKS.filter((other) => other > rank && reserved[other] > 0);
}

/** Slots that requests of one class can hold together. */
export function reachableSlots(slots: IdleSlots, rank: ClassRank): number {
  return keptFor(slots, rank).reduce((left, other) => left - slots.reserved[other], slots.capacity);
}

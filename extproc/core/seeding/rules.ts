// Where may a seed happen at all? Only where the engines' feedback refuses requests (mode `enforce`),
// with a cap of exactly one seed at a time, in the partitions that the configuration names. Everything
// else, a higher cap too, is off. Exactly one, because two seeds at once would be planned on one view of
// the fleet, and the second would not see what the first does to it.

import type { AdaptiveAdmissionMode } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";

/** The only cap of seeds in flight in one partition with which seeding is on. */
export const SEED_CAP = 1;

export interface SeedingRules {
  readonly mode: AdaptiveAdmissionMode;
  /** Partitions that seed; names are compared exactly. */
  readonly partitions: ReadonlySet<PartitionName>;
  /** Seeds in flight in one partition; 0 = off. */
  readonly seedCap: number;
  /** Pressure from which a worker is no target, above 0, up to 1: the limit of the whole partition. */
  readonly maxTokenUsage: number;
}

/** The partitions that seed, in the order of the configuration. */
export function seedingPartitions(rules: SeedingRules): readonly PartitionName[] {
  return [...rules.partitions].filter((partition) => seedsIn(rules, partition));
}

/** True when requests of the partition may seed. */
export function seedsIn(
  { mode, partitions, seedCap }: SeedingRules,
  partition: PartitionName,
): boolean {
  return mode === "enforce" && seedCap === SEED_CAP && partitions.has(partition);
}

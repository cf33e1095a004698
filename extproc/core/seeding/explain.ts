// What can be said about seeding right now? One value for the state page: which partitions seed, who
// holds a lease, which prefixes are protected, how much room each worker has or why nothing is known of
// it, and what happened so far. Nothing of a prompt is in it but its length in blocks.

import type { ModelId, PartitionName } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import type { PartitionProtections, PartitionSeed } from "../prefixes/partition-protections.js";
import type { Fleet } from "../selection/candidates.js";
import type { SeedCount, SeedCounts } from "./counts.js";
import type { Headroom, HeadroomGap, SlotBlock, WorkerHeadroom } from "./headroom.js";
import type { Lease, Leases } from "./lease.js";
import { seedingPartitions, type SeedingRules } from "./rules.js";

export interface LeaseExplanation {
  readonly partition: PartitionName;
  readonly model: ModelId;
  readonly url: string;
  readonly revision: number;
  readonly telemetryRevision: number;
  readonly ageMs: number;
}

export interface HeadroomExplanation {
  readonly partition: PartitionName;
  readonly model: ModelId;
  readonly url: string;
  /** Why nothing is known of the worker, or why it has no slots; undefined = it has. */
  readonly reason: HeadroomGap | SlotBlock | undefined;
  readonly slots: number;
  readonly liveLoad: number;
  /** What its engine says; undefined when that is not known beyond doubt. */
  readonly reported:
    | {
        readonly running: number;
        readonly waiting: number;
        readonly maxRunning: number;
        readonly pressure: number;
        readonly ageMs: number;
      }
    | undefined;
}

export interface SeedingExplanation {
  /** Partitions that seed, by name; empty = seeding is off. */
  readonly partitions: readonly PartitionName[];
  readonly leases: readonly LeaseExplanation[];
  readonly protections: readonly PartitionSeed[];
  /** By partition, model and url. */
  readonly headroom: readonly HeadroomExplanation[];
  readonly counts: readonly SeedCount[];
}

export interface SeedingSources {
  readonly rules: SeedingRules;
  readonly fleet: Fleet;
  readonly headroom: Headroom;
  readonly leases: Leases;
  readonly protections: PartitionProtections;
  readonly counts: SeedCounts;
}

/** O(partitions x workers x models). */
export function explainSeeding(sources: SeedingSources, now: MonotonicMs): SeedingExplanation {
  const { rules, fleet, headroom, leases, protections, counts } = sources;
  const partitions = [...seedingPartitions(rules)].sort();
  const models = new Set<ModelId>();
  for (const worker of fleet.registry.all()) for (const model of worker.models) models.add(model);
  const sorted = [...models].sort();
  return {
    partitions,
    leases: [...leases.all()].map((lease) => explainLease(lease, now)),
    protections: protections.list(now),
    headroom: partitions.flatMap((partition) =>
      sorted.flatMap((model) =>
        headroom
          .survey(partition, model, now)
          .map((each) => ({ partition, model, ...explainWorker(each, now) })),
      ),
    ),
    counts: [...counts.all()],
  };
}

function explainLease(lease: Lease, now: MonotonicMs): LeaseExplanation {
  const { partition, model, worker, telemetryRevision, acquiredAt } = lease;
  const { url, revision } = worker.identity;
  return { partition, model, url, revision, telemetryRevision, ageMs: now - acquiredAt };
}

function explainWorker(
  headroom: WorkerHeadroom,
  now: MonotonicMs,
): Omit<HeadroomExplanation, "partition" | "model"> {
  if (!headroom.known) {
    const { worker, gap } = headroom;
    const { liveLoad } = worker.runtime;
    return { url: worker.identity.url, reason: gap, slots: 0, liveLoad, reported: undefined };
  }
  const { worker, record, slots, block } = headroom.target;
  const { running, waiting, maxRunning, pressure, observedAt } = record;
  const reported = { running, waiting, maxRunning, pressure, ageMs: now - observedAt };
  const { liveLoad } = worker.runtime;
  return { url: worker.identity.url, reason: block, slots, liveLoad, reported };
}

// What each partition remembers of spills and seeds. Partitions share no workers of a model, so a seed in
// one says nothing about a prompt in another, and none of them can fill the memory of another. A partition
// has its memory from its first request on; there are no more than the configuration has partitions.

import type { PartitionName } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import { PrefixProtections, type SeedProtection } from "./protections.js";

/** A seed as the state page lists it, with where it is. */
export interface PartitionSeed extends SeedProtection {
  readonly partition: PartitionName;
}

export class PartitionProtections {
  readonly #cooldownMs: number;
  readonly #byPartition = new Map<PartitionName, PrefixProtections>();

  /** @param cooldownMs see {@link PrefixProtections} */
  constructor(cooldownMs: number) {
    this.#cooldownMs = cooldownMs;
  }

  of(partition: PartitionName): PrefixProtections {
    let protections = this.#byPartition.get(partition);
    if (protections === undefined) {
      protections = new PrefixProtections({ cooldownMs: this.#cooldownMs });
      this.#byPartition.set(partition, protections);
    }
    return protections;
  }

  /** Seeds that are under way, cooling down or in quarantine, of all partitions. */
  get seeds(): number {
    return this.#sum(({ seeds }) => seeds);
  }

  /** Prefixes whose last spill or seed is remembered, of all partitions. */
  get entries(): number {
    return this.#sum(({ entries }) => entries);
  }

  /** Every seed that binds, by partition, and there sorted like a snapshot. O(seeds). */
  list(now: MonotonicMs): readonly PartitionSeed[] {
    return [...this.#byPartition]
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .flatMap(([partition, protections]) =>
        protections.list(now).map((seed) => ({ partition, ...seed })),
      );
  }

  /** Forgets what nothing depends on any more, see {@link PrefixProtections}. */
  collect(now: MonotonicMs): void {
    for (const protections of this.#byPartition.values()) protections.collect(now);
  }

  #sum(read: (protections: PrefixProtections) => number): number {
    let sum = 0;
    for (const protections of this.#byPartition.values()) sum += read(protections);
    return sum;
  }
}

// How often did what happen to seeds? Counts per partition since the start, for metrics and the state
// page. Bounded: partitions are those of the configuration, everything else is a closed list.

import type { PartitionName } from "../model/ids.js";
import type { SeedPolicy } from "../selection/decision.js";
import type { LeaseFault } from "./lease.js";
import type { SeedRefusal } from "./refusals.js";

/**
 * How seeds end: the answer was good and whole; it was not, or never came; the request was never sent.
 */
export const SEED_OUTCOMES = ["succeeded", "failed", "undispatched"] as const;
export type SeedOutcome = (typeof SEED_OUTCOMES)[number];

/** What is counted; a lease is asked at least twice whether it still holds: verified or voided. */
export type SeedEvent =
  | { readonly event: "refused"; readonly refusal: SeedRefusal }
  | { readonly event: "lease_acquired"; readonly kind: SeedPolicy }
  | { readonly event: "lease_verified" }
  | { readonly event: "lease_voided"; readonly fault: LeaseFault }
  | { readonly event: "ended"; readonly kind: SeedPolicy; readonly outcome: SeedOutcome };

export interface SeedCount {
  readonly partition: PartitionName;
  readonly event: SeedEvent;
  readonly count: number;
}

export class SeedCounts {
  readonly #counts = new Map<string, SeedCount>();

  add(partition: PartitionName, event: SeedEvent): void {
    const key = `${Object.values(event).join(" ")} ${partition}`;
    const count = (this.#counts.get(key)?.count ?? 0) + 1;
    this.#counts.set(key, { partition, event, count });
  }

  all(): IterableIterator<SeedCount> {
    return this.#counts.values();
  }
}

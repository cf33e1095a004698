// Who holds the one place for a seed? A lease binds a partition and a model to one registration of one
// worker (url, id, generation, revision: the very object in the registry) and to one sample of it (the
// publication in which that first appeared). At most one lease per worker, which the bookings see to,
// and one per partition, which is seen to here. It is asked again before the request is sent: a worker
// that was replaced, or whose engine has reported anew, is not the one that was chosen.
//
// Everything that can change between the two questions is compared, so no revision of capacity is
// needed: a lease moves no queue, whose capacity does not depend on seeds, and there is nobody to wake.
// A lease outlives a removed worker (its request does too), so the partition stays taken until then.

import type { ModelId, PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import type { Fleet } from "../selection/candidates.js";
import type { Bookings, SeedLease } from "../workers/bookings.js";
import type { Disposer, Worker } from "../workers/worker.js";
import { isClean, occupiedOf, type Headroom, type HeadroomTarget } from "./headroom.js";
import { SEED_CAP, seedsIn, type SeedingRules } from "./rules.js";

/** Why a lease that is held does not let its request go. */
export const LEASE_FAULTS = [
  "disabled",
  "worker_replaced",
  "worker_unusable",
  "lease_lost",
  /** The worker is not known beyond doubt any more. */
  "record_lost",
  /** The engine has reported anew. */
  "record_changed",
  "not_clean",
  "full",
] as const;
export type LeaseFault = (typeof LEASE_FAULTS)[number];

/** Why no lease was given, in the order in which it is asked. */
export const LEASE_REFUSALS = [
  "no_slots",
  "disabled",
  "worker_replaced",
  "worker_unusable",
  "model_not_served",
  "partition_taken",
  "worker_leased",
  "worker_claimed",
  "record_lost",
  "record_changed",
  "not_clean",
  "full",
] as const;
export type LeaseRefusal = (typeof LEASE_REFUSALS)[number];

/** Of a snapshot: the worker and the sample that a lease is to be bound to. */
export type LeaseTarget = Pick<HeadroomTarget, "worker" | "record" | "slots">;

export interface LeaseWish {
  readonly target: LeaseTarget;
  readonly partition: PartitionName;
  readonly model: ModelId;
  /** Ordinary requests keep away from the worker meanwhile; true when it is not said. */
  readonly exclusive?: boolean;
}

export type LeaseGrant =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: LeaseRefusal };

export interface LeasesOptions {
  readonly fleet: Fleet;
  readonly rules: SeedingRules;
  readonly bookings: Bookings;
  readonly headroom: Pick<Headroom, "record">;
}

/** What a lease needs of those who gave it. */
interface Issuer {
  readonly options: LeasesOptions;
  readonly active: Map<PartitionName, Lease>;
}

export class Lease {
  readonly worker: Worker;
  readonly partition: PartitionName;
  readonly model: ModelId;
  readonly telemetryRevision: number;
  readonly acquiredAt: MonotonicMs;
  readonly #issuer: Issuer;
  readonly #booked: SeedLease | undefined;
  readonly #unbook: Disposer;

  constructor(
    issuer: Issuer,
    { target, partition, model }: LeaseWish,
    unbook: Disposer,
    now: MonotonicMs,
  ) {
    this.worker = target.worker;
    this.partition = partition;
    this.model = model;
    this.telemetryRevision = target.record.telemetryRevision;
    this.acquiredAt = now;
    this.#issuer = issuer;
    this.#booked = issuer.options.bookings.leaseOf(target.worker.identity.generation);
    this.#unbook = unbook;
  }

  /** Why the request must not be sent any more; undefined = everything is as it was. */
  verify(now: MonotonicMs): LeaseFault | undefined {
    const { worker, partition } = this;
    const { fleet, rules, bookings, headroom } = this.#issuer.options;
    const { url, generation } = worker.identity;
    if (!seedsIn(rules, partition)) return "disabled";
    if (fleet.registry.get(url) !== worker) return "worker_replaced";
    if (!worker.usable(now)) return "worker_unusable";
    const held = this.#issuer.active.get(partition) === this;
    if (!held || bookings.leaseOf(generation) !== this.#booked) return "lease_lost";
    return recordFault({ worker, telemetryRevision: this.telemetryRevision }, rules, headroom, now);
  }

  /** Gives worker and partition back; acts once, and never on a newer lease. */
  release(): void {
    const { active } = this.#issuer;
    if (active.get(this.partition) === this) active.delete(this.partition);
    this.#unbook();
  }
}

export class Leases {
  readonly #options: LeasesOptions;
  /** One per partition at most: the cap is one. */
  readonly #active = new Map<PartitionName, Lease>();

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** Leases that are held in a partition. */
  count(partition: PartitionName): number {
    return this.#active.has(partition) ? 1 : 0;
  }

  /** Every lease that is held. */
  all(): IterableIterator<Lease> {
    return this.#active.values();
  }

  /** Gives the worker of a snapshot to one seed, or says what speaks against it. */
  acquire(wish: LeaseWish, now: MonotonicMs): LeaseGrant {
    const refusal = this.#refusal(wish, now);
    if (refusal !== undefined) return { ok: false, refusal };
    const { target, partition, model, exclusive = true } = wish;
    const unbook = this.#options.bookings.holdLease(target.worker, partition, model, exclusive);
    invariant(unbook !== undefined, "a registered worker without lease and claim can be leased");
    const lease = new Lease({ options: this.#options, active: this.#active }, wish, unbook, now);
    this.#active.set(partition, lease);
    return { ok: true, lease };
  }

  #refusal({ target, partition, model }: LeaseWish, now: MonotonicMs): LeaseRefusal | undefined {
    const { fleet, rules, bookings, headroom } = this.#options;
    const { worker, record, slots } = target;
    const { url, generation } = worker.identity;
    if (slots <= 0) return "no_slots";
    if (!seedsIn(rules, partition)) return "disabled";
    if (fleet.registry.get(url) !== worker) return "worker_replaced";
    if (!worker.usable(now)) return "worker_unusable";
    const serves = worker.models.has(model) && fleet.partitionOf(worker, model) === partition;
    if (!serves) return "model_not_served";
    if (this.count(partition) >= SEED_CAP) return "partition_taken";
    if (bookings.leaseOf(generation) !== undefined) return "worker_leased";
    if (bookings.claims(generation) > 0) return "worker_claimed";
    return recordFault(
      { worker, telemetryRevision: record.telemetryRevision },
      rules,
      headroom,
      now,
    );
  }
}

/** One sample of one registration of a worker. */
interface Binding {
  readonly worker: Worker;
  readonly telemetryRevision: number;
}

type RecordDoubt = "record_lost" | "record_changed" | "not_clean" | "full";

/** What speaks against the worker in what its engine reports now; its own lease takes no place. */
function recordFault(
  { worker, telemetryRevision }: Binding,
  rules: SeedingRules,
  headroom: Pick<Headroom, "record">,
  now: MonotonicMs,
): RecordDoubt | undefined {
  const reading = headroom.record(worker, now);
  if (!reading.ok) return "record_lost";
  const { record } = reading;
  if (record.telemetryRevision !== telemetryRevision) return "record_changed";
  if (!isClean(record, rules)) return "not_clean";
  return record.maxRunning - occupiedOf(record) >= 1 ? undefined : "full";
}

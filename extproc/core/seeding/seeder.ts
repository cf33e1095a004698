// Can a request that admission refuses make a clean worker an owner of its prefix instead? The door to
// this room. One attempt goes through these steps, in this order, without a pause:
//
//   workers      at least two of the model, or there is nobody to spread to
//   proof        exchanged once; from here on a failure costs the request its right to seed
//   headroom     of every known worker
//   plan         an owner with room, else a clean peer; a peer's prefix is claimed
//   lease        of worker and partition, then asked once more
//
// What fails rolls back what came before it, but for the proof: prefix and lease are free at once, and
// nothing tells that anybody tried. A request that succeeds owns a Seed, and its end is up to it.

import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";
import type { SelectionConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import { findCandidates, type Fleet } from "../selection/candidates.js";
import type { SelectionQuery } from "../selection/decision.js";
import type { ModelRule, WorkerSelector } from "../selection/selector.js";
import type { TelemetryStore } from "../workers/telemetry-store.js";
import { SeedCounts } from "./counts.js";
import { explainSeeding, type SeedingExplanation } from "./explain.js";
import { Headroom } from "./headroom.js";
import { Leases, type Lease } from "./lease.js";
import { Planner, type SeedPlan } from "./plan.js";
import type { ClaimedProof, SeedProof } from "./proof.js";
import type { SeedRefusal } from "./refusals.js";
import { seedsIn, type SeedingRules } from "./rules.js";
import { Seed } from "./seed.js";

/** Fewer workers cannot share anything. */
const WORKERS_MIN = 2;

export interface SeederOptions {
  readonly rules: SeedingRules;
  readonly fleet: Fleet;
  readonly models: ReadonlyMap<ModelId, ModelRule>;
  readonly selection: SelectionConfig;
  readonly telemetry: Pick<TelemetryStore, "get"> | undefined;
  readonly selector: WorkerSelector;
}

export interface SeedAsk {
  readonly tenant: TenantKey;
  readonly requestId: string;
  readonly proof: SeedProof;
  /** As for an ordinary choice; a routing key has no say. */
  readonly query: SelectionQuery;
  /**
   * It was refused because the partition runs as many as it learned to, and not because requests wait:
   * then an owner can be the busy one long before its engine is full.
   */
  readonly spread: boolean;
}

export type Seeding =
  | { readonly ok: true; readonly seed: Seed }
  | { readonly ok: false; readonly refusal: SeedRefusal };

export class Seeder {
  readonly headroom: Headroom;
  readonly leases: Leases;
  /** What happened so far. */
  readonly counts = new SeedCounts();
  readonly #options: SeederOptions;
  readonly #planner: Planner;

  constructor(options: SeederOptions) {
    const { rules, fleet, telemetry, selection, selector } = options;
    const { bookings, lookup, pending, protections } = selector;
    this.#options = options;
    const leasesIn = (partition: PartitionName): number => this.leases.count(partition);
    this.headroom = new Headroom({ fleet, rules, telemetry, bookings, leasesIn });
    this.leases = new Leases({ fleet, rules, bookings, headroom: this.headroom });
    this.#planner = new Planner({ selection, lookup, pending, protections });
  }

  get rules(): SeedingRules {
    return this.#options.rules;
  }

  /** Tries to make the request a seed; a refusal has changed nothing but the proof. */
  seed(ask: SeedAsk, now: MonotonicMs): Seeding {
    const { partition } = ask.query;
    const seeding = this.#try(ask, now);
    if (!seeding.ok) this.counts.add(partition, { event: "refused", refusal: seeding.refusal });
    return seeding;
  }

  /** Leases, protections, headroom and counts, for the state page. */
  explain(now: MonotonicMs): SeedingExplanation {
    const { rules, fleet, selector } = this.#options;
    const { headroom, leases, counts } = this;
    const { protections } = selector;
    return explainSeeding({ rules, fleet, headroom, leases, protections, counts }, now);
  }

  #try({ query, tenant, requestId, proof, spread }: SeedAsk, now: MonotonicMs): Seeding {
    const { rules, fleet, models, selector } = this.#options;
    const { model, partition } = query;
    if (!seedsIn(rules, partition)) return { ok: false, refusal: "disabled" };
    const { healthy: workers } = findCandidates(fleet, selector.bookings, query, now);
    if (workers.length < WORKERS_MIN) return { ok: false, refusal: "too_few_workers" };
    const claiming = proof.claim({ tenant, requestId, model, partition });
    if (!claiming.ok) return { ok: false, refusal: `proof_${claiming.failure}` };
    const targets = this.headroom.snapshot(partition, model, now);
    if (targets.length === 0) return { ok: false, refusal: "no_headroom" };
    const rule = models.get(model);
    const planning = this.#planner.plan({ query, rule, workers, targets, spread }, now);
    if (!planning.ok) return { ok: false, refusal: `plan_${planning.refusal}` };
    const { plan } = planning;
    // An owner that had room is no secret to keep: were it kept from ordinary requests, a stream of
    // refused ones would hold it for good, and they would all go to the other owners.
    const exclusive = plan.claim !== undefined;
    const grant = this.leases.acquire({ target: plan.target, partition, model, exclusive }, now);
    if (!grant.ok) {
      plan.claim?.drop(false, now);
      return { ok: false, refusal: `lease_${grant.refusal}` };
    }
    this.counts.add(partition, { event: "lease_acquired", kind: plan.kind });
    return this.#hold(plan, claiming.claim, grant.lease, now);
  }

  /** Puts the guard together; a lease that is void already ends it again. */
  #hold(plan: SeedPlan, proof: ClaimedProof, lease: Lease, now: MonotonicMs): Seeding {
    const { selector, fleet } = this.#options;
    const { registry } = fleet;
    const seed = new Seed({ plan, proof, lease, selector, registry, counts: this.counts });
    const fault = seed.verify(now);
    if (fault === undefined) return { ok: true, seed };
    seed.release(now);
    return { ok: false, refusal: `verify_${fault}` };
  }
}

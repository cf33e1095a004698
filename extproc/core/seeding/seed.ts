// The one guarded request, from its plan to its end. It holds, in the order in which they are given
// back: what its success publishes, the prefix, the lease of its worker.
//
//   held -> dispatched -> ended          released while held: as if it had never been planned
//
// The prefix is in its next phase before the worker is given back, and owners are published in the same
// step, so that nobody ever sees the one without the other: neither an owner that is still held to be
// new, nor a seeded prefix that nobody guards. The proof was exchanged before and stays so. Everything
// acts once; whoever calls late changes nothing.

import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import type { CacheReport } from "../selection/evictions.js";
import type { WorkerSelector } from "../selection/selector.js";
import type { WorkerRegistry } from "../workers/registry.js";
import type { Worker } from "../workers/worker.js";
import type { SeedCounts, SeedOutcome } from "./counts.js";
import type { Lease, LeaseFault } from "./lease.js";
import type { SeedPlan } from "./plan.js";
import type { ClaimedProof } from "./proof.js";

export interface SeedEnd {
  readonly outcome: SeedOutcome;
  /** The worker counts as an owner of the prompt from now on, by this success. */
  readonly published: boolean;
  /** Holdings of the worker that turned out to be evicted. */
  readonly staleHoldings: number;
}

/** What the log line of a seed tells besides its end. */
export interface SeedStory {
  readonly kind: SeedPlan["kind"];
  readonly workerUrl: string;
  readonly workerRevision: number;
  readonly telemetryRevision: number;
  /** What named the owners. */
  readonly ownership: SeedPlan["ownership"]["source"];
  readonly owners: number;
  readonly matchedBlocks: number;
  /** Of the worker when it was chosen, in requests. */
  readonly occupied: number;
  readonly slots: number;
  readonly plannedAt: MonotonicMs;
}

export interface SeedParts {
  readonly plan: SeedPlan;
  readonly proof: ClaimedProof;
  readonly lease: Lease;
  readonly selector: Pick<WorkerSelector, "ended">;
  readonly registry: Pick<WorkerRegistry, "get">;
  readonly counts: SeedCounts;
}

/** An answer that says nothing about its prompt. */
const NO_REPORT: CacheReport = { promptTokens: undefined, cachedTokens: undefined };

export class Seed {
  readonly #parts: SeedParts;
  #phase: "held" | "dispatched" | "ended" = "held";
  #success: CacheReport | undefined;
  #rejected = false;
  #end: SeedEnd | undefined;

  constructor(parts: SeedParts) {
    this.#parts = parts;
  }

  get worker(): Worker {
    return this.#parts.lease.worker;
  }

  get plan(): SeedPlan {
    return this.#parts.plan;
  }

  /** How it ended; undefined until it has. */
  get end(): SeedEnd | undefined {
    return this.#end;
  }

  get story(): SeedStory {
    const { plan, lease } = this.#parts;
    const { url, revision } = lease.worker.identity;
    return {
      kind: plan.kind,
      workerUrl: url,
      workerRevision: revision,
      telemetryRevision: lease.telemetryRevision,
      ownership: plan.ownership.source,
      owners: plan.ownership.owners.length,
      matchedBlocks: plan.ownership.matchedBlocks,
      occupied: plan.target.occupied,
      slots: plan.target.slots,
      plannedAt: lease.acquiredAt,
    };
  }

  /** Asks everything again; why the request must not be sent, undefined = send it in this step. */
  verify(now: MonotonicMs): LeaseFault | undefined {
    const { lease, counts } = this.#parts;
    const fault = lease.verify(now);
    const event = "lease_voided";
    counts.add(
      lease.partition,
      fault === undefined ? { event: "lease_verified" } : { event, fault },
    );
    return fault;
  }

  /** The request is on its way to the worker, whose live load counts it. From here on it may fail. */
  dispatched(): void {
    invariant(this.#phase === "held", "a seed is sent once, while it is held");
    this.#phase = "dispatched";
    this.#parts.proof.spend();
  }

  /**
   * The answer was exactly what a success is; calling it again changes nothing. It takes effect when the
   * seed is released.
   *
   * @param report what the engine says about the prompt
   */
  markSuccess(report: CacheReport = NO_REPORT): void {
    invariant(this.#phase !== "held", "a seed succeeds after it was sent");
    this.#success ??= report;
  }

  /**
   * The worker refused the request itself, before it did any work: it ends as a failure, and the prefix is
   * free at once. A request that cannot be served must not keep the prefix from others.
   */
  markRejected(): void {
    invariant(this.#phase !== "held", "a seed is refused after it was sent");
    this.#rejected = true;
  }

  /** Ends the seed, whatever has happened to it; acts once and returns the same end again. */
  release(now: MonotonicMs): SeedEnd {
    if (this.#end !== undefined) return this.#end;
    const { plan, lease, counts } = this.#parts;
    const dispatched = this.#phase === "dispatched";
    const succeeded = dispatched && this.#success !== undefined;
    this.#phase = "ended";
    try {
      this.#end = this.#conclude(dispatched, now);
    } finally {
      // Also when publishing fails: a prefix or a worker that stays taken is lost for good.
      if (succeeded) plan.claim?.markSuccess();
      plan.claim?.drop(dispatched && !this.#rejected, now);
      lease.release();
    }
    const { outcome } = this.#end;
    counts.add(lease.partition, { event: "ended", kind: plan.kind, outcome });
    return this.#end;
  }

  /** How it ends; a success that teaches something is published on the way. */
  #conclude(dispatched: boolean, now: MonotonicMs): SeedEnd {
    const unpublished = { published: false, staleHoldings: 0 };
    if (!dispatched) return { outcome: "undispatched", ...unpublished };
    if (this.#success === undefined) return { outcome: "failed", ...unpublished };
    const { plan, selector, registry } = this.#parts;
    const outcome = "succeeded";
    // A worker that was replaced meanwhile may be another process with an empty cache.
    const current = registry.get(this.worker.identity.url) === this.worker;
    if (plan.trace === undefined || !current) return { outcome, ...unpublished };
    const staleHoldings = selector.ended(plan.trace, true, this.#success, now);
    return { outcome, published: true, staleHoldings };
  }
}

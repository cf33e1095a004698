// What seeds on this prompt mean for an ordinary request. A seed makes one chosen worker an owner, and
// until that is done nothing else may change who owns the prefix: the request stays with the owners, or
// it is refused. The rules, first match:
//
//   a failed seed       the owners without its target; it may have been told half of the prefix
//   nobody owns it      refused: the owners are lost for a moment, and a new one would be a second seed
//   a seed is under way the owners without its target, whatever its engine already publishes
//   a seed has just     the owners, its target now being one of them
//   succeeded

import type { ProtectionEntry, ProtectionPhase } from "../prefixes/protections.js";
import type { Worker } from "../workers/worker.js";
import type { SelectionResult } from "./decision.js";

export class SeedGuard {
  readonly #entries: readonly ProtectionEntry[];
  /** Seeds of the model and partition that have a worker now, on this prompt or another. */
  readonly #leases: number;
  /** A seed on this prompt has failed lately. */
  readonly failed: boolean;

  constructor(entries: readonly ProtectionEntry[], leases: number) {
    this.#entries = entries;
    this.#leases = leases;
    this.failed = entries.some(({ phase }) => phase === "failure_quarantine");
  }

  /** True when a routing key must not decide. */
  get binding(): boolean {
    return this.#entries.length > 0 || this.#leases > 0;
  }

  /** True when a seed is under way on some other prompt, and none has anything to do with this one. */
  get elsewhere(): boolean {
    return this.#entries.length === 0 && this.#leases > 0;
  }

  /** The workers that may be asked who owns the prefix. */
  visible(workers: readonly Worker[]): readonly Worker[] {
    if (!this.failed) return workers;
    return workers.filter((worker) => !this.#isTarget("failure_quarantine", worker));
  }

  /** True when the worker is the target of a seed under way. */
  isSeeded(worker: Worker): boolean {
    return this.#isTarget("active", worker);
  }

  /** Why the request stays with the owners, of which there are some; undefined = it is free. */
  hold(): SelectionResult | undefined {
    if (this.failed) return "failed_distribution_seed_hold";
    if (this.#leases > 0 || this.#has("active")) return "active_distribution_seed_hold";
    if (this.#has("success_cooldown")) return "successful_distribution_seed_cooldown_hold";
    return undefined;
  }

  /** Why a request is refused for which no owner is known at all; undefined = it is free. */
  missingOwner(): SelectionResult | undefined {
    if (this.failed) return "failed_distribution_seed_block";
    return this.#entries.length > 0 ? "distribution_seed_missing_owner_block" : undefined;
  }

  #has(wanted: ProtectionPhase): boolean {
    return this.#entries.some(({ phase }) => phase === wanted);
  }

  #isTarget(wanted: ProtectionPhase, { identity }: Worker): boolean {
    return this.#entries.some(
      ({ phase, target }) =>
        phase === wanted && target.url === identity.url && target.revision === identity.revision,
    );
  }
}

// Can one of the owners of the prompt's prefix take the request, and if not, may it get one more? Asked
// before any look at the fleet as a whole, so that a hot worker somewhere else cannot take a usable
// owner away. Runs only with a budget of owners (`max_cached_owners_per_prefix` above 0).
//
// Known owners are the healthy workers that hold the longest match, the one that a recent spill made
// provisional, and those that a request under way will make owners. An owner that the headers exclude
// counts for the budget; it is only not chosen. The budget limits who is made an owner by pressure; it
// takes nobody away, and a request whose owners are all excluded goes elsewhere whatever the budget.

import type { MonotonicMs } from "../model/time.js";
import type { Worker } from "../workers/worker.js";
import type { Candidates } from "./candidates.js";
import type { SelectionResult } from "./decision.js";
import type { Loads } from "./loads.js";
import type { Ownership, OwnershipLookup, PromptPrefix } from "./ownership.js";
import type { PendingOwners } from "./pending-owners.js";
import { PRESSURE_HIGH, type PressurePlan } from "./pressure.js";
import type { SeedGuard } from "./seed-guard.js";
import type { SpillMemory, Spills } from "./spills.js";

export interface OwnerStageOptions {
  /** Owners of one prefix beyond which nobody is made one, 1 or more. */
  readonly maxOwners: number;
  readonly lookup: OwnershipLookup;
  readonly pending: PendingOwners;
  readonly spills: Spills;
  readonly loads: Loads;
  /** Whether a worker bears so much more than the calmest of these that a cold cache is better. */
  readonly isOverloaded: (worker: Worker, among: readonly Worker[], now: MonotonicMs) => boolean;
}

export interface OwnerStageFacts {
  readonly candidates: Candidates;
  readonly prefix: PromptPrefix;
  readonly guard: SeedGuard;
  readonly memory: SpillMemory;
  /** Undefined when engine load is not looked at, or not known of every candidate. */
  readonly plan: PressurePlan | undefined;
}

export interface OwnerStageEnd {
  readonly ownership: Ownership;
  /** Known owners, whether they can be chosen or not. */
  readonly owners: number;
  readonly end:
    | { readonly kind: "chosen"; readonly worker: Worker; readonly result: SelectionResult }
    | { readonly kind: "blocked"; readonly result: SelectionResult }
    /** Nobody owns the prefix and nothing forbids to go anywhere. */
    | { readonly kind: "unowned" };
}

type End = OwnerStageEnd["end"];

interface Owners {
  readonly ownership: Ownership;
  readonly known: ReadonlySet<Worker>;
  /** Known owners that may be chosen; a seed's target is none. */
  readonly eligible: readonly Worker[];
}

export class OwnerStage {
  readonly #options: OwnerStageOptions;

  constructor(options: OwnerStageOptions) {
    this.#options = options;
  }

  decide(facts: OwnerStageFacts, now: MonotonicMs): OwnerStageEnd {
    const owners = this.#owners(facts, now);
    const { ownership, known } = owners;
    return { ownership, owners: known.size, end: this.#end(facts, owners, now) };
  }

  #owners({ candidates, prefix, guard, memory }: OwnerStageFacts, now: MonotonicMs): Owners {
    const { lookup, pending, spills } = this.#options;
    const visible = guard.visible(candidates.healthy);
    const ownership = lookup.find(prefix, visible, now);
    const known = new Set(ownership.owners);
    const provisional = spills.provisionalOwner(memory, ownership, visible, now);
    if (provisional !== undefined) known.add(provisional);
    const underWay = pending.of(ownership.keys, ownership.blocks);
    if (underWay !== undefined) {
      for (const worker of visible) {
        if (underWay.has(worker.identity.generation)) known.add(worker);
      }
    }
    const eligible = candidates.selectable.filter(
      (worker) => known.has(worker) && !guard.isSeeded(worker),
    );
    return { ownership, known, eligible };
  }

  #end(facts: OwnerStageFacts, owners: Owners, now: MonotonicMs): End {
    const { guard, plan } = facts;
    const { known, eligible } = owners;
    if (known.size === 0) {
      const result = guard.missingOwner();
      return result === undefined ? { kind: "unowned" } : { kind: "blocked", result };
    }
    const hold = guard.hold();
    if (hold !== undefined) {
      if (eligible.length > 0) return this.#least(eligible, plan, hold);
      // The only owners are at work for another prompt's seed: to the request they are as good as excluded.
      if (guard.elsewhere) return this.#leaveExcludedOwners(facts, owners, now);
      const failed = hold === "failed_distribution_seed_hold";
      return { kind: "blocked", result: failed ? "failed_distribution_seed_block" : hold };
    }
    if (eligible.length === 0) return this.#leaveExcludedOwners(facts, owners, now);
    if (plan === undefined) return this.#withoutPlan(facts, owners, now);
    const calmest = plan.calmest(eligible);
    if (!plan.allHot(eligible)) return this.#hold(owners, calmest, plan);
    return this.#leaveHotOwners(owners, calmest, { plan, memory: facts.memory }, now);
  }

  /** An owner has room: the request stays, or joins the worker that a spill went to. */
  #hold({ ownership, eligible }: Owners, among: readonly Worker[], plan?: PressurePlan): End {
    const worker = this.#options.loads.least(among, plan?.calmer);
    const proven = ownership.owners;
    let result: SelectionResult = "cached_owner_hold";
    if (!proven.includes(worker)) {
      const excluded = proven.length > 0 && !proven.some((owner) => eligible.includes(owner));
      result = excluded ? "excluded_owner_cooldown_hold" : "spill_cooldown_hold";
    }
    return { kind: "chosen", worker, result };
  }

  /**
   * Nothing is known of the engines' pressure, so Weir's own count has to tell that the owners cannot
   * bear more: without that a worker that hangs would collect every request on the prefix.
   */
  #withoutPlan(facts: OwnerStageFacts, owners: Owners, now: MonotonicMs): End {
    const { maxOwners, loads, spills, isOverloaded } = this.#options;
    const { known, eligible, ownership } = owners;
    const { selectable } = facts.candidates;
    const calmest = loads.least(eligible);
    const targets =
      known.size < maxOwners && isOverloaded(calmest, selectable, now)
        ? selectable.filter((worker) => !known.has(worker) && !facts.guard.isSeeded(worker))
        : [];
    const spill =
      targets.length === 0 ? undefined : spills.spill(facts.memory, ownership, targets, now);
    if (spill === undefined) return this.#hold(owners, eligible);
    const result = spill.joined ? "spill_cooldown_hold" : "owner_pressure_spill";
    return { kind: "chosen", worker: spill.worker, result };
  }

  /** The headers exclude every owner. */
  #leaveExcludedOwners(
    { candidates, plan, memory }: OwnerStageFacts,
    { ownership }: Owners,
    now: MonotonicMs,
  ): End {
    const targets = plan?.allowed ?? candidates.selectable;
    const spill = this.#options.spills.spill(memory, ownership, targets, now, plan?.calmer);
    if (spill === undefined) {
      return { kind: "blocked", result: "seed_cooldown_excluded_owner_block" };
    }
    const result = spill.joined ? "excluded_owner_cooldown_hold" : "excluded_owner_spill";
    return { kind: "chosen", worker: spill.worker, result };
  }

  /** Every owner is hot: one more while the budget allows it and somebody calm is there. */
  #leaveHotOwners(
    { ownership, known, eligible }: Owners,
    calmest: readonly Worker[],
    { plan, memory }: { readonly plan: PressurePlan; readonly memory: SpillMemory },
    now: MonotonicMs,
  ): End {
    const { maxOwners, spills } = this.#options;
    if (known.size >= maxOwners) return this.#least(calmest, plan, "owner_ceiling_hold");
    // No owner is among them: the owners that may be chosen are all hot.
    const targets = plan.allowed.filter((worker) => plan.pressure(worker) <= PRESSURE_HIGH);
    if (targets.length === 0) return this.#least(calmest, plan, "no_safe_spill_hold");
    const spill = spills.spill(memory, ownership, targets, now, plan.calmer);
    if (spill === undefined) return this.#least(eligible, plan, "seed_cooldown_owner_hold");
    const result = spill.joined ? "spill_cooldown_hold" : "owner_pressure_spill";
    return { kind: "chosen", worker: spill.worker, result };
  }

  #least(among: readonly Worker[], plan: PressurePlan | undefined, result: SelectionResult): End {
    return { kind: "chosen", worker: this.#options.loads.least(among, plan?.calmer), result };
  }
}

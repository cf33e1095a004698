// Which worker takes a request so that its prompt is cached there, without making that worker drown?
//
//   with a budget of owners      the owner stage decides for every prompt that somebody owns
//   candidates                   those that the engines' pressure allows, else all
//   an owner bears its load      the least loaded owner of the longest match
//   it bears too much, or none   two choices; with a budget and an imbalanced fleet, a spill
//
// An owner is left for its own load only, compared with the calmest worker: a hot worker elsewhere is no
// reason to give a warm cache up. A budget also covers a prompt that nobody owns: whoever gets it is
// remembered while it is under way.

import type { SelectionConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { TelemetryStore } from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";
import type { Candidates } from "./candidates.js";
import type { EngineLoadDecision, SelectionResult } from "./decision.js";
import { findImbalance, type Imbalance } from "./imbalance.js";
import type { Loads } from "./loads.js";
import type { Ownership, OwnershipLookup, PromptPrefix } from "./ownership.js";
import { OwnerStage, type OwnerStageEnd } from "./owner-stage.js";
import type { PendingOwners } from "./pending-owners.js";
import { planPressure, type PressurePlan } from "./pressure.js";
import type { SeedGuard } from "./seed-guard.js";
import { Spills, type SpillMemory } from "./spills.js";

export interface CacheAwareOptions {
  readonly selection: SelectionConfig;
  readonly loads: Loads;
  readonly telemetry: TelemetryStore | undefined;
  readonly lookup: OwnershipLookup;
  readonly pending: PendingOwners;
}

export interface CacheAwareFacts {
  /** At least one of them is selectable. */
  readonly candidates: Candidates;
  /** Undefined when there is no prompt, or none with a full block; `unread` says which. */
  readonly prefix: PromptPrefix | undefined;
  readonly unread: "no_prompt" | "short_prompt";
  readonly guard: SeedGuard;
  /** Of the request's partition. */
  readonly memory: SpillMemory;
}

export interface CacheAwareChoice {
  /** Undefined when the request is refused. */
  readonly worker: Worker | undefined;
  readonly result: SelectionResult;
  readonly engineLoad: EngineLoadDecision | undefined;
  /** Undefined when nobody was asked who owns the prompt. */
  readonly ownership: Ownership | undefined;
  /** Known owners, whether they could be chosen or not. */
  readonly owners: number;
}

const IMBALANCED = {
  kv_overload: "imbalanced_kv_overload",
  kv_spread: "imbalanced_kv_spread",
  reserved: "imbalanced_reserved",
  requests: "imbalanced_requests",
} as const satisfies Record<Imbalance, SelectionResult>;

type Picked = readonly [worker: Worker, result: SelectionResult];

export class CacheAware {
  readonly #options: CacheAwareOptions;
  readonly #spills: Spills;
  /** Undefined without a budget of owners. */
  readonly #stage: OwnerStage | undefined;

  constructor(options: CacheAwareOptions) {
    const { selection, loads, lookup, pending } = options;
    const maxOwners = selection.max_cached_owners_per_prefix;
    this.#options = options;
    this.#spills = new Spills(loads);
    if (maxOwners > 0) {
      const spills = this.#spills;
      this.#stage = new OwnerStage({
        ...{ maxOwners, lookup, pending, spills, loads },
        isOverloaded: (worker, among, now) =>
          findImbalance(options, among, now, worker) !== undefined,
      });
    }
  }

  choose(facts: CacheAwareFacts, now: MonotonicMs): CacheAwareChoice {
    const { selection, telemetry } = this.#options;
    const { candidates, prefix, guard, memory } = facts;
    const plan = selection.engine_load
      ? planPressure(candidates.selectable, telemetry, now)
      : undefined;
    if (this.#stage === undefined || prefix === undefined) {
      return this.#withoutBudget(facts, plan, now);
    }
    const stage = this.#stage.decide({ candidates, prefix, guard, memory, plan }, now);
    const { ownership, owners, end } = stage;
    const scoped = this.#engineLoad(plan, "cached_owner_scoped");
    switch (end.kind) {
      case "chosen": {
        const { worker, result } = end;
        return { worker, result, engineLoad: scoped, ownership, owners };
      }
      case "blocked":
        return { worker: undefined, result: end.result, engineLoad: scoped, ownership, owners };
      case "unowned":
        return this.#unowned(facts, stage, plan, now);
    }
  }

  /** A budget of owners, and a prompt that nobody owns. */
  #unowned(
    { candidates, memory }: CacheAwareFacts,
    { ownership, owners }: OwnerStageEnd,
    plan: PressurePlan | undefined,
    now: MonotonicMs,
  ): CacheAwareChoice {
    const { loads } = this.#options;
    const allowed = plan?.allowed ?? candidates.selectable;
    const [worker, result] =
      findImbalance(this.#options, allowed, now) === undefined
        ? ([loads.ofTwo(allowed), ownership.miss] as const)
        : this.#spillUnowned(memory, ownership, { allowed, plan }, now);
    return { worker, result, engineLoad: this.#restriction(candidates, plan), ownership, owners };
  }

  #spillUnowned(
    memory: SpillMemory,
    ownership: Ownership,
    {
      allowed,
      plan,
    }: { readonly allowed: readonly Worker[]; readonly plan: PressurePlan | undefined },
    now: MonotonicMs,
  ): Picked {
    const spill = this.#spills.spill(memory, ownership, allowed, now, plan?.calmer);
    if (spill === undefined) return [this.#options.loads.ofTwo(allowed), "fallback_existing_owner"];
    return [spill.worker, spill.joined ? "spill_cooldown_hold" : "no_suitable_owner_spill"];
  }

  /** No budget of owners, or no prompt that could have one. */
  #withoutBudget(
    { candidates, prefix, unread }: CacheAwareFacts,
    plan: PressurePlan | undefined,
    now: MonotonicMs,
  ): CacheAwareChoice {
    const { loads, lookup } = this.#options;
    const allowed = plan?.allowed ?? candidates.selectable;
    const engineLoad = this.#restriction(candidates, plan);
    const ownership = prefix === undefined ? undefined : lookup.find(prefix, allowed, now);
    const owners = ownership?.owners.length ?? 0;
    const owner =
      ownership === undefined || owners === 0
        ? undefined
        : loads.least(ownership.owners, plan?.calmer);
    const imbalance = findImbalance(this.#options, allowed, now, owner);
    const [worker, result]: Picked =
      owner !== undefined && imbalance === undefined
        ? [owner, "owner_match"]
        : [
            loads.ofTwo(allowed),
            imbalance === undefined ? (ownership?.miss ?? unread) : IMBALANCED[imbalance],
          ];
    return { worker, result, engineLoad, ownership, owners };
  }

  #restriction(
    { selectable }: Candidates,
    plan: PressurePlan | undefined,
  ): EngineLoadDecision | undefined {
    const all = plan?.allowed.length === selectable.length;
    return this.#engineLoad(plan, all ? "all_candidates_allowed" : "candidate_set_restricted");
  }

  #engineLoad(
    plan: PressurePlan | undefined,
    withPlan: EngineLoadDecision,
  ): EngineLoadDecision | undefined {
    if (!this.#options.selection.engine_load) return undefined;
    return plan === undefined ? "telemetry_fallback" : withPlan;
  }
}

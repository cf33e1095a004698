// Which worker should a refused request go to, and may it make that worker an owner of its prefix? An
// owner that has room comes first: then nobody new is needed, and neither budget nor cooldown matters.
// Only when every owner that the headers allow is shown to be full does the prefix get one more owner,
// and the right to make it is claimed in the same step: of a spill and any number of seeds one wins.
//
// Who owns the prefix must be told by the model's own source: the engines' events, or, where answers
// that ended well name the owners, those. An owner by the other source, by a recent spill or by a
// request under way proves nothing; the last two still count against the budget. Planning publishes no
// ownership. Pure but for that claim; O(workers + blocks).

import type { SelectionConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { PartitionProtections } from "../prefixes/partition-protections.js";
import type { SeedClaim } from "../prefixes/protections.js";
import { traceOf } from "../selection/answers.js";
import { isAllowed } from "../selection/candidates.js";
import type { PrefixTrace, SeedPolicy, SelectionQuery } from "../selection/decision.js";
import type { Ownership, OwnershipLookup, PromptPrefix } from "../selection/ownership.js";
import type { PendingOwners } from "../selection/pending-owners.js";
import type { ModelRule } from "../selection/selector.js";
import type { Worker } from "../workers/worker.js";
import type { HeadroomTarget } from "./headroom.js";

/** Why there is no plan, in the order in which it is asked. */
export const PLAN_REFUSALS = [
  "not_cache_aware",
  "no_prompt",
  /** A seed on this prefix or a shorter one is under way, or has just ended. */
  "prefix_protected",
  "no_owner",
  /** Somebody holds the prefix, but not by the source that counts for this model. */
  "owner_not_proven",
  "owners_excluded",
  /** How full an owner is, is not known beyond doubt. */
  "owner_unknown",
  "no_owner_budget",
  "no_cooldown",
  "owner_ceiling",
  "provisional_owner",
  "no_clean_peer",
  /** The prefix got a new owner lately, or too many seeds are remembered. */
  "prefix_claimed",
] as const;
export type PlanRefusal = (typeof PLAN_REFUSALS)[number];

export interface SeedPlan {
  readonly kind: SeedPolicy;
  readonly target: HeadroomTarget;
  readonly ownership: Ownership;
  /** The prefix is this seed's; undefined when no new owner is made. */
  readonly claim: SeedClaim | undefined;
  /** What a success teaches about owners; undefined when only the engine's own events may say it. */
  readonly trace: PrefixTrace | undefined;
}

export type Planning =
  | { readonly ok: true; readonly plan: SeedPlan }
  | { readonly ok: false; readonly refusal: PlanRefusal };

export interface PlannerOptions {
  readonly selection: Pick<
    SelectionConfig,
    "max_cached_owners_per_prefix" | "cache_owner_spill_cooldown_secs"
  >;
  readonly lookup: OwnershipLookup;
  readonly pending: PendingOwners;
  readonly protections: PartitionProtections;
}

export interface PlanFacts {
  readonly query: SelectionQuery;
  readonly rule: ModelRule | undefined;
  /** Usable workers of the model and partition, those included that the headers exclude. */
  readonly workers: readonly Worker[];
  readonly targets: readonly HeadroomTarget[];
  /** An owner that has room, and bears more than twice what a clean peer does, counts as full. */
  readonly spread: boolean;
}

export class Planner {
  readonly #options: PlannerOptions;

  constructor(options: PlannerOptions) {
    this.#options = options;
  }

  /** Makes a plan; one that makes a new owner holds its prefix until its claim is dropped. */
  plan(facts: PlanFacts, now: MonotonicMs): Planning {
    const { query, rule, workers, targets } = facts;
    const { lookup, protections } = this.#options;
    if (rule?.policy !== "cache_aware") return refuse("not_cache_aware");
    const prefix = query.prompt === undefined ? undefined : lookup.read(query.prompt);
    if (prefix === undefined) return refuse("no_prompt");
    const entries = protections.of(query.partition).snapshot(lookup.chains(prefix), now);
    if (entries.length > 0) return refuse("prefix_protected");
    const ownership = lookup.find(prefix, workers, now);
    if (ownership.owners.length === 0) return refuse("no_owner");
    if (ownership.source !== rule.ownership) return refuse("owner_not_proven");
    const eligible = ownership.owners.filter((owner) => isAllowed(owner, query));
    if (eligible.length === 0) return refuse("owners_excluded");
    const owners = targets.filter(({ worker }) => eligible.includes(worker));
    if (owners.length < eligible.length) return refuse("owner_unknown");
    const withRoom = roomiest(owners);
    const others = targets.filter(
      ({ worker }) => isAllowed(worker, query) && !ownership.owners.includes(worker),
    );
    const stay: Planning | undefined = withRoom && {
      ok: true,
      plan: rebalance(withRoom, ownership, prefix),
    };
    const lopsided = facts.spread && withRoom !== undefined && bearsFarMore(withRoom, others);
    if (stay !== undefined && !lopsided) return stay;
    const expansion = this.#expand(facts, ownership, prefix, others, now);
    return expansion.ok ? expansion : (stay ?? expansion);
  }

  /** Every owner is full: one of the other workers becomes an owner, if that may be now. */
  #expand(
    { query, workers }: PlanFacts,
    ownership: Ownership,
    prefix: PromptPrefix,
    targets: readonly HeadroomTarget[],
    now: MonotonicMs,
  ): Planning {
    const { selection, pending } = this.#options;
    const protections = this.#options.protections.of(query.partition);
    const { keys, blocks, owners, source } = ownership;
    if (selection.max_cached_owners_per_prefix === 0) return refuse("no_owner_budget");
    if (selection.cache_owner_spill_cooldown_secs === 0) return refuse("no_cooldown");
    const known = new Set(owners.map(({ identity }) => identity.generation));
    const underWay = pending.of(keys, blocks);
    for (const { identity } of workers) {
      if (underWay?.has(identity.generation) === true) known.add(identity.generation);
    }
    if (known.size >= selection.max_cached_owners_per_prefix) return refuse("owner_ceiling");
    if (protections.provisionalOwner(keys, blocks, now) !== undefined) {
      return refuse("provisional_owner");
    }
    const peers = targets.filter(({ worker }) => !known.has(worker.identity.generation));
    const target = roomiest(peers);
    if (target === undefined) return refuse("no_clean_peer");
    const { url, revision } = target.worker.identity;
    const claim = protections.claimSeed(keys, blocks, { url, revision }, now);
    if (claim === undefined) return refuse("prefix_claimed");
    const trace = source === "committed" ? traceOf(prefix, target.worker, undefined) : undefined;
    const kind = "cache_aware_distribution_seed";
    return { ok: true, plan: { kind, target, ownership, claim, trace } };
  }
}

/** True when a worker with room bears less than half of what the owner does. */
function bearsFarMore(owner: HeadroomTarget, others: readonly HeadroomTarget[]): boolean {
  return others.some(({ slots, occupied }) => slots > 0 && 2 * occupied < owner.occupied);
}

function rebalance(target: HeadroomTarget, ownership: Ownership, prefix: PromptPrefix): SeedPlan {
  const trace = traceOf(prefix, target.worker, ownership.lastSuccessAt(target.worker));
  return { kind: "cache_aware_owner_rebalance", target, ownership, claim: undefined, trace };
}

/** Most slots, then least live load, then the first by url; undefined when nobody has a slot. */
function roomiest(targets: readonly HeadroomTarget[]): HeadroomTarget | undefined {
  let best: HeadroomTarget | undefined;
  for (const target of targets) {
    if (target.slots > 0 && (best === undefined || isRoomier(target, best))) best = target;
  }
  return best;
}

function isRoomier(one: HeadroomTarget, other: HeadroomTarget): boolean {
  if (one.slots !== other.slots) return one.slots > other.slots;
  const difference = one.worker.runtime.liveLoad - other.worker.runtime.liveLoad;
  if (difference !== 0) return difference < 0;
  return one.worker.identity.url < other.worker.identity.url;
}

function refuse(refusal: PlanRefusal): Planning {
  return { ok: false, refusal };
}

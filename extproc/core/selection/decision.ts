// The words of choosing a worker: what is asked, what is answered, and the name of every way in which
// an answer can come about. The names are labels of metrics, so the list is closed.

import type { ModelId, PartitionName } from "../model/ids.js";
import type { Rejection } from "../model/rejection.js";
import type { OwnershipSource, SelectionPolicy } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { BlockKeys } from "../prefixes/block-keys.js";
import type { Disposer, Worker } from "../workers/worker.js";
import type { HashedPrompt } from "./ownership.js";

export interface SelectionQuery {
  readonly model: ModelId;
  /** The admitted partition: only its workers are considered. */
  readonly partition: PartitionName;
  /** Only this worker; wins over exclusions. An unknown url leaves no candidate. */
  readonly targetWorkerUrl: string | undefined;
  readonly excludedWorkerUrls: readonly string[];
  /** Trusted: requests with one key go to one worker. */
  readonly routingKey: string | undefined;
  /** Undefined when the request has none that can be read. */
  readonly prompt: HashedPrompt | undefined;
  /** The request's own limit of output tokens; undefined when it names none. */
  readonly outputLimitTokens: number | undefined;
}

/** Results that say who holds a prefix, or who is to hold it next. */
export const REPLICATION_RESULTS = [
  "cached_owner_hold",
  "owner_pressure_spill",
  "spill_cooldown_hold",
  "no_suitable_owner_spill",
  "fallback_existing_owner",
  "owner_ceiling_hold",
  "no_safe_spill_hold",
  "excluded_owner_spill",
  "excluded_owner_cooldown_hold",
  // Around a seed.
  "seed_cooldown_owner_hold",
  "seed_cooldown_excluded_owner_block",
  "active_distribution_seed_hold",
  "successful_distribution_seed_cooldown_hold",
  "failed_distribution_seed_hold",
  "failed_distribution_seed_block",
  "distribution_seed_missing_owner_block",
] as const;

/** Every way to choose, or to refuse, in the order of the rooms that use them. */
export const SELECTION_RESULTS = [
  // Policies that do not look at the prompt.
  "two_choices",
  "least_loaded",
  "next_in_turn",
  "no_routing_key",
  "routing_key",
  // cache_aware, by load.
  "no_prompt",
  "short_prompt",
  "short_match",
  "no_owner",
  "no_usable_owner",
  "imbalanced_kv_overload",
  "imbalanced_kv_spread",
  "imbalanced_reserved",
  "imbalanced_requests",
  // cache_aware, by who holds the prefix.
  "owner_match",
  ...REPLICATION_RESULTS,
  "leased_worker_block",
  // A request that was refused, and found its worker as a seed.
  "clean_peer",
  "owner_with_room",
] as const;
export type SelectionResult = (typeof SELECTION_RESULTS)[number];

/** What the engines' own load had to do with it; only where `selection.engine_load` is on. */
export const ENGINE_LOAD_DECISIONS = [
  "cached_owner_scoped",
  "telemetry_fallback",
  "all_candidates_allowed",
  "candidate_set_restricted",
] as const;
export type EngineLoadDecision = (typeof ENGINE_LOAD_DECISIONS)[number];

/** Ways of a refused request to its worker: a new owner is made, or an owner had room after all. */
export const SEED_POLICIES = [
  "cache_aware_distribution_seed",
  "cache_aware_owner_rebalance",
] as const;
export type SeedPolicy = (typeof SEED_POLICIES)[number];

/** How a worker was chosen, for metrics, log line and state page. */
export interface SelectionDecision {
  readonly policy: SelectionPolicy | SeedPolicy | "sticky_key";
  readonly result: SelectionResult;
  readonly engineLoad: EngineLoadDecision | undefined;
  /** What named the owners; undefined when nothing of the prompt is known anywhere. */
  readonly ownership: OwnershipSource | undefined;
  /** Workers that hold the longest match, those expected to hold it soon included. */
  readonly owners: number;
  readonly matchedBlocks: number;
  readonly promptBlocks: number;
}

/** What must be known at the end of a request to learn from its answer who holds its prompt. */
export interface PrefixTrace {
  readonly keys: BlockKeys;
  /** Of the worker that got the request. */
  readonly generation: number;
  /** Set when the worker was chosen because an earlier success says that it holds the prefix. */
  readonly expected: { readonly lastSuccessAt: MonotonicMs } | undefined;
}

export type Selection =
  | {
      readonly ok: true;
      readonly worker: Worker;
      readonly decision: SelectionDecision;
      /** Everything booked for the choice; call it at the end of the request. It ends the claim too. */
      readonly booking: Disposer;
      /** Stands for the request until its load is held: hold the load, then call this. */
      readonly claim: Disposer;
      readonly trace: PrefixTrace | undefined;
    }
  | {
      readonly ok: false;
      readonly rejection: Rejection;
      /** Undefined when no worker came into question at all. */
      readonly decision: SelectionDecision | undefined;
    };

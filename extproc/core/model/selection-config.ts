// How workers are chosen, and what is remembered of their caches: the part of the frozen configuration
// that the rooms `prefixes` and `selection` read. Spelled as in weir.yaml; validated by edge/config.

export const SELECTION_POLICIES = [
  "cache_aware",
  "power_of_two",
  "least_load",
  "round_robin",
  "consistent_hash",
] as const;
export type SelectionPolicy = (typeof SELECTION_POLICIES)[number];

/**
 * Who says which worker holds a prefix: `committed` = answers that ended well; `events` = what the
 * engines publish about their caches.
 */
export type OwnershipSource = "committed" | "events";

/** Where an engine publishes what its KV cache stores and removes. */
export interface KvEventsConfig {
  /** `tcp://host:port` of rank 0; rank r publishes at port + r. */
  readonly endpoint: string;
  /** Where missed batches are asked for, `tcp://host:port` of rank 0; undefined = nowhere. */
  readonly replay_endpoint: string | undefined;
  /** Only messages whose topic begins with this. */
  readonly topic: string;
  /** Data-parallel ranks that publish, 1 or more. */
  readonly ranks: number;
}

/** How workers are chosen, and what is remembered of their caches. */
export interface SelectionConfig {
  /** Part of a prompt that must be known at a worker for it to be preferred, 0..1, exceeded strictly. */
  readonly cache_threshold: number;
  /** Difference of live loads, in requests, from which the fleet may count as imbalanced. */
  readonly balance_abs_threshold: number;
  /** Difference of reserved tokens from which it may count as imbalanced, 1 or more. */
  readonly balance_reserved_threshold: number;
  /** Ratio of the highest to the lowest load that must be exceeded too, 1 or more. */
  readonly balance_rel_threshold: number;
  /** Difference of the workers' token usages from which it is imbalanced, above 0; 1 = off. */
  readonly balance_token_usage_threshold: number;
  /** Token usage of one worker from which it is imbalanced, above 0; 1 = off. */
  readonly overload_token_usage_threshold: number;
  /** Workers are filtered by the pressure that their engines report. */
  readonly engine_load: boolean;
  /** Output tokens counted for a request that names no smaller limit, 1 or more. */
  readonly fallback_output_token_estimate: number;
  /** Workers that may hold one prefix before spilling stops; 0 = spilling is off. */
  readonly max_cached_owners_per_prefix: number;
  /** Time in which one prefix gets no second new owner; 0 = no such time. */
  readonly cache_owner_spill_cooldown_secs: number;
  /** Bytes of memory for the prefixes of one worker, 1 or more. */
  readonly max_tree_size: number;
  /** Time between two sweeps of what has expired, 1 or more. */
  readonly eviction_interval_secs: number;
  /** Time after which a committed prefix without a success is forgotten, 1 or more. */
  readonly committed_ttl_s: number;
  /** UTF-16 characters of a block of a text prompt, 1 or more. */
  readonly block_chars: number;
  /** Tokens of a block of a token prompt, until the engine's events tell its own size; 1 or more. */
  readonly block_size: number;
  /** Blocks of a prompt that are looked at, 1 or more. */
  readonly max_prefix_blocks: number;
}

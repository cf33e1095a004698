// The section `selection`, how a model's workers are chosen, and where an engine publishes what its KV
// cache holds. Thresholds on shares of a KV cache end at 1, which is off, because a usage is never above
// it. Times are seconds, sizes are bytes, characters or tokens as their keys' descriptions say. Rules that
// need two values, such as a port for each rank, stand in rules-selection.ts.

import { SELECTION_POLICIES, type OwnershipSource } from "../../core/model/selection-config.js";
import { readTcpEndpoint } from "./addresses.js";
import { DEFAULTS, KV_EVENTS_DEFAULTS } from "./defaults.js";
import { above, atLeast, decimal, mapping, oneOf, onOff, text, whole } from "./fields.js";

const SELECTION = DEFAULTS.selection;

/** Counts of requests and tokens are unsigned 32-bit integers, like the ones engines report. */
const COUNT_MAX = 4_294_967_295;
/** No more workers than a configuration can have. */
const OWNERS_MAX = 1000;
/** A prefix that may not spread for longer than a day is not meant to spread at all. */
const COOLDOWN_SECS_MAX = 86_400;
/** 4 GiB; more for one worker than that and a thousand of them fill any host. */
const TREE_BYTES_MAX = 4_294_967_296;
/** What has expired would otherwise hold its memory for hours. */
const EVICTION_INTERVAL_SECS_MAX = 3600;
/** What nobody has asked for in a day is no longer in the cache of a busy engine. */
const COMMITTED_TTL_SECS_MAX = 86_400;
/** A block above that is longer than many prompts, which then have no prefix. */
const BLOCK_CHARS_MAX = 1_024;
/** Far above the block sizes of engines, which are 1 to 256. */
const BLOCK_TOKENS_MAX = 4096;
/** Each block of a prompt is hashed and looked up before the request is sent on. */
const PREFIX_BLOCKS_MAX = 1_024;
/** Far above the deployments there are; each rank costs a connection. */
const RANKS_MAX = 512;
/** A topic is a short name, for instance one with the engine's address and model in it. */
const TOPIC_MAX_CHARS = 256;

const OWNERSHIP_SOURCES = ["committed", "events"] as const satisfies readonly OwnershipSource[];

export const selectionSection = mapping({
  cache_threshold: decimal(0, 1)
    .default(SELECTION.cache_threshold)
    .describe(
      "Part of a prompt that a worker must hold to be preferred for it; exceeded strictly.",
    ),
  balance_abs_threshold: whole(0, COUNT_MAX)
    .default(SELECTION.balance_abs_threshold)
    .describe(
      "Difference of two workers' loads, in requests, above which load goes before prefixes.",
    ),
  balance_reserved_threshold: whole(1, COUNT_MAX)
    .default(SELECTION.balance_reserved_threshold)
    .describe(
      "Difference of two workers' reserved tokens above which load goes before prefixes; " +
        "the default is what eight requests without a limit of their own reserve.",
    ),
  balance_rel_threshold: atLeast(1)
    .default(SELECTION.balance_rel_threshold)
    .describe("Ratio of the same two loads that must be exceeded as well."),
  balance_token_usage_threshold: above(0, 1)
    .default(SELECTION.balance_token_usage_threshold)
    .describe("Difference of two KV caches' usage above which load goes first; 1 = off."),
  overload_token_usage_threshold: above(0, 1)
    .default(SELECTION.overload_token_usage_threshold)
    .describe("Usage of one KV cache above which load goes first; 1 = off."),
  engine_load: onOff
    .default(SELECTION.engine_load)
    .describe("Workers whose engines report pressure are passed over."),
  fallback_output_token_estimate: whole(1, COUNT_MAX)
    .default(SELECTION.fallback_output_token_estimate)
    .describe("Output tokens reserved at a worker for a request that names no smaller limit."),
  max_cached_owners_per_prefix: whole(0, OWNERS_MAX)
    .default(SELECTION.max_cached_owners_per_prefix)
    .describe(
      "Workers that may hold one prefix before it spreads no further; 0 = no such control.",
    ),
  cache_owner_spill_cooldown_secs: whole(0, COOLDOWN_SECS_MAX)
    .default(SELECTION.cache_owner_spill_cooldown_secs)
    .describe("Time in which one prefix gets no second new owner; 0 = no such time."),
  max_tree_size: whole(1, TREE_BYTES_MAX)
    .default(SELECTION.max_tree_size)
    .describe("Bytes of memory for the prefixes of one worker."),
  eviction_interval_secs: whole(1, EVICTION_INTERVAL_SECS_MAX)
    .default(SELECTION.eviction_interval_secs)
    .describe("Time between two sweeps of what has expired."),
  committed_ttl_s: whole(1, COMMITTED_TTL_SECS_MAX)
    .default(SELECTION.committed_ttl_s)
    .describe("Time after which a committed prefix without a success is forgotten."),
  block_chars: whole(1, BLOCK_CHARS_MAX)
    .default(SELECTION.block_chars)
    .describe("Characters of a block of a text prompt."),
  block_size: whole(1, BLOCK_TOKENS_MAX)
    .default(SELECTION.block_size)
    .describe("Tokens of a block of a token prompt, until the engine's events say their own."),
  max_prefix_blocks: whole(1, PREFIX_BLOCKS_MAX)
    .default(SELECTION.max_prefix_blocks)
    .describe("Blocks of a prompt that are looked at."),
});

/** Keys of a model that say how its workers are chosen. */
export const modelSelectionKeys = {
  policy: oneOf(SELECTION_POLICIES)
    .default(DEFAULTS.model.policy)
    .describe("How a worker is chosen for the model's requests."),
  ownership: oneOf(OWNERSHIP_SOURCES)
    .default(DEFAULTS.model.ownership)
    .describe("What says which worker holds a prefix: answers that ended well, or KV events."),
};

const ENDPOINT = "tcp://host:port that Weir can connect to (IPv6 in brackets, port 1 to 65535)";
const endpoint = text(ENDPOINT, (value) => readTcpEndpoint(value) !== undefined);

/** Keys of a worker that say where its engine publishes. */
export const workerKvEventsKeys = {
  kv_events: mapping({
    endpoint: endpoint.describe("Where rank 0 publishes; rank r publishes r ports above."),
    replay_endpoint: endpoint
      .optional()
      .describe("Where rank 0 answers for missed batches; rank r does r ports above."),
    topic: text(
      `at most ${String(TOPIC_MAX_CHARS)} characters without controls`,
      (value) => value.length <= TOPIC_MAX_CHARS && !/\p{Cc}/u.test(value),
    )
      .default(KV_EVENTS_DEFAULTS.topic)
      .describe("Only messages whose topic begins with this."),
    ranks: whole(1, RANKS_MAX)
      .default(KV_EVENTS_DEFAULTS.ranks)
      .describe("Data-parallel ranks that publish."),
  })
    .optional()
    .describe("Where the engine publishes what its KV cache stores and removes."),
};

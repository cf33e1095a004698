// What applies when the file says nothing, each value with its reason. The schema takes its defaults
// from here, and so does the check of rules across keys, so there is one copy of each number.

import type { ClassConfig } from "../../core/model/config.js";
import type { PriorityClass } from "../../core/model/priority.js";

export const DEFAULTS = {
  listen: {
    // Loopback, because whoever reaches this port decides where requests go.
    ext_proc: "127.0.0.1:9002",
    // The cheapest one that is made for the address.
    transport: "auto",
  },
  envoy: {
    // Loopback until an operator opens the door on purpose.
    address: "127.0.0.1",
    port: 10_000,
    // Envoy's admin interface can stop the process: never outside of the host by default.
    admin_address: "127.0.0.1",
    admin_port: 9901,
    // No proxy in front: an X-Forwarded-For of a client is not believed.
    trusted_hops: 0,
    // Weir answers in milliseconds unless it asked for more time; 2 s survives a long GC pause.
    message_timeout: "2s",
    // A client must finish sending its request; 32 MiB in a minute is a slow line.
    request_timeout: "60s",
    http_filters_before: [],
    identity_metadata: [],
  },
  admin: {
    // Loopback: the state page names tenants.
    listen: "127.0.0.1:9190",
    // One line per settled request and what goes wrong.
    log_level: "info",
  },
  models: {},
  // Spreads load without knowing of prefixes, so nothing has to be learned about a model first; and
  // success tells of prefixes without any feed.
  model: { aliases: [], policy: "power_of_two", ownership: "committed" },
  trust: {
    // Everything off: a header is a claim of the client until an operator says who may send it.
    tenant_id: false,
    prefer_tenant_id: false,
    request_model: false,
    output_token_estimate: false,
    admission_partition: false,
    target_worker_url: false,
    excluded_worker_urls: false,
    routing_key: false,
    tenant_header_name: "x-weir-tenant-id",
    peers: [],
  },
  headers: {
    // Names of other gateways are read only where a migration needs them.
    aliases: false,
  },
  scheduler: {
    enabled: true,
    // -1: the sum of what the workers report, so that adding a worker adds slots.
    max_concurrent_requests: -1,
    // A hundred waiters at one request per second and slot are within the queue timeout.
    queue_size: 100,
    // Capacity exists but is contended: clients retry a 429.
    queue_timeout_status: 429,
    // A class that is not listed keeps its values from CLASS_DEFAULTS.
    classes: {},
    // Asking for a higher class is a claim of the client, so it needs a policy.
    default_max_class: "default",
    tenant_policies: {},
    // Half: reservations made for large fleets leave every class slots in a small one.
    reserved_share_max: 0.5,
    // At most 16 of 64: under constant overload promotions must not turn the order around.
    starvation_max_share: 0.25,
    // A scheduler that cannot be built is a mistake to be seen, not to be run without.
    fallback_to_limiter: false,
    admission_partitions: {},
    default_admission_partition: "default",
    // Slots follow the engines wherever their feedback may decide.
    adaptive_capacity: "auto",
  },
  fair_share: {
    // Equal shares of output tokens are what tenants of one fleet expect of it.
    enabled: true,
    // Only the proportion of two weights matters, and 1 is the easiest to compare with.
    default_weight: 1,
    // Middle of the road for chat answers; corrected by real usage when the answer ends.
    default_output_tokens: 256,
    tenant_weights: {},
    model_profiles: {},
    // Of the default queue of 100 at least 36 places are left to the other tenants.
    max_queued_requests_per_tenant: 64,
    // More callers than one fleet serves, in about 70 MB; a caller that changes its name with every
    // request would otherwise fill the memory.
    max_tracked_tenants: 100_000,
  },
  adaptive_admission: {
    // Limits move only where somebody asked for it; shadow shows first what they would be.
    mode: "off",
    strategy: "engine_feedback",
    // Short enough that a new workload is learned within the hour, long enough to outlast a quiet
    // quarter of it.
    estimator_half_life_secs: 900,
    // With less, the workers that are silent could be the ones that are full.
    min_load_coverage: 0.8,
    // Enough to see whether one more helps, few enough to wait a moment when it does not.
    feedback_probe_requests_per_healthy_replica: 2,
    // An engine takes up what it admits in batches: a short line in front of it is no overload.
    feedback_max_waiting_requests_per_healthy_replica: 2,
    // From there on engines evict and compute again.
    feedback_max_token_usage: 0.9,
    // Throughput of a busy engine scatters by about as much from sample to sample.
    feedback_throughput_improvement_ratio: 0.02,
    feedback_reference_rule: false,
    // Five series per worker and rank, which engines export themselves.
    engine_metrics: false,
    // Limits a few answers old; a question costs an engine some milliseconds.
    load_monitor_interval_secs: 10,
  },
  selection: {
    // A shorter shared part saves less than a worker with fewer requests does.
    cache_threshold: 0.3,
    // Both must be exceeded: 64 requests of difference are little on large workers, and a half more
    // is little on idle ones.
    balance_abs_threshold: 64,
    balance_reserved_threshold: 32_768,
    balance_rel_threshold: 1.5,
    // 1 is off: usage is known only where engines are asked for it.
    balance_token_usage_threshold: 1,
    overload_token_usage_threshold: 1,
    // Counts of requests need no telemetry.
    engine_load: false,
    // As long as chat answers get; a request that says max_tokens is taken by its word.
    fallback_output_token_estimate: 4096,
    // Off: prefixes spread by load alone until somebody decides how far.
    max_cached_owners_per_prefix: 0,
    cache_owner_spill_cooldown_secs: 0,
    // 64 MiB hold more blocks than the KV cache of one engine does.
    max_tree_size: 67_108_864,
    // What has expired matches nothing anyway; sweeping only gives memory back.
    eviction_interval_secs: 60,
    // Engines under load evict within minutes what nobody asks for.
    committed_ttl_s: 600,
    // About 64 tokens: short enough for system prompts, long enough to look up few of them.
    block_chars: 256,
    // The block size that engines have by default.
    block_size: 16,
    // With 256 characters each, 64 KiB of a prompt: what follows seldom decides where it should go.
    max_prefix_blocks: 256,
  },
  credits: {
    // Time for an allocator to hand a request on over a slow network; a forgotten slot is back soon.
    ttl_ms: 30_000,
    // Retries of an allocator end within ten minutes.
    terminal_retention_secs: 600,
    // Allocator and ordinary requests share the slots until an operator says otherwise.
    required: false,
  },
  seeding: {
    // Off: nothing is sent past a refusal until an operator has named where.
    partitions: [],
    seed_cap: 0,
    // An allocator decides which request may seed; without one, `scheduler` lets every request try.
    proof_source: "credits",
    // The longest answers of chat models are a tenth of it.
    seed_response_max_bytes: 4_194_304,
  },
  settlement: {
    // An answer of 64 MiB of JSON holds far more tokens than any engine makes in one request.
    decode_max_bytes: 67_108_864,
  },
  health: {
    path: "/health",
    // A dead worker costs at most about ten seconds of failed requests.
    interval_secs: 5,
    timeout_secs: 2,
    // One lost check is noise, two in a row are a fault.
    failure_threshold: 2,
    success_threshold: 1,
  },
  breaker: {
    consecutive_failures: 5,
    // Half of the last 20: a sick worker that still answers now and then.
    failure_ratio: 0.5,
    window_requests: 20,
    window_secs: 30,
    // Long enough for an engine to recover from an overload, short enough to come back soon.
    open_secs: 10,
  },
  limits: {
    // Long contexts and inline images fit; one request cannot fill the memory.
    body_limit_bytes: 33_554_432,
    // Waiting requests are still served for this long after SIGTERM.
    drain_timeout_secs: 30,
    // Long generations end by themselves within ten minutes.
    shutdown_grace_period_secs: 600,
    // Enough for a dashboard, few enough for a time series database.
    tenant_metric_top_n: 32,
  },
} as const;

/** A feed of KV events that says no more than where it is. */
export const KV_EVENTS_DEFAULTS = {
  // Everything that is published there.
  topic: "",
  // One engine process without data parallelism.
  ranks: 1,
} as const;

/** A model profile that says nothing more. */
export const PROFILE_DEFAULTS = {
  tenant_weights: {},
  // All tenants without a weight weigh together what one tenant does elsewhere.
  other_weight: 1,
} as const;

/** A class that is not listed; a listed one replaces all of it. */
export const CLASS_DEFAULTS = {
  // Work nobody waits for: no slot of its own, and a place in the queue for five minutes.
  bulk: {
    reserved_floor: 0,
    reserved_per_slot: 0,
    queue_size: 1024,
    queue_timeout_secs: 300,
    starvation_threshold_secs: 120,
    can_preempt: false,
  },
  // Longer than the wait a person accepts, shorter than the timeout of common clients.
  default: {
    reserved_floor: 0,
    reserved_per_slot: 0.1,
    queue_size: 512,
    queue_timeout_secs: 60,
    starvation_threshold_secs: 30,
    can_preempt: false,
  },
  // A person waits in front of a screen: a part of the fleet is always near.
  interactive: {
    reserved_floor: 128,
    reserved_per_slot: 0.25,
    queue_size: 256,
    queue_timeout_secs: 30,
    starvation_threshold_secs: 5,
    can_preempt: true,
  },
  // Few requests that must pass: a fixed number of slots does.
  system: {
    reserved_floor: 32,
    reserved_per_slot: 0,
    queue_size: 64,
    queue_timeout_secs: 30,
    starvation_threshold_secs: 5,
    can_preempt: true,
  },
} as const satisfies Readonly<Record<PriorityClass, ClassConfig>>;

/** Patience in the limiter's queue, as long as that of class `default`. */
export const LIMITER_QUEUE_TIMEOUT_SECS = CLASS_DEFAULTS.default.queue_timeout_secs;

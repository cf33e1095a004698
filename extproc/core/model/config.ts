// The frozen configuration all rooms speak of. Keys are spelled as in weir.yaml, so that an error, a
// log line and the code name the same thing. Durations are already milliseconds where the key ends
// in `_ms` here (the file writes them as "2s" without the suffix) and seconds where it ends in
// `_secs`. Everything is validated by edge/config before the core sees it.

import type { ClusterName, ModelId, PartitionName, TenantKey } from "./ids.js";
import type { ClassRank, PerClass } from "./priority.js";
import type {
  KvEventsConfig,
  OwnershipSource,
  SelectionConfig,
  SelectionPolicy,
} from "./selection-config.js";

/** Where a listener is bound: TCP, or a unix socket for peers on the same host. */
export type ListenAddress =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number }
  | { readonly kind: "unix"; readonly path: string };

/** Which server carries the ext_proc streams: our own, the runtime's, or the gRPC library's. */
export type TransportKind = "h2c" | "http2" | "grpc_js";

export interface ListenConfig {
  readonly ext_proc: ListenAddress;
  readonly transport: TransportKind;
}

/** A value inside Envoy's dynamic metadata that names an authenticated caller. */
export interface IdentityMetadata {
  readonly namespace: string;
  /** Keys from the namespace's struct down to a string, for example ["claims", "sub"]. */
  readonly path: readonly string[];
}

export interface EnvoyTls {
  readonly certificate_file: string;
  readonly private_key_file: string;
  /** Certificate authority that client certificates must come from; undefined = none asked for. */
  readonly client_ca_file: string | undefined;
}

export interface EnvoyConfig {
  readonly address: string;
  readonly port: number;
  readonly admin_address: string;
  readonly admin_port: number;
  /** Where Envoy finds Weir, when that is not `listen.ext_proc` as written (containers). */
  readonly ext_proc_target: ListenAddress | undefined;
  readonly trusted_hops: number;
  readonly message_timeout_ms: number;
  /** Most time Envoy grants a held request; at least the longest queue timeout + 5 s. */
  readonly max_message_timeout_ms: number;
  /** Longest silence of a stream, held ones included; at least the longest queue timeout + 305 s. */
  readonly stream_idle_timeout_ms: number;
  readonly request_timeout_ms: number;
  /** HTTP filters written verbatim before ext_proc (jwt_authn and the like). */
  readonly http_filters_before: readonly unknown[];
  readonly identity_metadata: readonly IdentityMetadata[];
  readonly tls: EnvoyTls | undefined;
}

export interface AdminConfig {
  readonly listen: ListenAddress;
  readonly log_level: "trace" | "debug" | "info" | "warn" | "error";
}

export type EngineKind = "vllm" | "sglang" | "trtllm" | "triton";

export interface WorkerLabels {
  /** The engine's own ceiling of running requests, 1..65535. */
  readonly max_running_requests: number | undefined;
  readonly admission_partition: PartitionName | undefined;
}

/** Where a key is found, of an engine or of the allocator; the key itself is no configuration. */
export type ApiKeySource =
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "file"; readonly path: string };

export interface WorkerConfig {
  readonly id: string;
  /** `http://host:port`, no path. */
  readonly url: string;
  readonly cluster: ClusterName;
  readonly engine: EngineKind | undefined;
  readonly models: readonly ModelId[];
  readonly labels: WorkerLabels;
  /** Time between two questions for its load, 1 or more. */
  readonly load_monitor_interval_secs: number;
  /** Where its metrics are, `http://host:port`; the url itself unless they have a port of their own. */
  readonly telemetry_url: string;
  readonly api_key: ApiKeySource | undefined;
  readonly kv_events: KvEventsConfig | undefined;
}

export interface ModelConfig {
  readonly aliases: readonly string[];
  readonly policy: SelectionPolicy;
  readonly ownership: OwnershipSource;
}

export interface TrustConfig {
  readonly tenant_id: boolean;
  /** The trusted tenant header wins over an authenticated caller; needs `tenant_id`. */
  readonly prefer_tenant_id: boolean;
  readonly request_model: boolean;
  readonly output_token_estimate: boolean;
  readonly admission_partition: boolean;
  readonly target_worker_url: boolean;
  readonly excluded_worker_urls: boolean;
  /** Requests with one routing key go to one worker. */
  readonly routing_key: boolean;
  /** Lower-case name of the tenant header. */
  readonly tenant_header_name: string;
  /** CIDRs, single addresses and SPIFFE ids of the proxies that may send trusted headers; empty = every peer. */
  readonly peers: readonly string[];
}

export interface HeadersConfig {
  /** Also read (and strip) the names other gateways use. */
  readonly aliases: boolean;
}

export interface ClassConfig {
  /** Slots kept back whatever the capacity, 0..65535. */
  readonly reserved_floor: number;
  /** Share of the capacity kept back, 0 or more. */
  readonly reserved_per_slot: number;
  /** Soft share of the queue budget. */
  readonly queue_size: number;
  readonly queue_timeout_secs: number;
  readonly starvation_threshold_secs: number;
  readonly can_preempt: boolean;
}

export interface PartitionConfig {
  /** Slots of a static partition, 1..65535; undefined = it follows its healthy replicas. */
  readonly max_concurrent_requests: number | undefined;
  /** Slots per healthy replica; undefined = what the replicas report, or their part of the fleet. */
  readonly max_concurrent_requests_per_healthy_replica: number | undefined;
  /** Waiters, 0 = nobody waits. */
  readonly queue_size: number;
}

export interface SchedulerConfig {
  /** False: one plain limiter without classes and partitions. */
  readonly enabled: boolean;
  /** Global ceiling of slots, 1..65535; undefined = what the workers report. */
  readonly max_concurrent_requests: number | undefined;
  /** Waiters of a scheduler without partitions; ceiling of the partitions' sum with them. */
  readonly queue_size: number;
  /** Patience in the limiter's queue. */
  readonly queue_timeout_secs: number;
  readonly queue_timeout_status: 408 | 429 | 503;
  readonly classes: PerClass<ClassConfig>;
  /** Highest class of a tenant without a policy. */
  readonly default_max_class: ClassRank;
  readonly tenant_policies: ReadonlyMap<TenantKey, ClassRank>;
  /** Part of the capacity that all reservations together may take, 0..1. */
  readonly reserved_share_max: number;
  /** Share of contested promotions among a partition's last 64 dispatches, 0..1. */
  readonly starvation_max_share: number;
  /** Requests per second, 0 = no refill in the limiter; undefined = no rate check. */
  readonly rate_limit_tokens_per_second: number | undefined;
  /** Empty = one partition named `global`. */
  readonly admission_partitions: ReadonlyMap<PartitionName, PartitionConfig>;
  readonly default_admission_partition: PartitionName;
  /** Slots of the partitions follow what their engines report; never true in the limiter. */
  readonly adaptive_capacity: boolean;
}

/** Learning from engine feedback. `off`: nothing is built. `shadow`: decisions are only counted. */
export type AdaptiveAdmissionMode = "off" | "shadow" | "enforce";

export interface AdaptiveAdmissionConfig {
  readonly mode: AdaptiveAdmissionMode;
  /** Time in which a remembered best throughput loses half its value, above 0. */
  readonly estimator_half_life_secs: number;
  /** Share of the healthy workers that must report before their reports count, above 0, up to 1. */
  readonly min_load_coverage: number;
  /** Requests per healthy worker offered beyond the knee to find out whether more helps, 0 or more. */
  readonly feedback_probe_requests_per_healthy_replica: number;
  /** Mean waiting requests per reporting worker that still count as no pressure, 0 or more. */
  readonly feedback_max_waiting_requests_per_healthy_replica: number;
  /** Mean token usage from which the partition is under pressure, above 0, up to 1. */
  readonly feedback_max_token_usage: number;
  /** Relative change of throughput that is taken for a change at all, 0..1. */
  readonly feedback_throughput_improvement_ratio: number;
  /** The older estimator: a fixed margin, no probing downwards, no bridging of lost polls. */
  readonly feedback_reference_rule: boolean;
  /** What engines report is exported per worker, and asked for even if nothing else needs it. */
  readonly engine_metrics: boolean;
}

/** Shares among the requests for one model: named tenants, and all others in one bucket. */
export interface ModelProfileConfig {
  readonly tenant_weights: ReadonlyMap<TenantKey, number>;
  /** Weight of the bucket of all tenants without a weight in this profile. */
  readonly other_weight: number;
}

export interface FairShareConfig {
  /** False: waiters of a class are served in the order of arrival. */
  readonly enabled: boolean;
  /** Weight of a tenant without one of its own; 0.001..10000, like every weight. */
  readonly default_weight: number;
  /** Provisional charge of a request without a trusted estimate, in output tokens. */
  readonly default_output_tokens: number;
  readonly tenant_weights: ReadonlyMap<TenantKey, number>;
  /** By canonical model id; a request for any other model is shared by the flat weights. */
  readonly model_profiles: ReadonlyMap<ModelId, ModelProfileConfig>;
  /** Waiters of one tenant in one partition, in all classes together. */
  readonly max_queued_requests_per_tenant: number;
  /** Tenants with an account of their own; later ones share one. */
  readonly max_tracked_tenants: number;
}

/** Capacity credits: slots that an external allocator takes ahead of its requests. */
export interface CreditsConfig {
  /** The allocator generation that is served; undefined = credits are off. */
  readonly generation: string | undefined;
  /** Life of a credit that nobody redeems, from its issue and once more from its first arming. */
  readonly ttl_ms: number;
  /** How long a used or dead credit still answers with what became of it. */
  readonly terminal_retention_secs: number;
  /** Refuse inference requests that bring no credit. */
  readonly required: boolean;
  /** Where the key is found that the allocator proves itself with; set whenever credits are on. */
  readonly service_key: ApiKeySource | undefined;
}

/** Guarded seeding: a refused request may make a clean worker an owner of its prefix, one at a time. */
export interface SeedingConfig {
  /** Partitions that seed; names are compared exactly. */
  readonly partitions: readonly PartitionName[];
  /** Seeds under way in one partition, 0 or 1; 0 = off. */
  readonly seed_cap: number;
  /** What gives a request the right to seed: its redeemed credit, or every grant of the fair queue. */
  readonly proof_source: "credits" | "scheduler";
  /** Bytes of a seed's answer that are read before the seed counts as failed. */
  readonly seed_response_max_bytes: number;
}

export interface SettlementConfig {
  /** Decoded bytes of one compressed answer that are read before its usage counts as missing. */
  readonly decode_max_bytes: number;
}

export interface HealthConfig {
  readonly path: string;
  readonly interval_secs: number;
  readonly timeout_secs: number;
  /** Failed checks in a row that take a worker out. */
  readonly failure_threshold: number;
  /** Passed checks in a row that bring it in. */
  readonly success_threshold: number;
}

export interface BreakerConfig {
  readonly consecutive_failures: number;
  readonly failure_ratio: number;
  readonly window_requests: number;
  readonly window_secs: number;
  readonly open_secs: number;
}

export interface LimitsConfig {
  readonly body_limit_bytes: number;
  readonly drain_timeout_secs: number;
  readonly shutdown_grace_period_secs: number;
  /** Tenants that get a metric label of their own; the rest is `other`. */
  readonly tenant_metric_top_n: number;
}

export interface WeirConfig {
  readonly listen: ListenConfig;
  readonly envoy: EnvoyConfig;
  readonly admin: AdminConfig;
  readonly workers: readonly WorkerConfig[];
  readonly models: ReadonlyMap<ModelId, ModelConfig>;
  readonly trust: TrustConfig;
  readonly headers: HeadersConfig;
  readonly scheduler: SchedulerConfig;
  readonly fair_share: FairShareConfig;
  readonly adaptive_admission: AdaptiveAdmissionConfig;
  readonly selection: SelectionConfig;
  readonly credits: CreditsConfig;
  readonly seeding: SeedingConfig;
  readonly settlement: SettlementConfig;
  readonly health: HealthConfig;
  readonly breaker: BreakerConfig;
  readonly limits: LimitsConfig;
}

/**
 * Bounds of every fair-share weight. The fair clock adds tokens / weight to doubles: one token is a
 * step of 0.0001 to 1000. The clock counts up to 2^30 before it begins at 0 again, where a double still
 * tells steps of 2.4e-7: the smallest step is at most 0.12 % off. With weights further apart the tokens of
 * a heavy tenant would be rounded away, and its requests would cost it nothing.
 */
export const WEIGHT_MIN = 0.001;
export const WEIGHT_MAX = 10_000;

/** The partition of a scheduler without `admission_partitions`. */
export const GLOBAL_PARTITION = "global" as PartitionName;

/** Envoy cluster that leads to Weir; no worker may have this name. */
export const EXT_PROC_CLUSTER = "ext_proc";

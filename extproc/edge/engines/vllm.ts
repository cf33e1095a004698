// vLLM's /metrics, in the names of V0, of V1 and of the time between. Each value of the label `engine`
// is one data-parallel rank: counts are summed over the rest of the labels, KV usage is their mean.
// The KV gauge was called gpu_cache_usage_perc, then both names stood side by side, now it is
// kv_cache_usage_perc; the newer name wins. Where waiting is told by reason, only "capacity" is
// overload: "deferred" requests wait for the scheduler's own ends, and the aggregate counts both. vLLM
// does not export its ceiling of running requests (max_num_seqs), and no rate: tokens per second come
// from its counter.

import { RANKS_MAX, type RankReading } from "../../core/workers/telemetry-reading.js";
import { readExposition, type Sample } from "./exposition.js";
import { malformed, missingMetric, type Parsed } from "./parsed.js";
import {
  ByLabel,
  countersOf,
  meanOf,
  product,
  samplesOf,
  sumOf,
  valuesOf,
  withLabel,
} from "./series.js";

const RUNNING = "vllm:num_requests_running";
const WAITING = "vllm:num_requests_waiting";
const WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason";
const KV_USAGE = "vllm:kv_cache_usage_perc";
const KV_USAGE_V0 = "vllm:gpu_cache_usage_perc";
const GENERATED = "vllm:generation_tokens_total";
const CACHE_CONFIG = "vllm:cache_config_info";

const VLLM_METRICS: ReadonlySet<string> = new Set([
  RUNNING,
  WAITING,
  WAITING_BY_REASON,
  KV_USAGE,
  KV_USAGE_V0,
  GENERATED,
  CACHE_CONFIG,
]);

export function parseVllmMetrics(text: string): Parsed {
  const read = readExposition(text, VLLM_METRICS);
  if (read.kind === "malformed") return malformed(read.detail);
  const { samples } = read;
  const running = samplesOf(samples, RUNNING);
  if (running.length === 0) return missingMetric(RUNNING);
  if (samplesOf(samples, WAITING).length === 0 && !samples.has(WAITING_BY_REASON)) {
    return missingMetric(WAITING);
  }
  if (!samples.has(KV_USAGE) && !samples.has(KV_USAGE_V0)) return missingMetric(KV_USAGE);
  // The label counts engines of the whole deployment, of which this endpoint may serve any one.
  const byEngine = new ByLabel(samples, "engine");
  // One rank too many is enough to have the whole refused.
  const engines = valuesOf(running, "engine").slice(0, RANKS_MAX + 1);
  const ranks = engines.map((engine, rank) => readEngine(byEngine, engine, rank));
  return {
    kind: "reading",
    reading: { source: "vllm_metrics", timestamp: undefined, ranks },
    counters: countersOf(samplesOf(samples, GENERATED)),
  };
}

function readEngine(byEngine: ByLabel, engine: string, rank: number): RankReading {
  const own = (name: string): readonly Sample[] => byEngine.of(name, engine);
  const byReason = own(WAITING_BY_REASON);
  const capacity = withLabel(byReason, "reason", "capacity");
  const all = sumOf(own(WAITING));
  const deferred = sumOf(withLabel(byReason, "reason", "deferred")) ?? 0;
  // Without a series of its own, overload is what the deferred ones leave of the aggregate.
  const rest = all === undefined ? undefined : Math.max(0, all - deferred);
  return {
    rank,
    running: sumOf(own(RUNNING)),
    waiting: sumOf(capacity) ?? rest,
    tokenUsage: meanOf(own(KV_USAGE)) ?? meanOf(own(KV_USAGE_V0)),
    maxTokens: cacheTokens(own(CACHE_CONFIG)),
  };
}

/** Size of the KV cache, where the engine says it; unknown while it still says "None". */
function cacheTokens([config, ...more]: readonly Sample[]): number | undefined {
  if (config === undefined || more.length > 0) return undefined;
  const count = (label: string): number | undefined => {
    const text = config.labels.get(label) ?? "";
    return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
  };
  return product(count("block_size"), count("num_gpu_blocks"));
}

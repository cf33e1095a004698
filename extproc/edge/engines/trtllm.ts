// trtllm-serve's metrics, one rank. They stand at /prometheus/metrics (its /metrics is JSON about
// iterations), and the gauges are only there when the server was started with iteration statistics:
// without them the worker is unknown. It exports no rate and no ceiling; its token counter moves when
// requests end, so the rate made from it comes in steps.

import { readExposition } from "./exposition.js";
import { malformed, missingMetric, type Parsed } from "./parsed.js";
import { countersOf, meanOf, product, samplesOf, sumOf } from "./series.js";

const RUNNING = "trtllm_num_requests_running";
const WAITING = "trtllm_num_requests_waiting";
const KV_USAGE = "trtllm_kv_cache_utilization";
const KV_BLOCKS = "trtllm_kv_cache_max_blocks";
const BLOCK_TOKENS = "trtllm_kv_cache_tokens_per_block";
const GENERATED = "trtllm_generation_tokens_total";

const TRTLLM_METRICS: ReadonlySet<string> = new Set([
  RUNNING,
  WAITING,
  KV_USAGE,
  KV_BLOCKS,
  BLOCK_TOKENS,
  GENERATED,
]);

export function parseTrtllmMetrics(text: string): Parsed {
  const read = readExposition(text, TRTLLM_METRICS);
  if (read.kind === "malformed") return malformed(read.detail);
  const { samples } = read;
  for (const name of [RUNNING, WAITING, KV_USAGE]) {
    if (!samples.has(name)) return missingMetric(name);
  }
  const blockTokens = meanOf(samplesOf(samples, BLOCK_TOKENS));
  const rank = {
    running: sumOf(samplesOf(samples, RUNNING)),
    waiting: sumOf(samplesOf(samples, WAITING)),
    tokenUsage: meanOf(samplesOf(samples, KV_USAGE)),
    maxTokens: product(sumOf(samplesOf(samples, KV_BLOCKS)), blockTokens),
  };
  return {
    kind: "reading",
    reading: { source: "trtllm_metrics", timestamp: undefined, ranks: [rank] },
    counters: countersOf(samplesOf(samples, GENERATED)),
  };
}

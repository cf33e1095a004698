// Triton with the TensorRT-LLM backend: gauges of the batch manager, told apart by a label, on the
// metrics port (8002 by default, another one than that of requests). One rank; several models are
// summed. `scheduled` is running, `max` the ceiling. There is no counter of tokens, so throughput stays
// unknown.

import { readExposition } from "./exposition.js";
import { malformed, missingMetric, NO_COUNTERS, type Parsed } from "./parsed.js";
import { meanOf, product, samplesOf, sumOf, withLabel } from "./series.js";

const REQUESTS = "nv_trt_llm_request_metrics";
const KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics";

const TRITON_METRICS: ReadonlySet<string> = new Set([REQUESTS, KV_BLOCKS]);

export function parseTritonMetrics(text: string): Parsed {
  const read = readExposition(text, TRITON_METRICS);
  if (read.kind === "malformed") return malformed(read.detail);
  const requests = (type: string): ReturnType<typeof withLabel> =>
    withLabel(samplesOf(read.samples, REQUESTS), "request_type", type);
  const blocks = (type: string): ReturnType<typeof withLabel> =>
    withLabel(samplesOf(read.samples, KV_BLOCKS), "kv_cache_block_type", type);
  for (const type of ["scheduled", "waiting"]) {
    if (requests(type).length === 0) return missingMetric(`${REQUESTS}{request_type="${type}"}`);
  }
  if (blocks("fraction").length === 0) {
    return missingMetric(`${KV_BLOCKS}{kv_cache_block_type="fraction"}`);
  }
  const rank = {
    running: sumOf(requests("scheduled")),
    waiting: sumOf(requests("waiting")),
    tokenUsage: meanOf(blocks("fraction")),
    maxTokens: product(sumOf(blocks("max")), meanOf(blocks("tokens_per"))),
    maxRunning: sumOf(requests("max")),
  };
  return {
    kind: "reading",
    reading: { source: "triton_metrics", timestamp: undefined, ranks: [rank] },
    counters: NO_COUNTERS,
  };
}

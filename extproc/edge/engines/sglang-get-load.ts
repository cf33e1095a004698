// SGLang's older GET /get_load together with /metrics. The list has the counts of each rank, num_reqs
// being running and waiting together; everything else comes from the gauges, of the same rank where
// they name it, else as the mean over all of them for every rank. There is no KV usage in the list, so
// without the gauge the worker is unknown.

import { RANKS_MAX, type RankReading } from "../../core/workers/telemetry-reading.js";
import { malformed, type Parsed } from "./parsed.js";
import { meanOf } from "./series.js";
import { isJsonObject, type JsonObject } from "./sglang-loads.js";
import { SglangGauges } from "./sglang-metrics.js";

export const GET_LOAD_PATH = "/get_load";

/** @param list the parsed JSON of /get_load; @param text the answer of /metrics */
export function parseSglangGetLoad(list: unknown, text: string): Parsed {
  if (!Array.isArray(list)) return malformed("/get_load is no JSON list");
  const gauges = SglangGauges.read(text);
  if (!(gauges instanceof SglangGauges)) return gauges;
  const ranks: RankReading[] = [];
  // One rank too many is enough to have the whole refused.
  for (const load of (list as readonly unknown[]).slice(0, RANKS_MAX + 1)) {
    if (!isJsonObject(load)) return malformed("/get_load holds something that is no object");
    ranks.push(readRank(load, gauges));
  }
  return {
    kind: "reading",
    reading: { source: "sglang_get_load", timestamp: undefined, ranks },
    counters: gauges.counters,
  };
}

function readRank(load: JsonObject, gauges: SglangGauges): RankReading {
  const rank = load["dp_rank"];
  const gauge = (name: Parameters<SglangGauges["of"]>[0]): number | undefined => {
    const own = typeof rank === "number" ? gauges.of(name, String(rank)) : [];
    return meanOf(own.length > 0 ? own : gauges.of(name));
  };
  const total = load["num_reqs"];
  const waiting = load["num_waiting_reqs"];
  return {
    rank,
    // A difference of what is no number is NaN, which is refused as a value.
    running: total === undefined || total === null ? undefined : difference(total, waiting),
    waiting,
    usedTokens: gauge("num_used_tokens"),
    maxTokens: gauge("max_total_num_tokens"),
    tokenUsage: gauge("token_usage"),
    utilization: gauge("utilization"),
    cacheHitRate: gauge("cache_hit_rate"),
    tokensPerSecond: gauge("gen_throughput"),
    maxRunning: load["max_running_requests"] ?? gauge("max_running_requests"),
  };
}

function difference(total: unknown, part: unknown): number {
  return typeof total === "number" && typeof part === "number" ? total - part : Number.NaN;
}

// SGLang's native GET /v1/loads in JSON: one object for each data-parallel rank. The first builds also
// wrote dp_rank_count and aggregate, later ones neither; both forms are read by the same fields, and
// any of them may be null. What tells one sample from the next is the time at which the ranks took it,
// where they say so; else the time of the answer.

import type { RankReading } from "../../core/workers/telemetry-reading.js";
import { malformed, missingMetric, NO_COUNTERS, type Parsed } from "./parsed.js";

/** Asks for the sections of the first builds too; a build that knows more leaves them out. */
export const LOADS_PATH = "/v1/loads?include=core,disagg,queues,memory";

/** Longest text of a time that is compared. */
const TIMESTAMP_CHARS_MAX = 64;

export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** True for an answer of this shape, whatever its values. */
export function looksLikeLoads(value: unknown): boolean {
  return isJsonObject(value) && Array.isArray(value["loads"]);
}

export function parseSglangLoads(answer: unknown): Parsed {
  if (!isJsonObject(answer)) return malformed("/v1/loads is no JSON object");
  const loads: unknown = answer["loads"];
  if (loads === undefined || loads === null) return missingMetric("loads");
  if (!Array.isArray(loads)) return malformed("loads is no list");
  const ranks: JsonObject[] = [];
  for (const load of loads as readonly unknown[]) {
    if (!isJsonObject(load)) return malformed("loads holds something that is no object");
    // A rank whose scheduler has not spoken yet stands there with nothing but zeros.
    if (isUnwritten(load)) return missingMetric(`the first report of rank ${String(ranks.length)}`);
    ranks.push(load);
  }
  return {
    kind: "reading",
    reading: {
      source: "sglang_loads",
      timestamp: ownTime(ranks) ?? timeText(answer["timestamp"]) ?? "",
      declaredRanks: answer["dp_rank_count"],
      ranks: ranks.map(readRank),
    },
    counters: NO_COUNTERS,
  };
}

function readRank(load: JsonObject): RankReading {
  return {
    rank: load["dp_rank"],
    running: load["num_running_reqs"],
    waiting: load["num_waiting_reqs"],
    total: load["num_total_reqs"],
    waitingUncachedTokens: load["num_waiting_uncached_tokens"],
    usedTokens: load["num_used_tokens"],
    maxTokens: load["max_total_num_tokens"],
    tokenUsage: load["token_usage"],
    utilization: load["utilization"],
    cacheHitRate: load["cache_hit_rate"],
    tokensPerSecond: load["gen_throughput"],
    maxRunning: load["max_running_requests"],
  };
}

function isUnwritten(load: JsonObject): boolean {
  return [
    "num_running_reqs",
    "num_waiting_reqs",
    "num_used_tokens",
    "max_total_num_tokens",
    "max_running_requests",
  ].every((field) => load[field] === 0);
}

/** The times of all ranks in one text; undefined unless every rank has one. */
function ownTime(ranks: readonly JsonObject[]): string | undefined {
  const times = ranks.map((rank) => timeText(rank["timestamp"]));
  return times.length === 0 || times.includes(undefined) ? undefined : times.join("|");
}

function timeText(value: unknown): string | undefined {
  if (typeof value === "number") return value > 0 ? String(value) : undefined;
  if (typeof value !== "string") return undefined;
  const text = value.trim();
  return text === "" || text.length > TIMESTAMP_CHARS_MAX ? undefined : text;
}

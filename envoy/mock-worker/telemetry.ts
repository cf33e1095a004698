// What does the worker say about itself? The numbers of the running engine in the words of vLLM or
// SGLang: Prometheus text at /metrics, and for SGLang the JSON of /v1/loads and /get_load. A reading
// is taken from the engine at the moment of asking, so telemetry and traffic never disagree; a frozen
// worker keeps rendering one old reading. Numbers of tokens are blocks times tokens per block. One
// rank, one engine.
import type { Clock } from "./clock.js";
import type { Engine, EngineCounters } from "./engine.js";
import type { JsonObject } from "./json.js";
import { CHARS_PER_TOKEN, type KvCache } from "./kv-cache.js";

export const ENGINE_VERSIONS = { vllm: "0.29.0", sglang: "0.5.9" } as const;

/** All numbers of one moment. */
export interface TelemetryReading {
  /** Milliseconds of the worker's clock, and since 1970. */
  readonly atMs: number;
  readonly epochMs: number;
  readonly model: string;
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  readonly waitingTokens: number;
  readonly waitingUncachedTokens: number;
  readonly capacityBlocks: number;
  readonly blockTokens: number;
  readonly usedTokens: number;
  readonly maxTokens: number;
  /** Share of blocks held by running requests, 0 to 1. */
  readonly tokenUsage: number;
  /** Generated tokens per second. */
  readonly throughput: number;
  readonly cacheHitRate: number;
  readonly counters: EngineCounters;
}

export function readTelemetry(source: {
  readonly engine: Engine;
  readonly cache: KvCache;
  readonly clock: Clock;
  readonly model: string;
}): TelemetryReading {
  const { engine, cache, clock } = source;
  const { queriedTokens, hitTokens } = engine.counters;
  const waiting = engine.waitingTokens();
  const blockTokens = cache.blockChars / CHARS_PER_TOKEN;
  return {
    atMs: clock.now(),
    epochMs: clock.epochMs(),
    model: source.model,
    slots: engine.slots,
    running: engine.running,
    waiting: engine.waiting,
    waitingTokens: waiting.all,
    waitingUncachedTokens: waiting.uncached,
    capacityBlocks: cache.capacityBlocks,
    blockTokens,
    usedTokens: cache.usedBlocks * blockTokens,
    maxTokens: cache.capacityBlocks * blockTokens,
    tokenUsage: cache.usedBlocks / cache.capacityBlocks,
    throughput: engine.throughput.perSecond(clock.now()),
    cacheHitRate: queriedTokens === 0 ? 0 : hitTokens / queriedTokens,
    counters: { ...engine.counters, finished: { ...engine.counters.finished } },
  };
}

type Metric = readonly [
  name: string,
  type: "gauge" | "counter",
  samples: readonly (readonly [labels: string, value: number])[],
];

export function vllmMetrics(reading: TelemetryReading): string {
  const { counters } = reading;
  const own = `engine="0",model_name="${label(reading.model)}"`;
  const one = (value: number): Metric[2] => [[own, value]];
  const reasons = Object.entries(counters.finished);
  const blocks = `num_gpu_blocks="${String(reading.capacityBlocks)}"`;
  // Live engines give this one no model name.
  const config = `block_size="${String(reading.blockTokens)}",engine="0",${blocks}`;
  return exposition([
    ["vllm:num_requests_running", "gauge", one(reading.running)],
    ["vllm:num_requests_waiting", "gauge", one(reading.waiting)],
    [
      "vllm:num_requests_waiting_by_reason",
      "gauge",
      [
        [`${own},reason="capacity"`, reading.waiting],
        [`${own},reason="deferred"`, 0],
      ],
    ],
    ["vllm:kv_cache_usage_perc", "gauge", one(reading.tokenUsage)],
    ["vllm:prefix_cache_queries_total", "counter", one(counters.queriedTokens)],
    ["vllm:prefix_cache_hits_total", "counter", one(counters.hitTokens)],
    ["vllm:num_preemptions_total", "counter", one(0)],
    ["vllm:prompt_tokens_total", "counter", one(counters.promptTokens)],
    ["vllm:generation_tokens_total", "counter", one(counters.completionTokens)],
    [
      "vllm:request_success_total",
      "counter",
      reasons.map(([reason, count]) => [`${own},finished_reason="${reason}"`, count]),
    ],
    ["vllm:cache_config_info", "gauge", [[config, 1]]],
  ]);
}

export function sglangMetrics(reading: TelemetryReading): string {
  const { counters } = reading;
  const own =
    `model_name="${label(reading.model)}",engine_type="unified",` +
    `tp_rank="0",pp_rank="0",moe_ep_rank="0"`;
  const one = (value: number): Metric[2] => [[own, value]];
  const pages = `num_pages="${String(reading.capacityBlocks)}"`;
  const config = `${own},page_size="${String(reading.blockTokens)}",${pages}`;
  return exposition([
    ["sglang:num_running_reqs", "gauge", one(reading.running)],
    ["sglang:num_queue_reqs", "gauge", one(reading.waiting)],
    ["sglang:num_used_tokens", "gauge", one(reading.usedTokens)],
    ["sglang:token_usage", "gauge", one(reading.tokenUsage)],
    ["sglang:gen_throughput", "gauge", one(reading.throughput)],
    ["sglang:cache_hit_rate", "gauge", one(reading.cacheHitRate)],
    ["sglang:utilization", "gauge", one(reading.running / reading.slots)],
    ["sglang:max_total_num_tokens", "gauge", one(reading.maxTokens)],
    ["sglang:max_running_requests", "gauge", one(reading.slots)],
    ["sglang:prompt_tokens_total", "counter", one(counters.promptTokens)],
    ["sglang:generation_tokens_total", "counter", one(counters.completionTokens)],
    ["sglang:cached_tokens_total", "counter", one(counters.hitTokens)],
    ["sglang:num_requests_total", "counter", one(counters.served)],
    ["sglang:cache_config_info", "gauge", [[config, 1]]],
  ]);
}

const LOAD_SECTIONS = ["core", "memory", "spec", "lora", "disagg", "queues", "all"];

export type LoadsAnswer =
  | { readonly kind: "json"; readonly status: number; readonly body: JsonObject }
  | { readonly kind: "text"; readonly body: string };

/** GET /v1/loads with its query; `old` adds the rank count and the aggregate of the first builds. */
export function loads(
  reading: TelemetryReading,
  query: URLSearchParams,
  form: "current" | "old",
): LoadsAnswer {
  const include = (query.get("include") ?? "core").split(",").map((part) => part.trim());
  const bad = include.filter((part) => !LOAD_SECTIONS.includes(part));
  if (bad.length > 0) {
    const detail = `Invalid include sections: ${bad.join(", ")}. Valid: ${LOAD_SECTIONS.join(", ")}`;
    return { kind: "json", status: 400, body: { detail } };
  }
  const wantedRank = query.get("dp_rank") ?? "0";
  const rank = loadOfRank(reading, include, form);
  if (query.get("format") === "prometheus") return { kind: "text", body: loadsText(rank) };
  const list = wantedRank === "0" ? [rank] : [];
  return {
    kind: "json",
    status: 200,
    body: {
      timestamp: new Date(reading.epochMs).toISOString(),
      version: ENGINE_VERSIONS.sglang,
      accelerator: "mock",
      num_accelerators: 1,
      ...(form === "old" ? { dp_rank_count: list.length, aggregate: aggregateOf(reading) } : {}),
      loads: list,
    },
  };
}

/** GET /get_load: the older per-rank list, where `num_reqs` counts running and waiting. */
export function getLoad(reading: TelemetryReading): readonly JsonObject[] {
  return [
    {
      dp_rank: 0,
      num_reqs: reading.running + reading.waiting,
      num_waiting_reqs: reading.waiting,
      num_tokens: reading.usedTokens + reading.waitingTokens,
      num_pending_tokens: reading.waitingTokens,
      // The engine's own performance counter in seconds: it names no wall time.
      ts_tic: reading.atMs / 1000,
    },
  ];
}

function loadOfRank(
  reading: TelemetryReading,
  include: readonly string[],
  form: "current" | "old",
): JsonObject {
  const wants = (section: string): boolean => include.includes(section) || include.includes("all");
  return {
    dp_rank: 0,
    timestamp: reading.epochMs / 1000,
    num_running_reqs: reading.running,
    num_waiting_reqs: reading.waiting,
    num_waiting_uncached_tokens: reading.waitingUncachedTokens,
    ...(form === "old" ? { num_total_reqs: reading.running + reading.waiting } : {}),
    num_used_tokens: reading.usedTokens,
    num_total_tokens: reading.usedTokens + reading.waitingTokens,
    max_total_num_tokens: reading.maxTokens,
    token_usage: reading.tokenUsage,
    gen_throughput: reading.throughput,
    cache_hit_rate: reading.cacheHitRate,
    utilization: reading.running / reading.slots,
    max_running_requests: reading.slots,
    ...(wants("memory")
      ? { memory: { weight_gb: 0, kv_cache_gb: 0, graph_gb: 0, token_capacity: reading.maxTokens } }
      : {}),
    ...(wants("queues")
      ? { queues: { waiting: reading.waiting, grammar: 0, paused: 0, retracted: 0 } }
      : {}),
    ...(wants("disagg") ? { disaggregation: { mode: "null" } } : {}),
  };
}

function aggregateOf(reading: TelemetryReading): JsonObject {
  return {
    total_running_reqs: reading.running,
    total_waiting_reqs: reading.waiting,
    total_reqs: reading.running + reading.waiting,
    avg_token_usage: reading.tokenUsage,
    avg_throughput: reading.throughput,
    avg_utilization: reading.running / reading.slots,
  };
}

function loadsText(rank: JsonObject): string {
  const numbers = Object.entries(rank).filter(
    (entry): entry is [string, number] =>
      typeof entry[1] === "number" && entry[0] !== "dp_rank" && entry[0] !== "timestamp",
  );
  return exposition(
    numbers.map(([name, value]) => [`sglang_${name}`, "gauge", [[`dp_rank="0"`, value]]]),
  );
}

function exposition(metrics: readonly Metric[]): string {
  const lines: string[] = [];
  for (const [name, type, samples] of metrics) {
    lines.push(`# TYPE ${name} ${type}`);
    for (const [labels, value] of samples) lines.push(`${name}{${labels}} ${decimal(value)}`);
  }
  return `${lines.join("\n")}\n`;
}

/** Python servers print whole numbers with a decimal point. */
function decimal(value: number): string {
  return Number.isInteger(value) ? `${String(value)}.0` : String(value);
}

function label(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

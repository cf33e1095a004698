// What each engine says of itself, as gauges per worker and data-parallel rank, for people who have no
// other monitoring of their engines. Off unless asked for: they are many series, and engines export them
// too. A worker that is not heard, or is gone, has no series; a field that its engine does not report has
// none either, because unknown is not zero.

import type { Registry } from "prom-client";
import type { RankSample } from "../../core/workers/telemetry.js";
import type { TelemetryStore } from "../../core/workers/telemetry-store.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";
import { gauge } from "./gauges.js";

const FIELDS: readonly (readonly [name: string, help: string, field: keyof RankSample])[] = [
  ["engine_running_requests", "Requests that the engine runs.", "running"],
  ["engine_waiting_requests", "Requests in the engine's own queue.", "waiting"],
  ["engine_token_usage", "Used part of the KV cache, 0 to 1.", "tokenUsage"],
  ["engine_gen_throughput", "Generated tokens per second.", "tokensPerSecond"],
  ["engine_cache_hit_rate", "Part of the prompts found in the cache, 0 to 1.", "cacheHitRate"],
];

/** Stands for the model of a worker that serves several: its engine does not tell them apart. */
const SEVERAL_MODELS = "*";

export interface EngineSources {
  readonly workers: Pick<WorkerRegistry, "all">;
  readonly telemetry: Pick<TelemetryStore, "get">;
}

export function observeEngines(registry: Registry, { workers, telemetry }: EngineSources): void {
  for (const [name, help, field] of FIELDS) {
    gauge(registry, name, help, ["worker", "model", "dp_rank"], (set) => {
      for (const { identity, models } of workers.all()) {
        const sample = telemetry.get(identity)?.sample;
        const ranks = sample?.ranks ?? [];
        // Counters tell the throughput of a whole engine, which is that of its only rank.
        const counted = ranks.length === 1 ? sample?.countedTokensPerSecond : undefined;
        const [first = "", ...more] = models;
        const model = more.length === 0 ? first : SEVERAL_MODELS;
        for (const [index, rank] of ranks.entries()) {
          const amount = rank[field] ?? (field === "tokensPerSecond" ? counted : undefined);
          if (amount === undefined) continue;
          set({ worker: identity.url, model, dp_rank: String(index) }, amount);
        }
      }
    });
  }
}

// Warnings about the choice of workers: knobs and events that nothing reads, a policy that lacks the
// header it goes by, caches that are known in part, and prefixes that spread without a brake. A knob is
// meant when it is not what applies anyway.

import type { WeirConfig, WorkerConfig } from "../../core/model/config.js";
import type { ModelId } from "../../core/model/ids.js";
import type { SelectionConfig } from "../../core/model/selection-config.js";
import { DEFAULTS } from "./defaults.js";
import { listWorkers } from "./worker-list.js";

/** Most workers one warning lists. */
const LISTED_WORKERS_MAX = 5;

/** What only the policy cache_aware reads. */
const KNOBS = (Object.keys(DEFAULTS.selection) as (keyof SelectionConfig)[]).filter(
  (key) => key !== "fallback_output_token_estimate",
);

/** Warnings of the section `selection` and of what models and workers say about the choice. */
export function selectionWarnings(config: WeirConfig): string[] {
  return [...modelWarnings(config), ...unreadEvents(config), ...knobWarnings(config)];
}

function modelWarnings({ models, workers, trust }: WeirConfig): string[] {
  const warnings: string[] = [];
  for (const [model, { policy, ownership }] of models) {
    if (policy === "consistent_hash" && !trust.routing_key) {
      warnings.push(
        `models.${model}.policy: consistent_hash while trust.routing_key is false, so no request ` +
          "has a key and workers are chosen as by power_of_two",
      );
    }
    if (ownership !== "events") continue;
    if (policy === "cache_aware") warnings.push(...silentWorkers(model, workers));
    else {
      warnings.push(
        `models.${model}.ownership: events has no effect while models.${model}.policy is ` +
          `${policy}; only cache_aware asks who holds a prefix`,
      );
    }
  }
  return warnings;
}

/** Workers whose caches no event tells of, beside others that publish. */
function silentWorkers(model: ModelId, workers: readonly WorkerConfig[]): string[] {
  const silent = [...workers.entries()]
    .filter(([, worker]) => worker.models.includes(model) && !feeds(worker, model))
    .map(([index]) => index);
  if (silent.length === 0) return [];
  const listed = listWorkers(silent, LISTED_WORKERS_MAX);
  return [
    `models.${model}.ownership: events, but none tell of ${listed}, so what is cached there ` +
      "counts only where no other worker's events match",
  ];
}

/** The events of a worker tell of its first model. */
export function feeds({ models, kv_events }: WorkerConfig, model: ModelId): boolean {
  return kv_events !== undefined && models[0] === model;
}

function unreadEvents({ workers, models }: WeirConfig): string[] {
  return workers.flatMap(({ kv_events, models: [first] }, index) => {
    if (kv_events === undefined || first === undefined) return [];
    if (models.get(first)?.ownership === "events") return [];
    return [
      `workers[${String(index)}].kv_events: nobody reads them while models.${first}.ownership is ` +
        "committed; they tell of the worker's first model",
    ];
  });
}

function knobWarnings({ selection, models }: WeirConfig): string[] {
  if (![...models.values()].some(({ policy }) => policy === "cache_aware")) {
    const idle = KNOBS.filter((key) => selection[key] !== DEFAULTS.selection[key]).map(
      (key) => `selection.${key}`,
    );
    return idle.length === 0
      ? []
      : [`${idle.join(", ")}: without effect while no model has the policy cache_aware`];
  }
  const owners = selection.max_cached_owners_per_prefix;
  if (owners === 0 || selection.cache_owner_spill_cooldown_secs > 0) return [];
  return [
    `selection.max_cached_owners_per_prefix: ${String(owners)} while ` +
      "selection.cache_owner_spill_cooldown_secs is 0, so a burst can spread one prefix over that " +
      "many workers at once",
  ];
}

// Is the load of these workers so unequal that evening it out is worth more than a warm cache? Four
// signs, in this order: one KV cache is too full, KV caches are filled too differently, too many more
// tokens are reserved on one worker, too many more requests run on one. The last two must hold both as
// a difference and as a ratio, so that neither small nor large fleets flap. KV figures count where a
// young enough sample is there; the ratios are at most 1, so a threshold of 1 is never exceeded.
//
// Asked about one worker, the signs are those of this worker against the calmest one: what another
// worker bears is no reason to leave this one.

import type { SelectionConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { TelemetryStore } from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";
import type { Loads } from "./loads.js";
import { freshEntry } from "./pressure.js";

export type Imbalance = "kv_overload" | "kv_spread" | "reserved" | "requests";

export interface ImbalanceRules {
  readonly selection: SelectionConfig;
  readonly loads: Loads;
  readonly telemetry: TelemetryStore | undefined;
}

/** A worker's token usage is never above this. */
const USAGE_MAX = 1;

interface Range {
  min: number;
  max: number;
}

/**
 * The first sign of imbalance among the workers; undefined when they are balanced.
 *
 * @param subject the one worker that may be too loaded; left out, it is whichever is the most loaded
 */
export function findImbalance(
  { selection, loads, telemetry }: ImbalanceRules,
  workers: readonly Worker[],
  now: MonotonicMs,
  subject?: Worker,
): Imbalance | undefined {
  const usage: Range = { min: Infinity, max: -Infinity };
  const reserved: Range = { min: Infinity, max: -Infinity };
  const requests: Range = { min: Infinity, max: -Infinity };
  const overload = selection.overload_token_usage_threshold;
  const spread = selection.balance_token_usage_threshold;
  const watchesUsage = Math.min(overload, spread) < USAGE_MAX;
  for (const worker of workers) {
    const entry = watchesUsage ? freshEntry(telemetry, worker, now) : undefined;
    const counts = subject === undefined || subject === worker;
    if (entry !== undefined) widen(usage, entry.load.tokenUsage, counts);
    widen(reserved, loads.reservedTokens(worker), counts);
    widen(requests, loads.requests(worker), counts);
  }
  if (usage.max > overload) return "kv_overload";
  if (usage.max - usage.min > spread) return "kv_spread";
  const ratio = selection.balance_rel_threshold;
  if (isApart(reserved, selection.balance_reserved_threshold, ratio)) return "reserved";
  if (isApart(requests, selection.balance_abs_threshold, ratio)) return "requests";
  return undefined;
}

/** @param upwards the value may be the highest */
function widen(range: Range, value: number, upwards: boolean): void {
  range.min = Math.min(range.min, value);
  if (upwards) range.max = Math.max(range.max, value);
}

function isApart({ min, max }: Range, difference: number, ratio: number): boolean {
  return max - min > difference && max > ratio * min;
}

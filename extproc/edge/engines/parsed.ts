// What every parser of an engine's answer returns: a reading with the counters that stand beside it, or
// the reason why the worker's load is unknown.

import type { WorkerReading } from "../../core/workers/telemetry-reading.js";

/** Running totals of generated tokens by series; the caller turns them into a rate. */
export type TokenCounters = ReadonlyMap<string, number>;

export const NO_COUNTERS: TokenCounters = new Map();

/** A reading without what the engine's answer cannot know: which scrape it is, and the rate. */
export type ParsedReading = Omit<WorkerReading, "token" | "countedTokensPerSecond"> & {
  /** The engine's own time of the sample; undefined = it has none; blank = it left it out. */
  readonly timestamp: string | undefined;
};

export interface Unreadable {
  readonly kind: "unknown";
  readonly reason: "malformed" | "missing_metric";
  readonly detail: string;
}

export type Parsed =
  | { readonly kind: "reading"; readonly reading: ParsedReading; readonly counters: TokenCounters }
  | Unreadable;

/** @param name what the answer does not have */
export function missingMetric(name: string): Unreadable {
  return { kind: "unknown", reason: "missing_metric", detail: `${name} is missing` };
}

export function malformed(detail: string): Unreadable {
  return { kind: "unknown", reason: "malformed", detail };
}

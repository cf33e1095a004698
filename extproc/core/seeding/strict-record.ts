// Is it known, beyond guessing, how full one worker is? Admission may live with gaps in what engines
// report; a seed may not, because it sends a request to a worker past a refusal. So one doubtful field
// makes the whole worker unknown, and it says which kind of doubt it was.
//
// Every source must tell running, waiting, token usage and a ceiling. What else must be there follows
// from the source:
//
//   sglang_loads      used tokens, tokens in all and utilization: every build of this endpoint has them
//   all others        nothing, because gauges come and go with versions and start options
//
// A field that is there must be possible, and be there on every rank. The ceiling that a worker was
// registered with stands in for the engine's own only when there is one rank: with several, nobody
// knows how it is shared among them. The reading of samples has made sure of the rest: counts are whole
// and not negative, rank ids are complete, a total is the sum of its parts, and sums cannot overflow.

import type { MonotonicMs } from "../model/time.js";
import type { RankSample, TelemetrySource } from "../workers/telemetry.js";
import { SAMPLE_AGE_MAX_MS, type TelemetryEntry } from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";

/** Every reason for which a worker has no strict record. */
export const RECORD_FAULTS = [
  /** No sample of exactly this worker, or one that could not be read. */
  "no_sample",
  /** First seen longer ago than `SAMPLE_AGE_MAX_MS`, however often it was repeated since. */
  "stale",
  /** It cannot be told whether this is a new sample. */
  "no_sample_time",
  "impossible_field",
  "missing_field",
  /** A ratio above 1. */
  "ratio_out_of_range",
  "no_ceiling",
] as const;
export type RecordFault = (typeof RECORD_FAULTS)[number];

/** One sample of exactly one worker, all of it known. */
export interface StrictRecord {
  readonly worker: Worker;
  /** The publication in which this sample first appeared: names the sample among all of the process. */
  readonly telemetryRevision: number;
  readonly observedAt: MonotonicMs;
  /** Sums over the ranks, in requests. */
  readonly running: number;
  readonly waiting: number;
  readonly maxRunning: number;
  /** The highest token usage or utilization of any rank, 0..1. */
  readonly pressure: number;
}

export type StrictReading =
  | { readonly ok: true; readonly record: StrictRecord }
  | { readonly ok: false; readonly fault: RecordFault };

type OptionalField = "waitingUncachedTokens" | "usedTokens" | "maxTokens" | "utilization";
const OPTIONAL_FIELDS: readonly OptionalField[] = [
  "waitingUncachedTokens",
  "usedTokens",
  "maxTokens",
  "utilization",
];

/** What a source always reports, beyond what no sample is without. */
const REQUIRED = {
  sglang_loads: ["usedTokens", "maxTokens", "utilization"],
  sglang_get_load: [],
  sglang_metrics: [],
  vllm_metrics: [],
  trtllm_metrics: [],
  triton_metrics: [],
} as const satisfies Record<TelemetrySource, readonly OptionalField[]>;

/** Fields that say nothing about room: an engine may report nonsense there and still be known. */
const IRRELEVANT_FIELDS: ReadonlySet<string> = new Set(["cacheHitRate", "tokensPerSecond"]);

/**
 * The strict record of a worker, or why it has none.
 *
 * @param entry what is published about exactly this worker; undefined = nothing
 */
export function readStrict(
  entry: TelemetryEntry | undefined,
  worker: Worker,
  now: MonotonicMs,
): StrictReading {
  if (entry === undefined) return { ok: false, fault: "no_sample" };
  if (now - entry.observedAt > SAMPLE_AGE_MAX_MS) return { ok: false, fault: "stale" };
  const fault = faultOf(entry);
  if (fault !== undefined) return { ok: false, fault };
  const { sample, revision, observedAt } = entry;
  const maxRunning = ceilingOf(sample.ranks, worker.labels.max_running_requests);
  if (maxRunning === undefined) return { ok: false, fault: "no_ceiling" };
  const totals = { running: 0, waiting: 0, pressure: 0 };
  for (const { running, waiting, tokenUsage, utilization } of sample.ranks) {
    totals.running += running;
    totals.waiting += waiting;
    totals.pressure = Math.max(totals.pressure, tokenUsage, utilization ?? 0);
  }
  const record = { worker, telemetryRevision: revision, observedAt, maxRunning, ...totals };
  return { ok: true, record };
}

function faultOf({ sample }: TelemetryEntry): RecordFault | undefined {
  const { token, ranks, invalidFields, source } = sample;
  if (token.kind === "none") return "no_sample_time";
  if (invalidFields.some((field) => !IRRELEVANT_FIELDS.has(field))) return "impossible_field";
  const required: readonly OptionalField[] = REQUIRED[source];
  for (const field of OPTIONAL_FIELDS) {
    const reporting = ranks.filter((rank) => rank[field] !== undefined).length;
    const allowed = reporting === ranks.length || (reporting === 0 && !required.includes(field));
    if (!allowed) return "missing_field";
  }
  const inRange = ranks.every(
    ({ tokenUsage, utilization }) => tokenUsage <= 1 && (utilization ?? 0) <= 1,
  );
  return inRange ? undefined : "ratio_out_of_range";
}

function ceilingOf(ranks: readonly RankSample[], label: number | undefined): number | undefined {
  let sum = 0;
  for (const { maxRunning } of ranks) {
    if (maxRunning === undefined) return ranks.length === 1 ? label : undefined;
    sum += maxRunning;
  }
  return sum;
}

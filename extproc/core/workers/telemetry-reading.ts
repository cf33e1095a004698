// Can what an engine reports be believed? A reading holds the values as they came off the wire, of any
// type; this turns it into a sample or says why there is none. Running, waiting and token usage must
// be there and possible on every rank, else the whole worker is unknown: a fleet must not take a
// broken worker for an idle one. Any other field that is absent or null is unknown; one that is
// present and impossible (not a number, negative, not finite, a fraction where things are counted) is
// unknown as well and named, so that stricter rules can turn the worker down.

import type { RankSample, SampleToken, TelemetrySource, WorkerSample } from "./telemetry.js";

/** Counts are signed 32-bit numbers in every engine; a larger one is a wrapped or foreign value. */
export const COUNT_MAX = 2_147_483_647;
/** An engine may overshoot its own pool a little; a ratio above this is a percentage or worse. */
export const RATIO_MAX = 2;
/** Ranks of one worker: ten times the largest deployments. */
export const RANKS_MAX = 1_024;

/** One rank as it came off the wire; null and undefined both mean absent. */
export interface RankReading {
  /** Absent on the only rank of an engine without data parallelism. */
  readonly rank?: unknown;
  readonly running?: unknown;
  readonly waiting?: unknown;
  /** Running and waiting together, where an engine says it once more. */
  readonly total?: unknown;
  readonly waitingUncachedTokens?: unknown;
  readonly usedTokens?: unknown;
  readonly maxTokens?: unknown;
  readonly tokenUsage?: unknown;
  readonly utilization?: unknown;
  readonly cacheHitRate?: unknown;
  readonly tokensPerSecond?: unknown;
  /** 0 means that the engine does not tell. */
  readonly maxRunning?: unknown;
}

export interface WorkerReading {
  readonly source: TelemetrySource;
  readonly token: SampleToken;
  /** The number of ranks by the engine's own word; absent where it does not say. */
  readonly declaredRanks?: unknown;
  readonly ranks: readonly RankReading[];
  /** Tokens per second from the engine's counters. */
  readonly countedTokensPerSecond?: number | undefined;
}

export type ReadingResult =
  | { readonly kind: "sample"; readonly sample: WorkerSample }
  | {
      readonly kind: "unknown";
      readonly reason: "missing_metric" | "invalid_value";
      /** Which value of which rank, and what is allowed. */
      readonly detail: string;
    };

type Unknown = Extract<ReadingResult, { kind: "unknown" }>;
interface Check {
  readonly allowed: string;
  readonly accepts: (value: number) => boolean;
}

const COUNT: Check = {
  allowed: `a whole number from 0 to ${String(COUNT_MAX)}`,
  accepts: (value) => Number.isInteger(value) && value >= 0 && value <= COUNT_MAX,
};
const RATIO: Check = {
  allowed: `a number from 0 to ${String(RATIO_MAX)}`,
  accepts: (value) => value >= 0 && value <= RATIO_MAX,
};
const RATE: Check = {
  allowed: "a finite number of at least 0",
  accepts: (value) => value >= 0 && Number.isFinite(value),
};

/** Checks a reading whole; it never throws, whatever the values are. */
export function readSample(reading: WorkerReading): ReadingResult {
  const { ranks, declaredRanks } = reading;
  if (ranks.length === 0) return missing("it reports no rank");
  if (ranks.length > RANKS_MAX) {
    return invalid(`it reports ${String(ranks.length)} ranks; allowed: ${String(RANKS_MAX)}`);
  }
  if (isPresent(declaredRanks) && declaredRanks !== ranks.length) {
    return invalid(`it declares ${show(declaredRanks)} ranks and reports ${String(ranks.length)}`);
  }
  const invalidFields = new Set<string>();
  const samples: (RankSample | undefined)[] = ranks.map(() => undefined);
  for (const raw of ranks) {
    const rank = ranks.length === 1 && !isPresent(raw.rank) ? 0 : raw.rank;
    if (typeof rank !== "number" || !(rank in samples) || samples[rank] !== undefined) {
      return invalid(
        `rank id ${show(rank)}; allowed: each of 0 to ${String(ranks.length - 1)} once`,
      );
    }
    const read = readRank(raw, rank, invalidFields);
    if ("kind" in read) return read;
    samples[rank] = read;
  }
  return {
    kind: "sample",
    sample: {
      source: reading.source,
      token: reading.token,
      ranks: samples.filter((sample) => sample !== undefined),
      invalidFields: [...invalidFields],
      countedTokensPerSecond: reading.countedTokensPerSecond,
    },
  };
}

function readRank(
  raw: RankReading,
  rank: number,
  invalidFields: Set<string>,
): RankSample | Unknown {
  const required = (
    field: "running" | "waiting" | "tokenUsage",
    check: Check,
  ): number | Unknown => {
    const value = raw[field];
    const where = `rank ${String(rank)}: ${field}`;
    if (!isPresent(value)) return missing(`${where} is missing`);
    if (typeof value === "number" && check.accepts(value)) return value;
    return invalid(`${where} is ${show(value)}; allowed: ${check.allowed}`);
  };
  const optional = (field: keyof RankReading, check: Check): number | undefined => {
    const value = raw[field];
    if (!isPresent(value)) return undefined;
    if (typeof value === "number" && check.accepts(value)) return value;
    invalidFields.add(field);
    return undefined;
  };
  const running = required("running", COUNT);
  if (typeof running !== "number") return running;
  const waiting = required("waiting", COUNT);
  if (typeof waiting !== "number") return waiting;
  const tokenUsage = required("tokenUsage", RATIO);
  if (typeof tokenUsage !== "number") return tokenUsage;
  const total = optional("total", COUNT);
  if (total !== undefined && total !== running + waiting) {
    const sum = `${String(running)} running and ${String(waiting)} waiting`;
    return invalid(`rank ${String(rank)}: ${sum} are not its total of ${String(total)}`);
  }
  const maxRunning = optional("maxRunning", COUNT);
  return {
    rank,
    running,
    waiting,
    waitingUncachedTokens: optional("waitingUncachedTokens", COUNT),
    usedTokens: optional("usedTokens", COUNT),
    maxTokens: optional("maxTokens", COUNT),
    tokenUsage,
    utilization: optional("utilization", RATIO),
    cacheHitRate: optional("cacheHitRate", RATIO),
    tokensPerSecond: optional("tokensPerSecond", RATE),
    maxRunning: maxRunning === 0 ? undefined : maxRunning,
  };
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function missing(detail: string): Unknown {
  return { kind: "unknown", reason: "missing_metric", detail };
}

function invalid(detail: string): Unknown {
  return { kind: "unknown", reason: "invalid_value", detail };
}

/** Longest value that is quoted in an error: enough to recognise it. */
const SHOWN_CHARS = 40;

function show(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : describe(value);
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}...` : text;
}

function describe(value: unknown): string {
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return "a list";
  return value === undefined || value === null ? "absent" : "an object";
}

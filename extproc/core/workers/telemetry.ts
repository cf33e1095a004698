// What does a worker say about its own load? The words for it: a sample is one moment of one worker,
// with one part for each data-parallel rank of its engine. A field that the engine does not report,
// or reports as something that cannot be, is `undefined`, which means unknown and is never read as
// zero; a sample without running, waiting or token usage does not exist at all. Units: requests,
// tokens, tokens per second, ratios from 0 to 1. What the rules of admission need of a whole worker is
// derived here, so that nobody adds up ranks a second time.

/** Which protocol a sample came by; it tells which fields can be expected. */
export type TelemetrySource =
  | "sglang_loads"
  | "sglang_get_load"
  | "sglang_metrics"
  | "vllm_metrics"
  | "trtllm_metrics"
  | "triton_metrics";

/** Every reason for which a worker's load is unknown. */
export const TELEMETRY_FAILURES = [
  "timeout",
  "connect",
  "status_401",
  "status_404",
  "status_other",
  "not_text",
  "too_large",
  "malformed",
  "missing_metric",
  "invalid_value",
  "stale",
] as const;
export type TelemetryFailure = (typeof TELEMETRY_FAILURES)[number];

/** One data-parallel rank. */
export interface RankSample {
  /** 0 to the number of ranks - 1. */
  readonly rank: number;
  readonly running: number;
  readonly waiting: number;
  /** Prompt tokens of waiting requests that are not in the cache. */
  readonly waitingUncachedTokens: number | undefined;
  readonly usedTokens: number | undefined;
  /** Tokens that the KV cache can hold. */
  readonly maxTokens: number | undefined;
  /** KV usage as reported: 0 or more, not always at most 1. */
  readonly tokenUsage: number;
  readonly utilization: number | undefined;
  readonly cacheHitRate: number | undefined;
  /** Generated tokens per second by the engine's own measurement. */
  readonly tokensPerSecond: number | undefined;
  /** The engine's ceiling of running requests, 1 or more. */
  readonly maxRunning: number | undefined;
}

/**
 * What tells one sample from the next: the engine's own time of the sample, compared for equality
 * only; or the number of the scrape for an engine that has no such time; or nothing, when an engine
 * that should give a time left it blank.
 */
export type SampleToken =
  | { readonly kind: "timestamp"; readonly value: string }
  | { readonly kind: "scrape"; readonly sequence: number }
  | { readonly kind: "none" };

/** One moment of one worker. */
export interface WorkerSample {
  readonly source: TelemetrySource;
  readonly token: SampleToken;
  /** At least one, in the order of their ids, which are exactly 0 to length - 1. */
  readonly ranks: readonly RankSample[];
  /** Fields that were reported with a value that cannot be, on any rank; each is unknown there. */
  readonly invalidFields: readonly string[];
  /** Tokens per second from the engine's counters, for engines that report no rate. */
  readonly countedTokensPerSecond: number | undefined;
}

/** A whole worker as the rules of admission read it. */
export interface WorkerLoad {
  readonly running: number;
  readonly waiting: number;
  readonly waitingUncachedTokens: number | undefined;
  /** 0 to 1. */
  readonly tokenUsage: number;
  /** Tokens per second, 0 or more. */
  readonly throughput: number | undefined;
  /** The ceiling of running requests, 1 or more. */
  readonly maxRunning: number | undefined;
}

/**
 * Adds up the ranks: counts and rates are sums, token usage is the mean of the ranks held within
 * 0..1, and the ceiling is the sum of what the ranks report. A sum of optional fields is unknown as
 * soon as one rank's part is, because a part of a sum looks like a smaller worker; the ceiling alone
 * is the sum of what is known, and the label of the worker when nothing is.
 *
 * @param labelMaxRunning the ceiling that the worker was registered with
 */
export function workerLoad(sample: WorkerSample, labelMaxRunning: number | undefined): WorkerLoad {
  const { ranks } = sample;
  let running = 0;
  let waiting = 0;
  let usage = 0;
  let ceiling = 0;
  for (const rank of ranks) {
    running += rank.running;
    waiting += rank.waiting;
    usage += rank.tokenUsage;
    ceiling += rank.maxRunning ?? 0;
  }
  return {
    running,
    waiting,
    waitingUncachedTokens: sumOf(ranks, (rank) => rank.waitingUncachedTokens),
    tokenUsage: ranks.length === 0 ? 0 : Math.min(1, Math.max(0, usage / ranks.length)),
    throughput: sumOf(ranks, (rank) => rank.tokensPerSecond) ?? sample.countedTokensPerSecond,
    maxRunning: ceiling > 0 ? ceiling : labelMaxRunning,
  };
}

/** True when two tokens name the same sample of the same engine. */
export function sameSample(a: SampleToken, b: SampleToken): boolean {
  if (a.kind === "timestamp") return b.kind === "timestamp" && a.value === b.value;
  return a.kind === "scrape" && b.kind === "scrape" && a.sequence === b.sequence;
}

function sumOf(
  ranks: readonly RankSample[],
  field: (rank: RankSample) => number | undefined,
): number | undefined {
  let sum = 0;
  for (const rank of ranks) {
    const value = field(rank);
    if (value === undefined) return undefined;
    sum += value;
  }
  return ranks.length === 0 ? undefined : sum;
}

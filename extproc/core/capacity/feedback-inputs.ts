// What do the engines of one partition report, taken together? Pure sums and shares over the healthy
// workers, in the units of the reports: requests, tokens, tokens per second, usage from 0 to 1.
//
// A worker without a reading is unknown: it lowers the coverage and adds nothing to any sum. The same
// holds for a reading without throughput or without a ceiling: never does a missing figure become 0.

/** One sample of one engine. A later sample is a new object; the same object is the same sample. */
export interface WorkerReading {
  /** Requests the engine runs. */
  readonly running: number;
  /** Requests in the engine's own queue. */
  readonly waiting: number;
  /** Prompt tokens in the engine's own queue that its cache does not hold. */
  readonly waitingUncachedTokens: number;
  /** Share of the KV cache in use, 0..1. */
  readonly tokenUsage: number;
  /** Generated tokens per second; undefined = unknown. */
  readonly throughput: number | undefined;
  /**
   * Running requests the throughput was reached with, where that is not `running`: a throughput taken
   * from two readings of a counter belongs to the larger of the two running counts, because a raised
   * limit fills at once and a lowered one drains slowly.
   */
  readonly runningWhileMeasured?: number | undefined;
  /** The engine's ceiling of running requests, above 0; undefined = unknown. */
  readonly maxRunning: number | undefined;
}

/** One healthy worker; no reading = its last poll failed or has not come yet. */
export interface ObservedWorker {
  readonly url: string;
  readonly reading: WorkerReading | undefined;
}

/** Means over the workers that report a throughput, which are the ones that can teach. */
export interface LearningSample {
  /** Tokens per second of one worker. */
  readonly throughput: number;
  /** Running requests of one worker. */
  readonly running: number;
}

export interface FeedbackInputs {
  readonly healthy: number;
  readonly observed: number;
  /** Workers with a known ceiling of running requests, and the sum of these ceilings. */
  readonly maxReporting: number;
  readonly maxRunning: number;
  /** Sum of the known throughputs, tokens per second. */
  readonly throughput: number;
  readonly running: number;
  readonly waiting: number;
  /** Observed workers in whose own queue somebody waits. */
  readonly waitingWorkers: number;
  readonly waitingUncachedTokens: number;
  /** Over the observed workers; 0 when there are none. */
  readonly meanTokenUsage: number;
  readonly maxTokenUsage: number;
  /** Undefined while no worker reports a throughput above 0. */
  readonly sample: LearningSample | undefined;
}

/** Sums up the healthy workers of one partition. */
export function feedbackInputs(workers: readonly ObservedWorker[]): FeedbackInputs {
  const sums = { observed: 0, maxReporting: 0, maxRunning: 0, running: 0, waiting: 0 };
  let waitingWorkers = 0;
  const tokens = { waitingUncached: 0, usage: 0, maxUsage: 0, perSecond: 0 };
  const teachers = { count: 0, running: 0 };
  for (const { reading } of workers) {
    if (reading === undefined) continue;
    sums.observed += 1;
    sums.running += reading.running;
    sums.waiting += reading.waiting;
    if (reading.waiting > 0) waitingWorkers += 1;
    tokens.waitingUncached += reading.waitingUncachedTokens;
    const usage = Math.min(1, Math.max(0, reading.tokenUsage));
    tokens.usage += usage;
    tokens.maxUsage = Math.max(tokens.maxUsage, usage);
    if (reading.maxRunning !== undefined) {
      sums.maxReporting += 1;
      sums.maxRunning += reading.maxRunning;
    }
    if (reading.throughput !== undefined) {
      teachers.count += 1;
      teachers.running += reading.runningWhileMeasured ?? reading.running;
      tokens.perSecond += Math.max(0, reading.throughput);
    }
  }
  return {
    healthy: workers.length,
    ...sums,
    waitingWorkers,
    throughput: tokens.perSecond,
    waitingUncachedTokens: tokens.waitingUncached,
    meanTokenUsage: sums.observed === 0 ? 0 : tokens.usage / sums.observed,
    maxTokenUsage: tokens.maxUsage,
    sample:
      tokens.perSecond > 0
        ? {
            throughput: tokens.perSecond / teachers.count,
            running: teachers.running / teachers.count,
          }
        : undefined,
  };
}

/** Share of the healthy workers that were observed; 0 when none is healthy. */
export function loadCoverage({ healthy, observed }: FeedbackInputs): number {
  return healthy === 0 ? 0 : observed / healthy;
}

/** Share of the healthy workers with a known ceiling; 0 when none is healthy. */
export function maxRunningCoverage({ healthy, maxReporting }: FeedbackInputs): number {
  return healthy === 0 ? 0 : maxReporting / healthy;
}

/** The known ceilings scaled to all healthy workers, rounded down; 0 when none is known. */
export function scaledCeiling({ healthy, maxReporting, maxRunning }: FeedbackInputs): number {
  return maxReporting === 0 ? 0 : Math.floor((maxRunning * healthy) / maxReporting);
}

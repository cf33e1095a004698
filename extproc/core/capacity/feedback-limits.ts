// How many requests may a partition have at its engines, and do the engines ask for less? Pure
// arithmetic over the inputs of one publication and over what has been learned; it owns no state.
// Counts are requests of the whole partition unless a name says otherwise.

import type { AdaptiveAdmissionConfig } from "../model/config.js";
import {
  loadCoverage,
  maxRunningCoverage,
  scaledCeiling,
  type FeedbackInputs,
} from "./feedback-inputs.js";
import { roundUp } from "./rounding.js";

/**
 * `token_pressure`: the KV caches are nearly full on the mean of all workers. `engine_waiting`: more
 * requests wait in the engines' own queues than the configuration tolerates.
 */
export type PressureReason = "token_pressure" | "engine_waiting";

export interface Learned {
  /** Running requests per worker; undefined = nothing learned. */
  readonly knee: number | undefined;
  /** Requests of all workers by which the limit lies above the knee (below: negative). */
  readonly offset: number;
  /** The partition has been under pressure since learning began. */
  readonly pressureSeen: boolean;
}

export interface FeedbackLimits {
  readonly coverage: number;
  readonly maxRunningCoverage: number;
  /** Enough of the healthy workers report. */
  readonly usable: boolean;
  /** What the engines themselves run at most; undefined when too few of them say. */
  readonly engineLimit: number | undefined;
  /** From the knee, at least 1; undefined while there is none or it must not count yet. */
  readonly learnedLimit: number | undefined;
  /** The smaller of the two; undefined = feedback sets no limit. */
  readonly runningLimit: number | undefined;
  readonly pressure: PressureReason | undefined;
}

/** The first reason, of those in force, to send nothing more at all. */
export function pressureReason(
  config: AdaptiveAdmissionConfig,
  inputs: FeedbackInputs,
): PressureReason | undefined {
  if (inputs.observed === 0) return undefined;
  if (inputs.meanTokenUsage >= config.feedback_max_token_usage) return "token_pressure";
  const tolerated = config.feedback_max_waiting_requests_per_healthy_replica * inputs.observed;
  return inputs.waiting > tolerated ? "engine_waiting" : undefined;
}

export function feedbackLimits(
  config: AdaptiveAdmissionConfig,
  inputs: FeedbackInputs,
  learned: Learned,
  pressure: PressureReason | undefined,
): FeedbackLimits {
  const coverage = loadCoverage(inputs);
  const ceilingCoverage = maxRunningCoverage(inputs);
  const engineLimit =
    inputs.maxReporting > 0 && ceilingCoverage >= config.min_load_coverage
      ? scaledCeiling(inputs)
      : undefined;
  const learnedLimit = limitFromKnee(inputs.healthy, learned, engineLimit !== undefined);
  return {
    coverage,
    maxRunningCoverage: ceilingCoverage,
    usable: inputs.healthy > 0 && coverage >= config.min_load_coverage,
    engineLimit,
    learnedLimit,
    runningLimit:
      learnedLimit === undefined || engineLimit === undefined
        ? (learnedLimit ?? engineLimit)
        : Math.min(learnedLimit, engineLimit),
    pressure,
  };
}

/**
 * Without published ceilings a knee counts only once there has been pressure: an idle fleet must not
 * be held to the few requests it happened to run.
 */
function limitFromKnee(
  healthy: number,
  { knee, offset, pressureSeen }: Learned,
  ceilingKnown: boolean,
): number | undefined {
  if (knee === undefined || (!ceilingKnown && !pressureSeen)) return undefined;
  return Math.max(1, roundUp(knee * healthy) + offset);
}

// May this request go to the engines now, by what they report? A pure rule over the limits of the
// request's partition; first match wins. What becomes of a refusal depends on the mode: it is acted on
// in `enforce` only, and not where the slots themselves follow the limit, because a request that holds
// a slot has been admitted by it.

import type { PartitionName } from "../model/ids.js";
import type { FeedbackInputs } from "./feedback-inputs.js";
import type { FeedbackLimits, PressureReason } from "./feedback-limits.js";

export type DecisionReason =
  "telemetry_fallback" | PressureReason | "running_limit" | "within_feedback_limit";

export const DECISION_REASONS: readonly DecisionReason[] = [
  "telemetry_fallback",
  "token_pressure",
  "engine_waiting",
  "running_limit",
  "within_feedback_limit",
];

export type DecisionOutcome = "would_admit" | "would_reject" | "telemetry_fallback";

export interface FeedbackDecision {
  readonly partition: PartitionName;
  readonly reason: DecisionReason;
  readonly outcome: DecisionOutcome;
  /** The request must be refused. */
  readonly reject: boolean;
  /** Whole seconds for `retry-after`: 1 for a refusal, also one that is only counted; 0 otherwise. */
  readonly retryAfterS: number;
  /** Requests the partition would have with this one. */
  readonly projected: number;
}

/** Whole seconds: the shortest time after which the engines may have reported anew. */
export const FEEDBACK_RETRY_AFTER_S = 1;

/**
 * Requests with this one: what Weir has outstanding, or what the engines report and this one. The
 * larger counts, not the sum: a request at an engine is in both.
 *
 * @param outstanding requests of the partition begun and not ended, this one included
 */
export function projectedRequests(
  outstanding: number,
  { running, waiting }: Pick<FeedbackInputs, "running" | "waiting">,
): number {
  return Math.max(outstanding, running + waiting + 1);
}

export function decisionReason(limits: FeedbackLimits, projected: number): DecisionReason {
  if (!limits.usable) return "telemetry_fallback";
  if (limits.pressure !== undefined) return limits.pressure;
  return limits.runningLimit !== undefined && projected > limits.runningLimit
    ? "running_limit"
    : "within_feedback_limit";
}

export function decisionOutcome(reason: DecisionReason): DecisionOutcome {
  switch (reason) {
    case "telemetry_fallback":
      return "telemetry_fallback";
    case "within_feedback_limit":
      return "would_admit";
    case "token_pressure":
    case "engine_waiting":
    case "running_limit":
      return "would_reject";
  }
}

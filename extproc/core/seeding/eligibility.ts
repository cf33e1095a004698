// Which of the requests that the engines' feedback refuses may try to become a seed? Those that would
// be exactly one request with one whole answer, from which it can be told that the worker now holds the
// prompt, and that have a proof of their own admission. Pressure of tokens is never challenged: there
// the memory of the whole partition is full. A request that was admitted never seeds.

import type { DecisionReason } from "../capacity/feedback-decision.js";
import { producesOutputTokens, type Endpoint } from "../identity/paths.js";
import type { PartitionName } from "../model/ids.js";
import { seedsIn, type SeedingRules } from "./rules.js";

/** Why a refused request stays refused, in the order in which it is asked. */
export const INELIGIBLE_REASONS = [
  "partition_off",
  "other_reason",
  "no_output",
  "streaming",
  "several_answers",
  "several_prompts",
  "no_proof",
] as const;
export type IneligibleReason = (typeof INELIGIBLE_REASONS)[number];

/** A request that the feedback of its partition refuses. */
export interface RefusedRequest {
  readonly partition: PartitionName;
  readonly reason: DecisionReason;
  readonly endpoint: Endpoint;
  readonly stream: boolean;
  /** Answers per prompt, 1 or more; of `n` and `best_of` the larger. */
  readonly multiplicity: number;
  /** Prompts in the body, 1 or more; undefined when they could not be counted. */
  readonly prompts: number | undefined;
  readonly hasProof: boolean;
}

/** Why the request must not try; undefined = it may. */
export function ineligibility(
  rules: SeedingRules,
  request: RefusedRequest,
): IneligibleReason | undefined {
  const { partition, reason, endpoint, stream, multiplicity, prompts, hasProof } = request;
  if (!seedsIn(rules, partition)) return "partition_off";
  if (reason !== "engine_waiting" && reason !== "running_limit") return "other_reason";
  if (!producesOutputTokens(endpoint)) return "no_output";
  if (stream) return "streaming";
  if (multiplicity !== 1) return "several_answers";
  if (prompts !== 1) return "several_prompts";
  return hasProof ? undefined : "no_proof";
}

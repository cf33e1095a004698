// The way out for a request that the engines' feedback refuses: where its partition seeds, and the
// request is exactly one prompt with one whole answer, it may go to a worker with room all the same. It
// keeps the slot that admission gave it. Whatever does not fit leaves the refusal as it was. Everything
// happens within one step, so what was planned is still true when the request is sent.

import type { FeedbackDecision } from "../capacity/feedback-decision.js";
import type { Caller } from "../identity/caller.js";
import type { Endpoint } from "../identity/paths.js";
import type { SeedingConfig } from "../model/config.js";
import type { MonotonicMs } from "../model/time.js";
import { AdmissionProof } from "../scheduler/admission-proof.js";
import { ineligibility, type IneligibleReason } from "../seeding/eligibility.js";
import type { SeedRefusal } from "../seeding/refusals.js";
import { seedsIn } from "../seeding/rules.js";
import type { Seeder } from "../seeding/seeder.js";
import { workerQuery, type AdmissionPlan } from "./admission-plan.js";
import { SeedRun } from "./seed-run.js";

/** Seeding as requests meet it. */
export interface SeedDesk {
  readonly seeder: Seeder;
  readonly proofSource: SeedingConfig["proof_source"];
  /** Largest answer that is looked at, in bytes. */
  readonly responseMaxBytes: number;
}

export interface SeedCandidate {
  readonly requestId: string;
  readonly caller: Caller;
  readonly endpoint: Endpoint;
  readonly plan: AdmissionPlan;
  readonly decision: FeedbackDecision;
  readonly proof: AdmissionProof | undefined;
}

export type SeedAttempt =
  | { readonly kind: "ineligible"; readonly reason: IneligibleReason }
  | { readonly kind: "refused"; readonly refusal: SeedRefusal }
  | { readonly kind: "seeded"; readonly run: SeedRun };

/** The proof of a request that asks the fair queue for a slot; undefined where it needs none. */
export function queueProof(
  { seeder, proofSource }: SeedDesk,
  requestId: string,
  { tenant }: Caller,
  { model, partition }: AdmissionPlan,
): AdmissionProof | undefined {
  if (proofSource !== "scheduler" || !seedsIn(seeder.rules, partition)) return undefined;
  return new AdmissionProof({ tenant, requestId, model, partition }, { source: "fair_queue" });
}

/**
 * Tries to make the refused request a seed; undefined where no request may. A seed that comes of it is
 * held: send it within this step, or release it.
 */
export function attemptSeed(
  { seeder, responseMaxBytes }: SeedDesk,
  { requestId, caller, endpoint, plan, decision, proof }: SeedCandidate,
  now: MonotonicMs,
): SeedAttempt | undefined {
  const { partition, shape, prompt } = plan;
  const why = ineligibility(seeder.rules, {
    partition,
    reason: decision.reason,
    endpoint,
    stream: shape.stream,
    multiplicity: shape.multiplicity,
    prompts: prompt?.prompts,
    hasProof: proof !== undefined,
  });
  if (why === "partition_off") return undefined;
  if (why !== undefined || proof === undefined) {
    return { kind: "ineligible", reason: why ?? "no_proof" };
  }
  const query = workerQuery(plan, caller);
  const spread = decision.reason === "running_limit";
  const seeding = seeder.seed({ tenant: caller.tenant, requestId, proof, query, spread }, now);
  if (!seeding.ok) return { kind: "refused", refusal: seeding.refusal };
  const { seed } = seeding;
  // Once more before it is sent: whatever changes this way in some later version must not slip through.
  const fault = seed.verify(now);
  if (fault === undefined) {
    return { kind: "seeded", run: new SeedRun(seed, endpoint, responseMaxBytes) };
  }
  seed.release(now);
  return { kind: "refused", refusal: `verify_${fault}` };
}

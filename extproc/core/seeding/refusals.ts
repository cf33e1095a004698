// Why did a refused request not become a seed? Every reason there is, in the order of the steps that
// give it. The names are labels of metrics and words of log lines, so the list is closed: the step is
// the first word where a reason could come from several.

import { LEASE_FAULTS, LEASE_REFUSALS, type LeaseFault, type LeaseRefusal } from "./lease.js";
import { PLAN_REFUSALS, type PlanRefusal } from "./plan.js";
import type { ProofFailure } from "../scheduler/admission-proof.js";

const PROOF_FAILURES = [
  "tenant_mismatch",
  "request_mismatch",
  "model_mismatch",
  "partition_mismatch",
  "already_claimed",
  "revoked",
] as const satisfies readonly ProofFailure[];

export type SeedRefusal =
  | "disabled"
  | "too_few_workers"
  | `proof_${ProofFailure}`
  | "no_headroom"
  | `plan_${PlanRefusal}`
  | `lease_${LeaseRefusal}`
  | `verify_${LeaseFault}`;

export const SEED_REFUSALS: readonly SeedRefusal[] = [
  "disabled",
  "too_few_workers",
  ...PROOF_FAILURES.map((failure) => `proof_${failure}` as const),
  "no_headroom",
  ...PLAN_REFUSALS.map((refusal) => `plan_${refusal}` as const),
  ...LEASE_REFUSALS.map((refusal) => `lease_${refusal}` as const),
  ...LEASE_FAULTS.map((fault) => `verify_${fault}` as const),
];

// The way of a request that brings a capacity credit: its slot is there already, so it passes the queue
// and gets the permit at once. Whatever does not fit consumes nothing, and once the credit is redeemed it
// stays so: a later refusal frees the slot, and the allocator issues a new credit.

import { withCredit, type Caller } from "../identity/caller.js";
import { reject, type Rejection, type RejectionCode } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import { AdmissionProof } from "../scheduler/admission-proof.js";
import type { RedeemFailure } from "../scheduler/credit-registry.js";
import type { Permit } from "../scheduler/permit.js";
import type { AdmissionPlan } from "./admission-plan.js";
import type { CreditDesk, DeskContext } from "./desk-context.js";

/** A request that may have brought a credit. */
export interface CreditAsk<Request> {
  readonly request: Request;
  /** Id of the HTTP request. */
  readonly requestId: string;
  readonly caller: Caller;
  readonly plan: AdmissionPlan;
}

export type Redemption =
  | { readonly kind: "none" }
  | { readonly kind: "refused"; readonly rejection: Rejection }
  | {
      readonly kind: "redeemed";
      /** It carries the proof. */
      readonly permit: Permit;
      /** The sender as the credit has it. */
      readonly caller: Caller;
    };

type CreditContext<Request> = Pick<DeskContext<Request>, "credits" | "rules">;

const REFUSALS: Readonly<Record<RedeemFailure, readonly [RejectionCode, string]>> = {
  unknown: ["capacity_credit_unknown", "the capacity credit is not known here"],
  binding_mismatch: [
    "capacity_credit_binding_mismatch",
    "the request is not the one that the capacity credit was issued for",
  ],
  expired: ["capacity_credit_expired", "the capacity credit has expired"],
  already_redeemed: [
    "capacity_credit_already_redeemed",
    "the capacity credit was redeemed before; a new request needs a new one",
  ],
  cancelled: ["capacity_credit_cancelled", "the capacity credit was cancelled"],
};

/** The refusal of an inference request without a credit where one is required. */
export function creditMissing(
  credits: Pick<CreditDesk<never>, "required"> | undefined,
  { credit }: Caller,
): Rejection | undefined {
  if (credits?.required !== true || credit.kind !== "absent") return undefined;
  return reject("capacity_credit_required", "inference requests need a capacity credit here");
}

/** Counts a refusal that came before the credit could be looked up. */
export function countUnreadable(
  credits: Pick<CreditDesk<never>, "onOperation"> | undefined,
  { code }: Rejection,
): void {
  if (code === "invalid_capacity_credit") credits?.onOperation(undefined, "invalid_binding");
}

/** Redeems the credit of a request, if it brings one. */
export function redeemCredit<Request>(
  { credits, rules }: CreditContext<Request>,
  { request, requestId, caller, plan }: CreditAsk<Request>,
  now: MonotonicMs,
): Redemption {
  const { credit, tenant } = caller;
  if (credits === undefined || credit.kind !== "presented") return { kind: "none" };
  const { token, generation, policyEpoch, requestId: creditRequestId, estimateTokens } = credit;
  const { model, partition } = plan;
  // The header and the body must name one model: the slot was issued for it, and the body is routed by it.
  if (rules.names.canonical(credit.model) !== model) {
    credits.onOperation(partition, "binding_mismatch");
    return refused("binding_mismatch");
  }
  const redeemed = credits.registry.redeem(
    token,
    {
      generation,
      policyEpoch,
      partition,
      model,
      tenant,
      requestId: creditRequestId,
      estimateTokens,
    },
    now,
  );
  if (!redeemed.ok) return refused(redeemed.failure);
  const { hold } = redeemed;
  if (hold.tenant !== tenant) {
    hold.release();
    const message = "the slot of the capacity credit belongs to somebody else";
    return { kind: "refused", rejection: reject("capacity_credit_internal", message) };
  }
  const proof = new AdmissionProof(
    { tenant, requestId, model, partition },
    { source: "redeemed_credit", creditRequestId, generation, policyEpoch },
  );
  const permit = hold.admit(request, proof, now);
  return { kind: "redeemed", permit, caller: withCredit(caller, credit) };
}

function refused(failure: RedeemFailure): Redemption {
  const [code, message] = REFUSALS[failure];
  return { kind: "refused", rejection: reject(code, message) };
}

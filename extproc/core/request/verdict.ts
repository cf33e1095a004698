// What the core wants done with a request, in words that any edge can carry out.

import type { Caller } from "../identity/caller.js";
import type { Rejection } from "../model/rejection.js";
import type { Permit } from "../scheduler/permit.js";
import type { Worker } from "../workers/worker.js";
import type { AdmissionPlan } from "./admission-plan.js";

/** Facts that travel with a routed request into Envoy's access log. */
export type RouteFacts = Readonly<Record<string, string | number>>;

/** `plan` and `permit` are undefined for a request that is only passed through. */
export function routeFacts(
  worker: Worker,
  caller: Caller,
  plan: AdmissionPlan | undefined,
  permit: Permit | undefined,
): RouteFacts {
  return {
    tenant: caller.tenant,
    partition: permit?.partition ?? "",
    model: plan?.model ?? "",
    worker: worker.identity.id,
    queue_ms: Math.round(permit?.queuedMs ?? 0),
  };
}

export type Verdict =
  /** Nothing to say yet; the rest of the request is needed. */
  | { readonly kind: "continue" }
  | { readonly kind: "route"; readonly worker: Worker; readonly facts: RouteFacts }
  /** The request waits: the edge must keep it for at least this long. */
  | { readonly kind: "hold"; readonly budgetMs: number }
  | { readonly kind: "refuse"; readonly rejection: Rejection };

/** Hears what is decided about a held request. Called at most once per request. */
export type VerdictListener = (verdict: Verdict) => void;

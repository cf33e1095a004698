// What the core wants done with a request, in words that any edge can carry out.

import type { Rejection } from "../model/rejection.js";
import type { Worker } from "../workers/worker.js";

/** Facts that travel with a routed request into Envoy's access log. */
export type RouteFacts = Readonly<Record<string, string | number>>;

export type Verdict =
  /** Nothing to say yet; the rest of the request is needed. */
  | { readonly kind: "continue" }
  | { readonly kind: "route"; readonly worker: Worker; readonly facts: RouteFacts }
  /** The request waits: the edge must keep it for at least this long. */
  | { readonly kind: "hold"; readonly budgetMs: number }
  | { readonly kind: "refuse"; readonly rejection: Rejection };

/** Hears what is decided about a held request. Called at most once per request. */
export type VerdictListener = (verdict: Verdict) => void;

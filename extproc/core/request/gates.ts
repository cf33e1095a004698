// The checks that stand beside the queue: what the headers of a request already rule out, requests per
// second before the queue, and what the engines report after it, when a request has its slot and before
// a worker is chosen.

import type { FeedbackTracker } from "../capacity/feedback-controller.js";
import type { Caller } from "../identity/caller.js";
import type { PartitionName } from "../model/ids.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import { refusedByHead } from "./admission-plan.js";
import { creditMissing } from "./credit-gate.js";
import type { DeskContext } from "./desk-context.js";
import type { RequestHead } from "./heads.js";
import { draining } from "./refusals.js";

/** The refusal of an inference request that needs no body to be refused. */
export function refusedAtHead(
  desk: Pick<DeskContext<never>, "draining" | "rules" | "credits">,
  head: RequestHead,
  caller: Caller,
): Rejection | undefined {
  if (desk.draining) return draining();
  return refusedByHead(head, desk.rules.bodyLimitBytes) ?? creditMissing(desk.credits, caller);
}

/** Takes a token of the rate check; the refusal when there is none. */
export function rateLimited(
  { rateCheck, observer }: Pick<DeskContext<unknown>, "rateCheck" | "observer">,
  now: MonotonicMs,
): Rejection | undefined {
  const verdict = rateCheck?.take(now);
  if (verdict === undefined) return undefined;
  observer.rateChecked(verdict.allowed);
  if (verdict.allowed) return undefined;
  const { retryAfterS } = verdict;
  return reject("rate_limited", "more requests per second than are allowed", { retryAfterS });
}

/** Counts a request at the engines of its partition; undefined when nothing is asked of them. */
export function askEngines(
  { feedback, observer }: Pick<DeskContext<unknown>, "feedback" | "observer">,
  partition: PartitionName,
): FeedbackTracker | undefined {
  const tracker = feedback?.begin(undefined, partition);
  if (tracker !== undefined) observer.decided(tracker.decision);
  return tracker;
}

/** The refusal of a decision that is acted on. */
export function saturated({ decision }: FeedbackTracker): Rejection | undefined {
  if (!decision.reject) return undefined;
  const message = `the workers of the partition take no more requests now (${decision.reason})`;
  const { retryAfterS } = decision;
  return reject("adaptive_admission_saturated", message, { retryAfterS });
}

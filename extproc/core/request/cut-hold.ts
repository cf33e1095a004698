// Did Envoy end a hold by one of its own timeouts? Weir refuses at its own deadline, well before Envoy
// gives up, so a hold that ends just when one of Envoy's timeouts runs out was cut from outside: Envoy is
// configured shorter than the queue. Any other end is a client that left.

import type { ClassRank } from "../model/priority.js";
import type { DeskContext } from "./desk-context.js";

/** A hold that ends this close to one of Envoy's timeouts was cut by it. */
const CUT_HOLD_TOLERANCE_MS = 100;

/** @param heldMs how long the request was held when its stream ended */
export function cutByEnvoy(
  desk: Pick<DeskContext<never>, "messageTimeoutMs" | "holdBudgetMs">,
  rank: ClassRank,
  heldMs: number,
): boolean {
  return [desk.messageTimeoutMs, desk.holdBudgetMs(rank)].some(
    (limitMs) => Math.abs(heldMs - limitMs) <= CUT_HOLD_TOLERANCE_MS,
  );
}

// Refusals that the desk and its requests share, in one wording each.

import { reject, type Rejection } from "../model/rejection.js";
import type { QueueLimit } from "../scheduler/admission.js";

export function draining(): Rejection {
  return reject("draining", "the server is shutting down");
}

/** @param retryAfterS whole seconds after which the client may come again */
export function queueFull(limit: QueueLimit, retryAfterS: number): Rejection {
  const message =
    limit === "tenant_limit"
      ? "the tenant has as many waiting requests in the partition as it may have"
      : "the queue of the partition is full";
  return reject("scheduler_queue_full", message, { retryAfterS });
}

/** @param status what the configuration says for a queue timeout */
export function queueTimeout(status: number, retryAfterS: number): Rejection {
  const message = "no slot became free within the queue timeout";
  return reject("scheduler_queue_timeout", message, { status, retryAfterS });
}

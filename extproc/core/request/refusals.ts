// Refusals that the desk and its requests share, in one wording each.

import { reject, type Rejection } from "../model/rejection.js";
import type { QueueRefusal } from "../scheduler/admission.js";

const QUEUE_FULL: Readonly<Record<QueueRefusal, string>> = {
  tenant_limit: "the tenant has as many waiting requests in the partition as it may have",
  global_limit: "the queue of the partition is full",
  displaced: "the queue is full, and a tenant with fewer waiting requests came for a place",
};

export function draining(): Rejection {
  return reject("draining", "the server is shutting down");
}

/** @param retryAfterS whole seconds after which the client may come again */
export function queueFull(refusal: QueueRefusal, retryAfterS: number): Rejection {
  return reject("scheduler_queue_full", QUEUE_FULL[refusal], { retryAfterS });
}

/** @param status what the configuration says for a queue timeout */
export function queueTimeout(status: number, retryAfterS: number): Rejection {
  const message = "no slot became free within the queue timeout";
  return reject("scheduler_queue_timeout", message, { status, retryAfterS });
}

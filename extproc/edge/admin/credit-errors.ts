// Every refusal of the capacity-credit API, in one table: status, code and words. 409 means that the
// credit or the request id is not what the caller takes it for, 429 and 503 that coming again helps. No
// message repeats what a caller sent, so no token ever stands in one.

import type { CreditFailure } from "../../core/scheduler/credit-registry.js";
import { jsonReply, type Reply } from "./reply.js";

const ROWS = {
  invalid_request: 400,
  invalid_capacity_credit: 400,
  unknown_partition: 400,
  unauthorized: 401,
  capacity_credits_disabled: 404,
  not_found: 404,
  method_not_allowed: 405,
  capacity_credit_wrong_generation: 409,
  capacity_credit_request_conflict: 409,
  capacity_credit_unknown: 409,
  capacity_credit_binding_mismatch: 409,
  capacity_credit_expired: 409,
  capacity_credit_already_redeemed: 409,
  capacity_credit_already_armed: 409,
  capacity_credit_cancelled: 409,
  body_too_large: 413,
  unsupported_media_type: 415,
  capacity_unavailable: 429,
  capacity_credit_internal: 500,
  draining: 503,
} as const;

export type CreditErrorCode = keyof typeof ROWS;

export const CREDIT_ERROR_CODES = Object.keys(ROWS) as readonly CreditErrorCode[];

/** Codes that an answer of this status may carry. */
export function codesOf(status: number): readonly CreditErrorCode[] {
  return CREDIT_ERROR_CODES.filter((code) => ROWS[code] === status);
}

/** What the registry refuses, in the words of the API. */
const FAILURES: Readonly<Record<CreditFailure, readonly [CreditErrorCode, string]>> = {
  wrong_generation: [
    "capacity_credit_wrong_generation",
    "this process serves another allocator generation",
  ],
  request_conflict: [
    "capacity_credit_request_conflict",
    "the request id stands for a credit with another binding",
  ],
  unknown: ["capacity_credit_unknown", "the capacity credit is not known here"],
  binding_mismatch: [
    "capacity_credit_binding_mismatch",
    "the capacity credit was issued for another binding",
  ],
  expired: ["capacity_credit_expired", "the capacity credit has expired"],
  already_redeemed: ["capacity_credit_already_redeemed", "the capacity credit was redeemed before"],
  already_armed: [
    "capacity_credit_already_armed",
    "the capacity credit was armed by another dispatch",
  ],
  cancelled: ["capacity_credit_cancelled", "the capacity credit was cancelled"],
  no_capacity: ["capacity_unavailable", "the partition has no free slot now"],
  invalid_binding: ["invalid_capacity_credit", "the binding of the capacity credit is not valid"],
};

/** An error answer, `{"error":{"code","message"}}`. */
export function creditError(
  code: CreditErrorCode,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): Reply {
  return jsonReply(ROWS[code], { error: { code, message } }, headers);
}

/** @param retryAfterS whole seconds; undefined = coming again does not help */
export function creditFailure(failure: CreditFailure, retryAfterS: number | undefined): Reply {
  const [code, message] = FAILURES[failure];
  return creditError(
    code,
    message,
    retryAfterS === undefined ? {} : { "retry-after": String(retryAfterS) },
  );
}

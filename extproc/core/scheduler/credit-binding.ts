// What a capacity credit is bound to: seven facts that must be the same when it is issued, armed and
// redeemed. Their texts must fit on one header line, because that is how a request names them: an id
// that no header can carry would hold a slot that nobody can redeem.

import { POLICY_EPOCH_MAX } from "../identity/credit-headers.js";
import { ESTIMATE_MAX_TOKENS } from "../identity/estimate.js";
import { refusal, TRUSTED_VALUE_MAX_CHARS } from "../identity/trusted-header.js";
import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";

export interface CreditBinding {
  readonly generation: string;
  /** The allocator's own number for its policy, 0..2^64-1; nothing is read into it. */
  readonly policyEpoch: bigint;
  /** A configured partition. */
  readonly partition: PartitionName;
  /** Canonical. */
  readonly model: ModelId;
  readonly tenant: TenantKey;
  /** The allocator's id of the request; a repeated issue with it gives the same credit. */
  readonly requestId: string;
  /** Output tokens booked on the tenant, 1..4294967295. */
  readonly estimateTokens: number;
}

/** Longest request id, in characters: what a trusted header carries. */
export const REQUEST_ID_MAX_CHARS = TRUSTED_VALUE_MAX_CHARS;
/** Longest generation, in characters: a name and a date, with room. */
export const GENERATION_MAX_CHARS = 128;
/** Longest dispatch id, in UTF-8 bytes. */
export const DISPATCH_ID_MAX_BYTES = 128;

const CONTROL_CHARACTER = /\p{Cc}/u;

/** What is wrong with a binding, in words for whoever sent it; undefined = nothing. */
export function bindingProblem(binding: CreditBinding): string | undefined {
  const { generation, policyEpoch, partition, model, tenant, requestId, estimateTokens } = binding;
  if (policyEpoch < 0n || policyEpoch > POLICY_EPOCH_MAX) {
    return `policy_epoch must be an integer from 0 to ${String(POLICY_EPOCH_MAX)}`;
  }
  if (
    !Number.isInteger(estimateTokens) ||
    estimateTokens < 1 ||
    estimateTokens > ESTIMATE_MAX_TOKENS
  ) {
    return `estimated_output_tokens must be an integer from 1 to ${String(ESTIMATE_MAX_TOKENS)}`;
  }
  for (const [name, value] of Object.entries({ partition, model, tenant })) {
    if (value === "" || value.trim() !== value) return `${name} must not be empty or padded`;
  }
  return (
    textProblem("generation", generation, GENERATION_MAX_CHARS) ??
    textProblem("request_id", requestId, REQUEST_ID_MAX_CHARS)
  );
}

/** What is wrong with a dispatch id; undefined = nothing. */
export function dispatchIdProblem(dispatchId: string): string | undefined {
  const bytes = new TextEncoder().encode(dispatchId).length;
  const wrong =
    bytes === 0 ||
    bytes > DISPATCH_ID_MAX_BYTES ||
    dispatchId.trim() !== dispatchId ||
    CONTROL_CHARACTER.test(dispatchId);
  return wrong
    ? `dispatch_id must have 1 to ${String(DISPATCH_ID_MAX_BYTES)} bytes, no outer blanks and no control characters`
    : undefined;
}

/** True when all seven facts are the same. */
export function sameBinding(one: CreditBinding, other: CreditBinding): boolean {
  return (
    one.generation === other.generation &&
    one.policyEpoch === other.policyEpoch &&
    one.partition === other.partition &&
    one.model === other.model &&
    one.tenant === other.tenant &&
    one.requestId === other.requestId &&
    one.estimateTokens === other.estimateTokens
  );
}

function textProblem(name: string, value: string, maxChars: number): string | undefined {
  const fits = value.length <= maxChars && refusal(value, { commas: false }) === undefined;
  return fits
    ? undefined
    : `${name} must have 1 to ${String(maxChars)} characters of visible ASCII without blanks and commas`;
}

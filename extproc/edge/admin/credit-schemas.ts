// What the capacity-credit API takes and gives, as schemas: requests are checked by them, and the
// OpenAPI document is made from them. An unknown field is refused, because a mistyped one would take a
// slot for something else than was meant. `partition` and `model` are trimmed, the ids are not.

import { z } from "zod";
import { POLICY_EPOCH_MAX } from "../../core/identity/credit-headers.js";
import { ESTIMATE_MAX_TOKENS } from "../../core/identity/estimate.js";
import {
  DISPATCH_ID_MAX_BYTES,
  dispatchIdProblem,
  GENERATION_MAX_CHARS,
  REQUEST_ID_MAX_CHARS,
} from "../../core/scheduler/credit-binding.js";
import { CREDIT_ERROR_CODES, type CreditErrorCode } from "./credit-errors.js";

/** Longest name of a partition or model, in characters. */
const NAME_MAX_CHARS = 256;

/** Text that fits on one header line, because a request names the same there. */
function headerText(maxChars: number): z.ZodString {
  const error = `must be 1 to ${String(maxChars)} characters of visible ASCII without blanks and commas`;
  return z.string({ error }).regex(new RegExp(`^[!-+\\x2d-~]{1,${String(maxChars)}}$`), { error });
}

const NAME_ALLOWED = `must be text of 1 to ${String(NAME_MAX_CHARS)} characters`;
const name = z
  .string({ error: NAME_ALLOWED })
  .trim()
  .min(1, { error: NAME_ALLOWED })
  .max(NAME_MAX_CHARS, { error: NAME_ALLOWED });

const EPOCH_ALLOWED = `must be an integer from 0 to ${String(POLICY_EPOCH_MAX)}, as a number or as text`;
/** Both forms arrive here as text: a JSON number may be larger than a JavaScript number holds. */
export const policyEpoch = z
  .string({ error: EPOCH_ALLOWED })
  .regex(/^[0-9]{1,20}$/, { error: EPOCH_ALLOWED, abort: true })
  .refine((digits) => BigInt(digits) <= POLICY_EPOCH_MAX, { error: EPOCH_ALLOWED })
  .describe(
    "The allocator's own number for its policy, an unsigned 64-bit integer. Text of digits is taken too, " +
      "for clients whose numbers are not exact above 2^53.",
  );

const ESTIMATE_ALLOWED = `must be an integer from 1 to ${String(ESTIMATE_MAX_TOKENS)}`;
const DISPATCH_ALLOWED = `must have 1 to ${String(DISPATCH_ID_MAX_BYTES)} bytes, no outer blanks and no control characters`;

const binding = {
  generation: headerText(GENERATION_MAX_CHARS).describe("The allocator generation."),
  policy_epoch: policyEpoch,
  partition: name.describe("A configured partition, exactly."),
  model: name.describe("The model or an alias of it."),
  request_id: headerText(REQUEST_ID_MAX_CHARS).describe(
    "The allocator's id of the request, unique for the tenant; asking again gives the same credit.",
  ),
  estimated_output_tokens: z
    .int({ error: ESTIMATE_ALLOWED })
    .min(1, { error: ESTIMATE_ALLOWED })
    .max(ESTIMATE_MAX_TOKENS, { error: ESTIMATE_ALLOWED })
    .describe("Output tokens booked on the tenant until the usage is known."),
};

export const issueRequest = z.strictObject(binding);

export const armRequest = z.strictObject({
  ...binding,
  dispatch_id: z
    .string({ error: DISPATCH_ALLOWED })
    .min(1, { error: DISPATCH_ALLOWED })
    .max(DISPATCH_ID_MAX_BYTES, { error: DISPATCH_ALLOWED })
    .refine((id) => dispatchIdProblem(id) === undefined, { error: DISPATCH_ALLOWED })
    .describe("The one dispatch that the credit is armed for."),
});

export const capabilities = z.strictObject({ arm: z.literal("v1") });

/** The text of a token: 32 bytes as base64url without padding. */
export const creditToken = z.string().regex(/^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/);

const remaining = z.int().min(0).describe("Milliseconds until the credit expires.");

export const issued = z.strictObject({
  credit: creditToken.describe("The token; whoever has it can redeem and cancel the credit."),
  generation: binding.generation,
  expires_in_ms: remaining,
  newly_issued: z.boolean().describe("False: the same request was asked for before."),
});

export const armed = z.strictObject({
  generation: binding.generation,
  dispatch_id: armRequest.shape.dispatch_id,
  expires_in_ms: remaining,
  newly_armed: z.boolean().describe("False: the same dispatch armed it before."),
});

/** An error with one of these codes. */
export function errorBody(codes: readonly CreditErrorCode[] = CREDIT_ERROR_CODES): z.ZodType {
  return z.strictObject({
    error: z.strictObject({ code: z.enum(codes), message: z.string().min(1) }),
  });
}

export type IssueRequest = z.output<typeof issueRequest>;
export type ArmRequest = z.output<typeof armRequest>;

export type FieldsReading<Fields> =
  { readonly ok: true; readonly fields: Fields } | { readonly ok: false; readonly problem: string };

/** The fields of a request, or everything that is wrong with them, without their values. */
export function readFields<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
): FieldsReading<z.output<Schema>> {
  const read = schema.safeParse(value);
  if (read.success) return { ok: true, fields: read.data };
  const problems = new Set<string>();
  for (const issue of read.error.issues) {
    if (issue.code !== "unrecognized_keys") {
      problems.add(`${issue.path.join(".")} ${issue.message}`);
      continue;
    }
    problems.add(`${String(issue.keys.length)} fields are not known here`);
  }
  return { ok: false, problem: [...problems].join("; ") };
}

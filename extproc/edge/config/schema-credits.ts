// The section `credits`: whether an external allocator may take slots ahead of its requests, and for how
// long. What credits need from other sections stands in rules-credits.ts.

import { refusal } from "../../core/identity/trusted-header.js";
import { GENERATION_MAX_CHARS } from "../../core/scheduler/credit-binding.js";
import { DEFAULTS } from "./defaults.js";
import { mapping, onOff, text, whole } from "./fields.js";
import { keyFile, keyVariable } from "./schema-key-places.js";

const CREDITS = DEFAULTS.credits;

/** A slot that nobody uses for an hour is no credit but a smaller pool. */
const TTL_MS_MAX = 3_600_000;
/** No allocator asks again for what it sent a day ago. */
const RETENTION_SECS_MAX = 86_400;

/** A request names its generation on a header line, so it must fit on one. */
function isGeneration(value: string): boolean {
  return value.length <= GENERATION_MAX_CHARS && refusal(value, { commas: false }) === undefined;
}

export const creditsSection = mapping({
  generation: text(
    `1 to ${String(GENERATION_MAX_CHARS)} characters of visible ASCII without blanks and commas`,
    isGeneration,
  )
    .optional()
    .describe("The allocator generation that is served; absent = credits are off."),
  ttl_ms: whole(1, TTL_MS_MAX)
    .default(CREDITS.ttl_ms)
    .describe("Life of a credit that nobody redeems, from its issue and once more when armed."),
  terminal_retention_secs: whole(1, RETENTION_SECS_MAX)
    .default(CREDITS.terminal_retention_secs)
    .describe("How long a used or dead credit still answers with what became of it."),
  required: onOff
    .default(CREDITS.required)
    .describe("Refuse inference requests that bring no credit."),
  service_key_env: keyVariable
    .optional()
    .describe("Environment variable with the key that the allocator proves itself with."),
  service_key_file: keyFile
    .optional()
    .describe("File with that key; read again when it is asked for. One of the two exactly."),
});

// How many output tokens a request is booked with before it ran. A trusted proxy may say so; in
// every other case the configured default stands, and the reason is counted, so that an operator
// sees estimates that are sent but do not count. A peer that is no trusted proxy is treated like a
// switch that is off. Unit: output tokens, 1..4294967295.

import type { HeaderSource } from "../model/headers.js";
import type { ControlRule } from "./control-headers.js";
import { readLine, TRUSTED_VALUE_MAX_CHARS, type RefusedValue } from "./trusted-header.js";

/** Largest estimate: token counts travel as unsigned 32-bit integers. */
export const ESTIMATE_MAX_TOKENS = 4_294_967_295;

export type EstimateFallback = "untrusted_estimate" | "invalid_estimate" | "missing_estimate";

export interface EstimateRules {
  readonly header: ControlRule;
  /** Booked when no estimate counts, in output tokens. */
  readonly defaultTokens: number;
}

export interface Estimate {
  readonly tokens: number;
  /** Why the default stands; undefined also when nobody sent or expected an estimate. */
  readonly fallback: EstimateFallback | undefined;
  readonly refused: RefusedValue | undefined;
}

const DECIMAL = /^[0-9]+$/;

/**
 * Reads the estimate header: an unsigned decimal without sign or blanks (leading zeros allowed).
 * Absent and untrusted is the ordinary case and counts nothing.
 */
export function readEstimate(
  rules: EstimateRules,
  headers: HeaderSource,
  peerIsProxy: boolean,
): Estimate {
  const { header, defaultTokens } = rules;
  const line = readLine(headers, header.names);
  const fallBack = (fallback?: EstimateFallback, refused?: RefusedValue): Estimate => ({
    tokens: defaultTokens,
    fallback,
    refused,
  });
  if (!header.trusted || !peerIsProxy) {
    return fallBack(line.kind === "absent" ? undefined : "untrusted_estimate");
  }
  if (line.kind === "absent") return fallBack("missing_estimate");
  if (line.kind === "refused") {
    return fallBack("invalid_estimate", { header: line.header, reason: line.reason });
  }
  const tokens = parseEstimate(line.value);
  return tokens === undefined
    ? fallBack("invalid_estimate", { header: line.header, reason: "invalid" })
    : { tokens, fallback: undefined, refused: undefined };
}

/** An unsigned decimal in the range of an estimate; undefined for anything else. */
export function parseEstimate(text: string): number | undefined {
  if (text.length > TRUSTED_VALUE_MAX_CHARS || !DECIMAL.test(text)) return undefined;
  const tokens = Number(text);
  return tokens >= 1 && tokens <= ESTIMATE_MAX_TOKENS ? tokens : undefined;
}

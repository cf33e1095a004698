// What is a finished request charged? At admission a tenant is booked an estimate of output tokens;
// here the estimate becomes the final figure, in output tokens, once per request.
//
// Work that never reached a worker costs nothing. A complete answer costs what its usage says. Where
// the usage is missing or the answer broke off, the estimate stands, raised by what was seen in a
// stream: neither a client that leaves early nor an engine that reports nothing makes tokens free.
// The HTTP status plays no part: a worker may have worked on what it then answered with 500.

import type { AnswerOrigin } from "./answer-origin.js";
import type { BodyFormat, UsageReading } from "./usage-reader.js";

/**
 * `observed`: the usage was read. `missing_usage`: complete, without usage. `interrupted`: no complete
 * answer of the worker. `cancelled`: the worker never got the request.
 */
export type SettlementKind = "observed" | "missing_usage" | "interrupted" | "cancelled";

/** How a request ended, as far as its charge depends on it. */
export interface AnswerEnd {
  /** False until Envoy was told the worker. */
  readonly dispatched: boolean;
  /** `unknown` also when no answer has come. */
  readonly origin: AnswerOrigin;
  /** The last byte of the answer was seen. */
  readonly complete: boolean;
  readonly format: BodyFormat;
  /** Undefined = the body was not read. */
  readonly reading: UsageReading | undefined;
  /** False for endpoints that generate nothing (embeddings, rerank, score). */
  readonly producesOutput: boolean;
  /** Output tokens booked at admission, >= 0. */
  readonly estimateTokens: number;
}

export interface Charge {
  readonly kind: SettlementKind;
  /** Output tokens for the tenant's totals. */
  readonly tokens: number;
  /**
   * Tokens for the fair clock: at least 1 for a settled request, so that requests without output
   * still take turns; 0 for a cancelled one.
   */
  readonly clockTokens: number;
}

/** The charge of work that a worker never did, or that Weir itself took away from it. */
export const CANCELLED_CHARGE: Charge = { kind: "cancelled", tokens: 0, clockTokens: 0 };

/** The final charge of one request. */
export function chargeFor(end: AnswerEnd): Charge {
  if (!end.dispatched || end.origin === "never_reached") return CANCELLED_CHARGE;
  // What Envoy answers in a worker's place has no usage, whatever its body looks like.
  if (end.origin === "reset" || end.origin === "envoy") {
    return settled("interrupted", end.estimateTokens);
  }
  if (!end.complete) return settled("interrupted", floorTokens(end));
  const observed = end.reading?.outputTokens ?? (end.producesOutput ? undefined : 0);
  if (observed !== undefined) return settled("observed", observed);
  return settled("missing_usage", floorTokens(end));
}

function settled(kind: SettlementKind, tokens: number): Charge {
  return { kind, tokens, clockTokens: Math.max(1, tokens) };
}

/** The estimate, or more when a stream has shown more. A JSON body shows nothing before its end. */
function floorTokens(end: AnswerEnd): number {
  const { reading, estimateTokens } = end;
  if (reading === undefined || end.format === "json") return estimateTokens;
  return Math.max(estimateTokens, reading.lastSeenTokens ?? 0, reading.contentEvents);
}

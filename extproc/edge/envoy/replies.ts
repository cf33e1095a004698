// The ProcessingResponse messages Weir sends. Everything that does not depend on the request is
// encoded once: a "continue" is two bytes, and the reply that routes to a worker is put together from
// pieces. A header value goes into raw_value only: Envoy 1.40 ignores `value`.

import { STATUS_CODES } from "node:http";
import type { HeaderSource } from "../../core/model/headers.js";
import type { Rejection } from "../../core/model/rejection.js";
import { structLength, writeStruct, type FlatFields } from "./struct.js";
import { bytesField, delimitedLength, varintField, writeHead, writeText } from "./wire.js";

/** Field numbers of the phases in ProcessingResponse. */
const PHASE_FIELD = {
  request_headers: 1,
  response_headers: 2,
  request_body: 3,
  response_body: 4,
  request_trailers: 5,
  response_trailers: 6,
} as const;

export type Phase = keyof typeof PHASE_FIELD;
export type RequestPhase = "request_headers" | "request_body";

/** Where Weir's facts stand in the dynamic metadata. */
export const NAMESPACE = "weir";

const OVERWRITE_IF_EXISTS_OR_ADD = 2;

const continueReply = (phase: Phase): Buffer => bytesField(PHASE_FIELD[phase]);

/** "Go on, change nothing", for each phase. */
export const CONTINUE = {
  request_headers: continueReply("request_headers"),
  response_headers: continueReply("response_headers"),
  request_body: continueReply("request_body"),
  response_body: continueReply("response_body"),
  request_trailers: continueReply("request_trailers"),
  response_trailers: continueReply("response_trailers"),
} as const satisfies Record<Phase, Buffer>;

/**
 * Goes on at the response headers and asks for the body chunk by chunk. All six fields of the mode
 * are filled, since an unset one means "default", which is "none" for bodies. Weir's own bootstrap has
 * bodies sent unasked; an Envoy set up by hand may not.
 */
export const READ_RESPONSE_BODY: Buffer = Buffer.concat([
  CONTINUE.response_headers,
  bytesField(
    9,
    varintField(1, 1), // request headers: SEND
    varintField(2, 1), // response headers: SEND
    varintField(3, 2), // request body: BUFFERED
    varintField(4, 1), // response body: STREAMED
    varintField(5, 2), // request trailers: SKIP
    varintField(6, 1), // response trailers: SEND
  ),
]);

/** Asks Envoy to wait this much longer for the reply to the current phase. */
export function holdReply(budgetMs: number): Buffer {
  const seconds = Math.floor(budgetMs / 1_000);
  const nanos = Math.round((budgetMs - seconds * 1_000) * 1_000_000);
  return bytesField(10, varintField(1, seconds), varintField(2, nanos));
}

function setHeader(name: string, value: string): Buffer {
  return bytesField(
    1,
    bytesField(1, bytesField(1, name), bytesField(3, Buffer.from(value, "latin1"))),
    varintField(3, OVERWRITE_IF_EXISTS_OR_ADD),
  );
}

const CLEAR_ROUTE_CACHE = varintField(5, 1);

/** Replies that send a request to a worker's cluster; what each name adds to them is encoded once. */
export class RouteReplies {
  readonly #routeHeader: string;
  readonly #removals: readonly (readonly [name: string, field: Buffer])[];
  readonly #byCluster = new Map<string, Buffer>();

  /** @param removeHeaders request headers that must not reach a worker */
  constructor(routeHeader: string, removeHeaders: readonly string[]) {
    this.#routeHeader = routeHeader;
    this.#removals = removeHeaders.map((name) => [name, bytesField(2, name)]);
  }

  /**
   * The reply for a phase, with `metadata` under Weir's dynamic metadata namespace. Of the headers that
   * must not reach a worker it removes those that the request has: each name costs Envoy a search.
   */
  for(phase: RequestPhase, cluster: string, headers: HeaderSource, metadata: FlatFields): Buffer {
    let set = this.#byCluster.get(cluster);
    if (set === undefined) {
      set = setHeader(this.#routeHeader, cluster);
      this.#byCluster.set(cluster, set);
    }
    const mutations = [set];
    let mutation = set.length;
    for (const [name, field] of this.#removals) {
      if (headers.all(name).length === 0) continue;
      mutations.push(field);
      mutation += field.length;
    }
    const common = delimitedLength(mutation) + CLEAR_ROUTE_CACHE.length;
    const answer = delimitedLength(common);
    const facts = metadataField(metadata);
    const bytes = Buffer.allocUnsafe(delimitedLength(answer) + facts.length);
    let at = writeHead(bytes, 0, PHASE_FIELD[phase], answer);
    at = writeHead(bytes, at, 1, common);
    at = writeHead(bytes, at, 2, mutation);
    for (const field of mutations) at += field.copy(bytes, at);
    at += CLEAR_ROUTE_CACHE.copy(bytes, at);
    facts.copy(bytes, at);
    return bytes;
  }
}

/** The dynamic metadata field: a struct that holds one struct under Weir's namespace. */
function metadataField(metadata: FlatFields): Buffer {
  const struct = structLength(metadata);
  const value = delimitedLength(struct);
  const entry = delimitedLength(NAMESPACE.length) + delimitedLength(value);
  const field = delimitedLength(entry);
  const bytes = Buffer.allocUnsafe(delimitedLength(field));
  let at = writeHead(bytes, 0, 8, field);
  at = writeHead(bytes, at, 1, entry);
  at = writeText(bytes, at, 1, NAMESPACE);
  at = writeHead(bytes, at, 2, value);
  at = writeHead(bytes, at, 5, struct);
  writeStruct(bytes, at, metadata);
  return bytes;
}

/** The answer that ends a request with a refusal, in the error shape of every Weir answer. */
export function refusalReply(rejection: Rejection): Buffer {
  const body = JSON.stringify({
    error: {
      type: STATUS_CODES[rejection.status] ?? "Error",
      code: rejection.code,
      message: rejection.message,
      param: null,
    },
  });
  const headers = [
    setHeader("content-type", "application/json"),
    setHeader("x-weir-error-code", rejection.code),
  ];
  if (rejection.retryAfterS !== undefined) {
    headers.push(setHeader("retry-after", String(rejection.retryAfterS)));
  }
  for (const [name, value] of rejection.headers) headers.push(setHeader(name, value));
  return bytesField(
    7,
    bytesField(1, varintField(1, rejection.status)),
    bytesField(2, ...headers),
    bytesField(3, body),
    bytesField(5, `weir_${rejection.code}`),
  );
}

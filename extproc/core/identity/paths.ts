// Which requests Weir deals with at all, decided from method and `:path` alone. Engines serve admin
// paths (unload a model, flush a cache) beside inference, so the answer is an allow-list: inference
// paths go through admission, a few reads pass through, everything else is unknown. Comparison is
// byte for byte without the query and without one trailing slash. Whatever could be read as another
// path by the engine behind (escapes, path parameters, dot segments, doubled slashes) is refused
// rather than normalized, because two normalizers never agree for long.

import { reject, type Rejection } from "../model/rejection.js";

/** The dialects of inference; each has its own body and usage shape. */
export type Endpoint =
  | "chat"
  | "completions"
  | "responses"
  | "messages"
  | "embeddings"
  | "rerank"
  | "score"
  | "generate";

export type PathDecision =
  | { readonly kind: "inference"; readonly endpoint: Endpoint }
  | { readonly kind: "pass_through" }
  | { readonly kind: "rejected"; readonly rejection: Rejection };

const INFERENCE: ReadonlyMap<string, Endpoint> = new Map<string, Endpoint>([
  ["/v1/chat/completions", "chat"],
  ["/v1/completions", "completions"],
  ["/v1/responses", "responses"],
  ["/v1/messages", "messages"],
  ["/v1/embeddings", "embeddings"],
  ["/v1/rerank", "rerank"],
  ["/v2/rerank", "rerank"],
  ["/rerank", "rerank"],
  ["/v1/score", "score"],
  ["/score", "score"],
  ["/generate", "generate"],
]);

const PASS_THROUGH: ReadonlySet<string> = new Set(["/v1/models", "/version"]);
/** Model names hold slashes, so everything below this prefix names one model. */
const MODEL_PREFIX = "/v1/models/";

/** Anything outside visible ASCII, an escape, a path parameter, a backslash or a doubled slash. */
const FORBIDDEN = /[^\x21-\x7e]|[%;\\]|\/\//;
const DOT_SEGMENT = /\/\.\.?(?:\/|$)/;
/** Characters of a refused path that the client gets to see again. */
const QUOTED_PATH_MAX_CHARS = 120;

/**
 * Decides by method and target. `target` is the `:path` pseudo-header as Envoy sends it, query
 * included; any string is allowed. An unknown path wins over a wrong method, so that a 405 never
 * tells which paths an engine has.
 */
export function classifyPath(method: string, target: string): PathDecision {
  const query = target.indexOf("?");
  const full = query === -1 ? target : target.slice(0, query);
  if (!full.startsWith("/")) return unknown(full);
  if (FORBIDDEN.test(full) || DOT_SEGMENT.test(full)) {
    const rule = "allowed are visible ASCII characters without % ; \\ // /./ and /../";
    return rejected(reject("invalid_path", `path ${quoted(full)} is not accepted: ${rule}`));
  }
  const path = full.length > 1 && full.endsWith("/") ? full.slice(0, -1) : full;
  const endpoint = INFERENCE.get(path);
  if (endpoint !== undefined) {
    return method === "POST"
      ? { kind: "inference", endpoint }
      : rejected(wrongMethod(method, path, "POST"));
  }
  if (PASS_THROUGH.has(path) || path.startsWith(MODEL_PREFIX)) {
    return method === "GET" || method === "HEAD"
      ? { kind: "pass_through" }
      : rejected(wrongMethod(method, path, "GET, HEAD"));
  }
  return unknown(full);
}

/** Whether answers of this endpoint hold generated tokens; the others settle at 0 output. */
export function producesOutputTokens(endpoint: Endpoint): boolean {
  return endpoint !== "embeddings" && endpoint !== "rerank" && endpoint !== "score";
}

function unknown(path: string): PathDecision {
  return rejected(reject("unknown_path", `path ${quoted(path)} is not served here`));
}

function wrongMethod(method: string, path: string, allow: string): Rejection {
  const message = `method ${quoted(method)} is not allowed for ${quoted(path)}: use ${allow}`;
  return reject("method_not_allowed", message, { headers: [["allow", allow]] });
}

function rejected(rejection: Rejection): PathDecision {
  return { kind: "rejected", rejection };
}

function quoted(text: string): string {
  const shown = text.length > QUOTED_PATH_MAX_CHARS;
  return JSON.stringify(shown ? `${text.slice(0, QUOTED_PATH_MAX_CHARS)}...` : text);
}

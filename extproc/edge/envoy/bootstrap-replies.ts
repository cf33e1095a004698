// Gives the answers Envoy makes by itself the error shape of all other answers: a JSON body
// {"error":{"type","code","message","param":null}} and the code as x-weir-error-code. Envoy rewrites
// by a list of filters, the first match wins. Weir's own refusals pass the same list, so every filter
// asks for the details of the reply: Envoy always sets them on its own answers, Weir leaves them
// empty or begins them with "weir". A global body format would rewrite Weir's answers as well.

import { extension } from "./bootstrap-value.js";
import type { BootstrapMap } from "./bootstrap-value.js";

const CEL_FILTER = "envoy.access_loggers.extension_filters.cel";
const CEL_TYPE = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter";

/** A reply that is Envoy's own, whatever its status. */
const BY_ENVOY = "response.code_details != '' && !response.code_details.startsWith('weir')";

interface ReplyRow {
  readonly when: string;
  readonly code: string;
  readonly type:
    "invalid_request_error" | "authentication_error" | "permission_error" | "proxy_error";
  /** Whole seconds for `retry-after`. */
  readonly retryAfterS?: number;
}

const ROWS: readonly ReplyRow[] = [
  {
    when: "response.code_details == 'request_payload_too_large'",
    code: "body_too_large",
    type: "invalid_request_error",
  },
  {
    when: "response.code_details == 'path_normalization_failed'",
    code: "invalid_path",
    type: "invalid_request_error",
  },
  {
    when: `response.code == 400 && ${BY_ENVOY}`,
    code: "invalid_request",
    type: "invalid_request_error",
  },
  // From filters the operator put before ext_proc.
  {
    when: `response.code == 401 && ${BY_ENVOY}`,
    code: "unauthenticated",
    type: "authentication_error",
  },
  {
    when: `response.code == 403 && ${BY_ENVOY}`,
    code: "forbidden",
    type: "permission_error",
  },
  // A target that is no path, such as `OPTIONS *`.
  {
    when: `response.code == 404 && ${BY_ENVOY}`,
    code: "unknown_path",
    type: "invalid_request_error",
  },
  {
    when: `response.code == 408 && ${BY_ENVOY}`,
    code: "request_timeout",
    type: "invalid_request_error",
  },
  // Nobody named a cluster: Weir is away, failing or shutting down. It may be back in a moment.
  {
    when:
      "response.code_details == 'cluster_not_found' || " +
      "response.code_details.startsWith('ext_proc_error')",
    code: "weir_unavailable",
    type: "proxy_error",
    retryAfterS: 1,
  },
  // 502: the worker broke off after its headers and before Envoy had passed them on.
  {
    when: `response.code in [500, 502, 503] && ${BY_ENVOY}`,
    code: "worker_failed",
    type: "proxy_error",
  },
  {
    when: `response.code == 504 && ${BY_ENVOY}`,
    code: "timeout",
    type: "proxy_error",
  },
  // Whatever else a filter of the operator may answer, for instance 429.
  {
    when: `response.code >= 400 && ${BY_ENVOY}`,
    code: "refused_by_envoy",
    type: "proxy_error",
  },
];

/** The `local_reply_config` of the connection manager. */
export function localReplies(): BootstrapMap {
  return { mappers: ROWS.map(mapper) };
}

function mapper(row: ReplyRow): BootstrapMap {
  const headers = [header("x-weir-error-code", row.code)];
  if (row.retryAfterS !== undefined) headers.push(header("retry-after", String(row.retryAfterS)));
  const message = "%RESPONSE_CODE_DETAILS%";
  return {
    filter: { extension_filter: extension(CEL_FILTER, CEL_TYPE, { expression: row.when }) },
    headers_to_add: headers,
    body_format_override: {
      json_format: { error: { type: row.type, code: row.code, message, param: null } },
      content_type: "application/json",
    },
  };
}

function header(key: string, value: string): BootstrapMap {
  return { header: { key, value }, append_action: "OVERWRITE_IF_EXISTS_OR_ADD" };
}

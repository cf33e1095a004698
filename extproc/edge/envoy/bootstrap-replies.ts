// Gives the answers Envoy makes by itself the error shape of all other answers: a JSON body
// {"error":{"type","code","message","param":null}} and the code as x-weir-error-code. Envoy rewrites
// by a list of filters, the first match wins. Weir's own refusals pass the same list, so every filter
// asks for the details of the reply: Envoy always sets them on its own answers, Weir leaves them
// empty or begins them with "weir". A global body format would rewrite Weir's answers as well.

import { STATUS_CODES } from "node:http";
import { extension } from "./bootstrap-value.js";
import type { BootstrapMap } from "./bootstrap-value.js";

const CEL_FILTER = "envoy.access_loggers.extension_filters.cel";
const CEL_TYPE = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter";

/** A reply that is Envoy's own, whatever its status. */
const BY_ENVOY = "response.code_details != '' && !response.code_details.startsWith('weir')";

interface ReplyRow {
  readonly when: string;
  readonly code: string;
  /** Status whose reason phrase is the error's type, as in Weir's own answers. */
  readonly status: number;
  /** Whole seconds for `retry-after`. */
  readonly retryAfterS?: number;
}

const withStatus = (status: number, code: string): ReplyRow => ({
  when: `response.code == ${String(status)} && ${BY_ENVOY}`,
  code,
  status,
});

const ROWS: readonly ReplyRow[] = [
  {
    when: "response.code_details == 'request_payload_too_large'",
    code: "body_too_large",
    status: 413,
  },
  {
    when: "response.code_details == 'path_normalization_failed'",
    code: "invalid_path",
    status: 400,
  },
  withStatus(400, "invalid_request"),
  // From filters the operator put before ext_proc.
  withStatus(401, "unauthenticated"),
  withStatus(403, "forbidden"),
  // A target that is no path, such as `OPTIONS *`.
  withStatus(404, "unknown_path"),
  withStatus(408, "request_timeout"),
  // Nobody named a cluster: Weir is away, failing or shutting down. It may be back in a moment.
  {
    when:
      "response.code_details == 'cluster_not_found' || " +
      "response.code_details.startsWith('ext_proc_error')",
    code: "weir_unavailable",
    status: 503,
    retryAfterS: 1,
  },
  withStatus(500, "worker_failed"),
  // The worker broke off after its headers and before Envoy had passed them on.
  withStatus(502, "worker_failed"),
  withStatus(503, "worker_failed"),
  withStatus(504, "timeout"),
  // What a filter of the operator may answer for his own limits.
  withStatus(429, "refused_by_envoy"),
  { when: `response.code >= 400 && ${BY_ENVOY}`, code: "refused_by_envoy", status: 400 },
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
      json_format: {
        error: { type: STATUS_CODES[row.status] ?? "Error", code: row.code, message, param: null },
      },
      content_type: "application/json",
    },
  };
}

function header(key: string, value: string): BootstrapMap {
  return { header: { key, value }, append_action: "OVERWRITE_IF_EXISTS_OR_ADD" };
}

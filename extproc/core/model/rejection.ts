// Every refusal Weir gives a client, in one table: 429 = capacity exists but is
// contended, 503 = none exists, any other 4xx = the request itself. The edge only renders it.

interface RejectionRow {
  /** HTTP status; a configured status may replace it where the caller says so. */
  readonly status: number;
  /** Whole seconds for `retry-after` when the refusal carries no estimate of its own. */
  readonly retryAfterS?: number;
  /** Further headers of the answer. */
  readonly headers?: readonly AnswerHeader[];
}

type AnswerHeader = readonly [name: string, value: string];

const ROWS = {
  invalid_request: { status: 400 },
  invalid_path: { status: 400 },
  unknown_path: { status: 404 },
  model_not_found: { status: 404 },
  method_not_allowed: { status: 405 },
  body_too_large: { status: 413 },
  scheduler_queue_full: { status: 429 },
  scheduler_queue_timeout: { status: 429 },
  rate_limited: { status: 429 },
  /** Nobody reads it: the client has gone. */
  scheduler_client_cancelled: { status: 499 },
  invalid_capacity_credit: { status: 400 },
  capacity_credit_unknown: { status: 409 },
  capacity_credit_binding_mismatch: { status: 409 },
  capacity_credit_expired: { status: 409 },
  capacity_credit_already_redeemed: { status: 409 },
  capacity_credit_cancelled: { status: 409 },
  capacity_credit_required: { status: 429, retryAfterS: 1 },
  capacity_credit_internal: { status: 500 },
  adaptive_admission_saturated: { status: 429, retryAfterS: 1 },
  scheduler_preempted: { status: 503, retryAfterS: 1, headers: [["x-weir-preempted", "true"]] },
  no_worker: { status: 503, retryAfterS: 1 },
  draining: { status: 503, retryAfterS: 1 },
  internal_error: { status: 503, retryAfterS: 1 },
} satisfies Record<string, RejectionRow>;

export type RejectionCode = keyof typeof ROWS;

/** Every code there is, in a fixed order; metrics create their series from it. */
export const REJECTION_CODES = Object.keys(ROWS) as readonly RejectionCode[];

/** One refusal of one request. */
export interface Rejection {
  readonly code: RejectionCode;
  readonly status: number;
  /** What was wrong, which value, what is allowed. Shown to the client. */
  readonly message: string;
  /** Whole seconds, >= 1; undefined = no `retry-after` header. */
  readonly retryAfterS: number | undefined;
  /** Further headers of the answer, such as `allow` of a 405. */
  readonly headers: readonly AnswerHeader[];
}

export interface RejectionDetail {
  readonly status?: number;
  readonly retryAfterS?: number;
  readonly headers?: readonly AnswerHeader[];
}

const NO_HEADERS: readonly AnswerHeader[] = [];

/** Builds a refusal from its row; `detail` overrides what the request or the configuration decides. */
export function reject(
  code: RejectionCode,
  message: string,
  detail: RejectionDetail = {},
): Rejection {
  const row: RejectionRow = ROWS[code];
  return {
    code,
    status: detail.status ?? row.status,
    message,
    retryAfterS: detail.retryAfterS ?? row.retryAfterS,
    headers: detail.headers ?? row.headers ?? NO_HEADERS,
  };
}

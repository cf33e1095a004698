// Whose answer is it? Envoy puts its own local replies through the same response messages as a
// worker's answer, and they look alike (503, JSON body). Only the response attributes tell: a worker's
// answer has the code details `via_upstream`, everything else was made by Envoy.
//
// Two questions follow. For the charge: could the worker have produced tokens? Not when it was never
// reached; perhaps when the connection broke before headers. For the breaker: does the end speak for
// or against the worker? Details and flags are both read, because an Envoy configured by hand may send
// only one of them; what shows contact with the worker outweighs what shows none.

/** What Envoy says about an answer; undefined = the attribute was not sent. */
export interface ResponseAttributes {
  readonly codeDetails: string | undefined;
  /** Envoy's response flags as a bit set. */
  readonly flags: number | undefined;
  readonly clusterName: string | undefined;
  readonly upstreamAddress: string | undefined;
  /** Upstream attempts, 0 when none was made. */
  readonly attempts: number | undefined;
}

/**
 * - `worker`: the worker's own answer, whatever its status.
 * - `never_reached`: Envoy could not hand the request to the worker.
 * - `reset`: the request was handed over and broke off before headers; the worker may have worked.
 * - `envoy`: any other answer of Envoy (408, 413, idle timeout, another filter).
 * - `unknown`: no attributes, so the answer is taken for the worker's.
 */
export type AnswerOrigin = "worker" | "never_reached" | "reset" | "envoy" | "unknown";

/** What an end says about the worker, for its breaker. */
export type WorkerVerdict = "success" | "failure" | "neutral";

/**
 * Envoy's response flags by their short names in the access log. The bit is the position in
 * `CoreResponseFlag` of Envoy's stream_info.h; the order only ever grows at its end.
 */
export const RESPONSE_FLAG = {
  /** No healthy upstream. */
  UH: 2 ** 1,
  /** Upstream request timeout. */
  UT: 2 ** 2,
  /** Stream to the worker reset on Envoy's side, also for a half-closed HTTP/1 connection. */
  LR: 2 ** 3,
  /** Stream reset by the worker. */
  UR: 2 ** 4,
  /** Connection to the worker failed. */
  UF: 2 ** 5,
  /** Connection closed by the worker while a request was on it. */
  UC: 2 ** 6,
  /** Circuit breaker of the cluster is full. */
  UO: 2 ** 7,
  /** No route. */
  NR: 2 ** 8,
  /** The worker broke the protocol. */
  UPE: 2 ** 23,
  /** No cluster of the given name. */
  NC: 2 ** 24,
  /** DNS resolution of the worker's name failed. */
  DF: 2 ** 26,
  /** Dropped by a drop-overload policy before any attempt. */
  DO: 2 ** 27,
  /** As DO, with the policy at 100 %. */
  UDO: 2 ** 29,
} as const;

const FLAG = RESPONSE_FLAG;
const RESET_FLAGS = FLAG.UT | FLAG.LR | FLAG.UR | FLAG.UC | FLAG.UPE;
const NEVER_REACHED_FLAGS =
  FLAG.UH | FLAG.UF | FLAG.UO | FLAG.NR | FLAG.NC | FLAG.DF | FLAG.DO | FLAG.UDO;

const RESET_BEFORE_HEADERS = "upstream_reset_before_response_started";
// Envoy writes the cause in braces behind the prefix, blanks as underscores, details after `|` or `,`.
const CONNECT_FAILURE = new RegExp(
  `^${RESET_BEFORE_HEADERS}\\{(?:(?:remote_|local_)?connection_failure|connection_timeout|delayed_connect_error)\\b`,
);
const OVERFLOW = new RegExp(`^${RESET_BEFORE_HEADERS}\\{overflow\\b`);

const NEVER_REACHED_DETAILS: ReadonlySet<string> = new Set([
  "cluster_not_found",
  "drop_overload",
  "maintenance_mode",
  "no_healthy_upstream",
  "route_configuration_not_found",
  "route_not_found",
  "unconditional_drop_overload",
]);

const TIMEOUT_DETAILS: ReadonlySet<string> = new Set([
  "response_timeout",
  "upstream_per_try_idle_timeout",
  "upstream_per_try_timeout",
]);

// Statuses by which a worker, or a proxy in front of it, says that it failed. 503 and 429 are how a
// healthy engine refuses when it is full, and 4xx is the request's own fault.
const FAILURE_STATUSES: ReadonlySet<number> = new Set([500, 502, 504]);

/** Whose answer the attributes of a response_headers message describe. */
export function answerOrigin(attributes: ResponseAttributes): AnswerOrigin {
  const details = attributes.codeDetails ?? "";
  const flags = attributes.flags ?? 0;
  if (details === "" && flags === 0) return "unknown";
  if (details === "via_upstream") return "worker";
  if ((flags & RESET_FLAGS) !== 0 || TIMEOUT_DETAILS.has(details)) return "reset";
  if ((flags & NEVER_REACHED_FLAGS) !== 0) return "never_reached";
  if (NEVER_REACHED_DETAILS.has(details)) return "never_reached";
  if (CONNECT_FAILURE.test(details) || OVERFLOW.test(details)) return "never_reached";
  return details.startsWith(RESET_BEFORE_HEADERS) ? "reset" : "envoy";
}

/**
 * What an answer says about its worker. `origin` is answerOrigin(attributes); `status` is the HTTP
 * status of the answer.
 */
export function workerVerdict(
  origin: AnswerOrigin,
  attributes: ResponseAttributes,
  status: number,
): WorkerVerdict {
  switch (origin) {
    case "never_reached":
      return isConnectFailure(attributes) ? "failure" : "neutral";
    case "reset":
      return "failure";
    case "envoy":
      return "neutral";
    case "worker":
    case "unknown":
      if (FAILURE_STATUSES.has(status)) return "failure";
      return status >= 200 && status < 400 ? "success" : "neutral";
  }
}

function isConnectFailure(attributes: ResponseAttributes): boolean {
  return (
    ((attributes.flags ?? 0) & FLAG.UF) !== 0 || CONNECT_FAILURE.test(attributes.codeDetails ?? "")
  );
}

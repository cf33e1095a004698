// How did a request end for its client? One word per request, for metrics and the settlement log
// line. Every request that entered admission gets exactly one, so that
// received = admitted + rejected + pre_admission_interrupted + still queued always holds.

export type RequestOutcome =
  "success" | "http_4xx" | "http_5xx" | "interrupted" | "pre_admission_interrupted" | "rejected";

export interface RequestEnd {
  /** Weir refused the request before it was admitted. */
  readonly rejected: boolean;
  /** The request got its slot. */
  readonly admitted: boolean;
  /** The last byte of an answer was seen. */
  readonly complete: boolean;
  /** HTTP status of the answer; undefined = no response headers came. */
  readonly status: number | undefined;
}

/** The outcome of a request: the status decides only when the answer is complete. */
export function requestOutcome(end: RequestEnd): RequestOutcome {
  if (end.rejected) return "rejected";
  if (!end.admitted) return "pre_admission_interrupted";
  // A status below 200 is no final answer, so what ended there was cut off.
  if (!end.complete || end.status === undefined || end.status < 200) return "interrupted";
  if (end.status < 400) return "success";
  return end.status < 500 ? "http_4xx" : "http_5xx";
}

import { expect } from "chai";
import {
  answerOrigin,
  RESPONSE_FLAG,
  workerVerdict,
  type AnswerOrigin,
  type ResponseAttributes,
  type WorkerVerdict,
} from "../../../extproc/core/settlement/answer-origin.js";

const attributes = (
  codeDetails: string | undefined,
  flags: number | undefined,
): ResponseAttributes => ({
  codeDetails,
  flags,
  clusterName: undefined,
  upstreamAddress: undefined,
  attempts: undefined,
});

const RESET = "upstream_reset_before_response_started";

describe("response flags", () => {
  it("have the bits that a real Envoy sends for a connect failure and an unknown cluster", () => {
    expect(RESPONSE_FLAG.UF).to.equal(32);
    expect(RESPONSE_FLAG.NC).to.equal(16_777_216);
  });
});

describe("answer origin and worker verdict", () => {
  for (const [what, details, flags, status, origin, verdict] of [
    ["a worker's 200", "via_upstream", 0, 200, "worker", "success"],
    ["a worker's redirect", "via_upstream", 0, 307, "worker", "success"],
    ["a worker's 500", "via_upstream", 0, 500, "worker", "failure"],
    ["a worker's 502", "via_upstream", 0, 502, "worker", "failure"],
    ["a worker's 504", "via_upstream", 0, 504, "worker", "failure"],
    ["a worker's 501", "via_upstream", 0, 501, "worker", "neutral"],
    ["a full worker's 503", "via_upstream", 0, 503, "worker", "neutral"],
    ["a full worker's 429", "via_upstream", 0, 429, "worker", "neutral"],
    ["a worker's 400", "via_upstream", 0, 400, "worker", "neutral"],
    ["a worker's answer with a flag beside it", "via_upstream", 2 ** 5, 200, "worker", "success"],
    ["a worker's answer without flags", "via_upstream", undefined, 200, "worker", "success"],

    ["an unknown cluster", "cluster_not_found", 16_777_216, 503, "never_reached", "neutral"],
    [
      "an unknown cluster by details",
      "cluster_not_found",
      undefined,
      503,
      "never_reached",
      "neutral",
    ],
    ["an unknown cluster by flag", undefined, 16_777_216, 503, "never_reached", "neutral"],
    ["no healthy upstream", "no_healthy_upstream", 2, 503, "never_reached", "neutral"],
    ["an overflow", `${RESET}{overflow}`, 128, 503, "never_reached", "neutral"],
    ["an overflow by details", `${RESET}{overflow}`, undefined, 503, "never_reached", "neutral"],
    ["a missing route", "route_not_found", 256, 404, "never_reached", "neutral"],
    [
      "a name that does not resolve",
      "dns_resolution_failure",
      2 ** 26,
      503,
      "never_reached",
      "neutral",
    ],
    ["dropped overload", "drop_overload", 2 ** 27, 503, "never_reached", "neutral"],
    ["maintenance mode", "maintenance_mode", 128, 503, "never_reached", "neutral"],
    [
      "a refused connection",
      `${RESET}{remote_connection_failure|delayed_connect_error:_Connection_refused}`,
      32,
      503,
      "never_reached",
      "failure",
    ],
    [
      "a refused connection by details",
      `${RESET}{remote_connection_failure|delayed_connect_error:_111}`,
      undefined,
      503,
      "never_reached",
      "failure",
    ],
    [
      "a refused connection in the older spelling",
      `${RESET}{connection_failure,delayed_connect_error:_111}`,
      0,
      503,
      "never_reached",
      "failure",
    ],
    [
      "a failed local connect",
      `${RESET}{local_connection_failure}`,
      0,
      503,
      "never_reached",
      "failure",
    ],
    ["a connect timeout", `${RESET}{connection_timeout}`, 0, 503, "never_reached", "failure"],
    ["a connect failure by flag", undefined, 32, 503, "never_reached", "failure"],

    ["a worker that closed", `${RESET}{connection_termination}`, 64, 503, "reset", "failure"],
    [
      "a worker that closed, by details",
      `${RESET}{connection_termination}`,
      0,
      503,
      "reset",
      "failure",
    ],
    ["a worker that closed, by flag", undefined, 64, 503, "reset", "failure"],
    ["a stream reset by the worker", `${RESET}{remote_reset}`, 16, 503, "reset", "failure"],
    ["a protocol error", `${RESET}{protocol_error}`, 2 ** 23, 502, "reset", "failure"],
    ["a reset on Envoy's side", `${RESET}{local_reset}`, 8, 503, "reset", "failure"],
    ["a reset for a reason not known", `${RESET}{something_new}`, 0, 503, "reset", "failure"],
    ["a response timeout", "response_timeout", 4, 504, "reset", "failure"],
    ["a response timeout by details", "response_timeout", undefined, 504, "reset", "failure"],
    [
      "a reset after a failed connect",
      `${RESET}{connection_termination}`,
      96,
      503,
      "reset",
      "failure",
    ],

    ["a body over Envoy's limit", "request_payload_too_large", 0, 413, "envoy", "neutral"],
    ["a slow upload", "request_overall_timeout", 0, 408, "envoy", "neutral"],
    ["an idle stream", "stream_idle_timeout", 2 ** 16, 504, "envoy", "neutral"],
    ["an idle stream by flag", undefined, 2 ** 16, 504, "envoy", "neutral"],
    ["a duration timeout", "duration_timeout", 2 ** 22, 504, "envoy", "neutral"],
    ["a direct response", "direct_response", 0, 200, "envoy", "neutral"],
    ["another filter's 401", "jwt_authn_access_denied{Jwt_is_missing}", 0, 401, "envoy", "neutral"],

    ["an answer without attributes", undefined, undefined, 200, "unknown", "success"],
    ["an answer with empty attributes", "", 0, 200, "unknown", "success"],
    ["a 502 without attributes", undefined, undefined, 502, "unknown", "failure"],
    ["a 503 without attributes", undefined, undefined, 503, "unknown", "neutral"],
  ] as const satisfies readonly (readonly [
    string,
    string | undefined,
    number | undefined,
    number,
    AnswerOrigin,
    WorkerVerdict,
  ])[]) {
    it(`${what}: ${origin}, ${verdict}`, () => {
      const given = attributes(details, flags);
      expect(answerOrigin(given)).to.equal(origin);
      expect(workerVerdict(origin, given, status)).to.equal(verdict);
    });
  }

  it("bits beyond those that are known change nothing", () => {
    expect(answerOrigin(attributes("via_upstream", 2 ** 31))).to.equal("worker");
    expect(answerOrigin(attributes("direct_response", 2 ** 31 + 2 ** 40))).to.equal("envoy");
    expect(answerOrigin(attributes(undefined, 2 ** 40 + 32))).to.equal("never_reached");
  });
});

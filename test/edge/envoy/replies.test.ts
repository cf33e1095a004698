// Every reply, decoded by the reference codec.

import { expect } from "chai";
import fc from "fast-check";
import { headersFrom, NO_HEADERS } from "../../../extproc/core/model/headers.js";
import {
  reject,
  REJECTION_CODES,
  type RejectionCode,
} from "../../../extproc/core/model/rejection.js";
import {
  CONTINUE,
  holdReply,
  READ_RESPONSE_BODY,
  refusalReply,
  RouteReplies,
  type Phase,
} from "../../../extproc/edge/envoy/replies.js";
import { decodeReply, type ReplyShape } from "../../support/oracle.js";

const headersOf = (
  list: readonly { readonly header: { readonly key: string; readonly raw_value?: Buffer } }[] = [],
): Record<string, string> =>
  Object.fromEntries(list.map(({ header }) => [header.key, header.raw_value?.toString() ?? ""]));

describe("replies", () => {
  it("continue each phase with an empty answer of two bytes", () => {
    for (const [phase, bytes] of Object.entries(CONTINUE)) {
      expect(bytes).to.have.length(2);
      expect(Object.keys(decodeReply(bytes))).to.deep.equal([phase satisfies string as Phase]);
    }
  });

  it("ask for the response body with all six modes filled", () => {
    const reply = decodeReply(READ_RESPONSE_BODY);
    expect(reply.response_headers).to.deep.equal({});
    expect(reply.mode_override).to.deep.equal({
      request_header_mode: 1,
      response_header_mode: 1,
      request_body_mode: 2,
      response_body_mode: 1,
      request_trailer_mode: 2,
      response_trailer_mode: 1,
    });
  });

  it("route: overwrite the cluster header by raw_value, clear the route cache, remove headers, set metadata", () => {
    const routes = new RouteReplies("x-weir-cluster", ["accept-encoding", "x-weir-tenant-id"]);
    const headers = headersFrom({ "x-weir-tenant-id": "a", "accept-encoding": "", ":path": "/" });
    for (const phase of ["request_headers", "request_body"] as const) {
      const metadata = { tenant: "ip:::1", queue_ms: 12 };
      const reply = decodeReply(routes.for(phase, "worker_1", headers, metadata));
      const common = reply[phase]?.response;
      expect(common?.clear_route_cache).to.equal(true);
      expect(common?.header_mutation?.remove_headers).to.deep.equal([
        "accept-encoding",
        "x-weir-tenant-id",
      ]);
      const [set] = common?.header_mutation?.set_headers ?? [];
      expect(set?.append_action).to.equal(2);
      expect(set?.header.value ?? "").to.equal("");
      expect(headersOf(common?.header_mutation?.set_headers)).to.deep.equal({
        "x-weir-cluster": "worker_1",
      });
      expect(reply.dynamic_metadata?.fields).to.deep.equal({
        weir: {
          structValue: {
            fields: { tenant: { stringValue: "ip:::1" }, queue_ms: { numberValue: 12 } },
          },
        },
      });
    }
  });

  it("route: remove every header that must not reach a worker and is there, and name no other", () => {
    const names = Array.from({ length: 60 }, (_, at) => `x-control-${String(at)}`);
    const routes = new RouteReplies("x-weir-cluster", names);
    fc.assert(
      fc.property(fc.subarray(names), fc.integer({ min: 0, max: 400 }), (present, length) => {
        const headers = headersFrom(
          Object.fromEntries(["x-other", ...present].map((name) => [name, ["one", "two"]])),
        );
        const metadata = { tenant: "t".repeat(length) };
        const reply = decodeReply(routes.for("request_body", "worker_1", headers, metadata));
        const common = reply.request_body?.response;
        expect(common?.header_mutation?.remove_headers ?? []).to.deep.equal(present);
        expect(headersOf(common?.header_mutation?.set_headers)).to.deep.equal({
          "x-weir-cluster": "worker_1",
        });
        expect(common?.clear_route_cache).to.equal(true);
        expect(reply.dynamic_metadata?.fields["weir"]).to.deep.equal({
          structValue: { fields: { tenant: { stringValue: metadata.tenant } } },
        });
      }),
    );
  });

  it("route each cluster to itself, whatever came before", () => {
    const routes = new RouteReplies("x-weir-cluster", []);
    const target = (reply: ReplyShape): string | undefined =>
      headersOf(reply.request_body?.response?.header_mutation?.set_headers)["x-weir-cluster"];
    for (const cluster of ["a", "b", "a"]) {
      expect(target(decodeReply(routes.for("request_body", cluster, NO_HEADERS, {})))).to.equal(
        cluster,
      );
    }
  });

  it("hold for the whole budget, in seconds and nanoseconds", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 3_600_000 }), (budgetMs) => {
        const { override_message_timeout: timeout, ...rest } = decodeReply(holdReply(budgetMs));
        expect(rest).to.deep.equal({});
        expect((timeout?.seconds ?? 0) * 1_000 + (timeout?.nanos ?? 0) / 1_000_000).to.equal(
          budgetMs,
        );
      }),
    );
  });

  it("refuse with status, JSON body in the error shape, code header and retry-after", () => {
    for (const code of REJECTION_CODES) {
      const rejection = reject(code, "what “and” why\n", { retryAfterS: 7 });
      const reply = decodeReply(refusalReply(rejection)).immediate_response;
      expect(reply?.status.code).to.equal(rejection.status);
      expect(headersOf(reply?.headers?.set_headers)).to.deep.equal({
        "content-type": "application/json",
        "x-weir-error-code": code,
        "retry-after": "7",
        ...(code === "scheduler_preempted" ? { "x-weir-preempted": "true" } : {}),
      });
      const body = JSON.parse(reply?.body?.toString() ?? "") as { error: Record<string, unknown> };
      expect(Object.keys(body)).to.deep.equal(["error"]);
      expect(body.error).to.include({ code, message: "what “and” why\n", param: null });
      expect(body.error["type"]).to.be.a("string");
    }
  });

  it("carry no retry-after where the refusal has none, and allow for a wrong method", () => {
    const headers = headersOf(
      decodeReply(
        refusalReply(reject("method_not_allowed", "no", { headers: [["allow", "POST"]] })),
      ).immediate_response?.headers?.set_headers,
    );
    expect(headers).to.deep.equal({
      "content-type": "application/json",
      "x-weir-error-code": "method_not_allowed",
      allow: "POST",
    });
  });

  it("C4 queue full and timeout are 429, preempted is 503 with Retry-After 1 and its header, a client that left 499", () => {
    const answer = (code: RejectionCode): [number | undefined, Record<string, string>] => {
      const reply = decodeReply(refusalReply(reject(code, ""))).immediate_response;
      return [reply?.status.code, headersOf(reply?.headers?.set_headers)];
    };
    expect(answer("scheduler_queue_full")[0]).to.equal(429);
    expect(answer("scheduler_queue_timeout")[0]).to.equal(429);
    expect(answer("scheduler_client_cancelled")[0]).to.equal(499);
    const [status, headers] = answer("scheduler_preempted");
    expect(status).to.equal(503);
    expect(headers).to.include({ "retry-after": "1", "x-weir-preempted": "true" });
  });

  it("C5 carries the estimate as Retry-After, and none of its own where there is no estimate", () => {
    const headers = (code: RejectionCode, retryAfterS?: number): Record<string, string> =>
      headersOf(
        decodeReply(
          refusalReply(reject(code, "", retryAfterS === undefined ? {} : { retryAfterS })),
        ).immediate_response?.headers?.set_headers,
      );
    expect(headers("scheduler_queue_full", 23)["retry-after"]).to.equal("23");
    expect(headers("scheduler_queue_timeout", 7)["retry-after"]).to.equal("7");
    const bare = headers("scheduler_queue_full");
    expect(bare).to.not.have.any.keys("retry-after", "x-weir-preempted");
  });

  it("give each refusal the status of the table: 429 contended, 503 none, 4xx the request", () => {
    const statuses = Object.fromEntries(
      REJECTION_CODES.map((code) => [code, reject(code, "").status]),
    );
    expect(statuses).to.deep.equal({
      adaptive_admission_saturated: 429,
      invalid_capacity_credit: 400,
      capacity_credit_unknown: 409,
      capacity_credit_binding_mismatch: 409,
      capacity_credit_expired: 409,
      capacity_credit_already_redeemed: 409,
      capacity_credit_cancelled: 409,
      capacity_credit_required: 429,
      capacity_credit_internal: 500,
      invalid_request: 400,
      invalid_path: 400,
      unknown_path: 404,
      model_not_found: 404,
      method_not_allowed: 405,
      body_too_large: 413,
      scheduler_queue_full: 429,
      scheduler_queue_timeout: 429,
      rate_limited: 429,
      scheduler_client_cancelled: 499,
      scheduler_preempted: 503,
      no_worker: 503,
      draining: 503,
      internal_error: 503,
    });
  });
});

// Goal: every error a client can meet has one shape, whoever makes it: Weir's refusals, and Envoy's
// own answers when a request is too slow or too large, when Weir is away, or when a worker breaks.
// A worker's own error is the worker's, and passes as it is.
import { expect } from "chai";
import { expectError, sendChat } from "../support/chat.js";
import { open, request } from "../support/http-client.js";
import { exchangeRaw } from "../support/raw-http.js";
import { chatBody, JSON_HEADERS, startStack, type Stack } from "../support/stack.js";

const BODY_LIMIT_BYTES = 65_536;
const CHAT = "/v1/chat/completions";

describe("the shape of errors through Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      config: {
        envoy: { request_timeout: "1s" },
        limits: { body_limit_bytes: BODY_LIMIT_BYTES },
        scheduler: { max_concurrent_requests: 1, queue_size: 1, queue_timeout_secs: 1 },
        // A worker that is made to fail here must stay in use for the next test.
        breaker: { consecutive_failures: 1_000, window_requests: 1_000 },
        health: { interval_secs: 1, timeout_secs: 0.5, failure_threshold: 1 },
      },
    });
  });
  after(() => stack.stop());
  beforeEach(async () => {
    await stack.idle();
    stack.clear();
  });

  const post = (
    body: string | Uint8Array,
    headers: readonly (readonly [string, string])[] = JSON_HEADERS,
  ): ReturnType<typeof request> => request({ port: stack.port, path: CHAT, headers, body });

  describe("Weir's own", () => {
    it("400 for a body that is no JSON", async () => {
      expectError(await post("{"), { status: 400, code: "invalid_request" });
    });

    it("400 for a request without a body", async () => {
      const answer = await request({ port: stack.port, method: "POST", path: CHAT });
      expectError(answer, { status: 400, code: "invalid_request" });
    });

    it("400 for a compressed body", async () => {
      const answer = await post(chatBody(), [...JSON_HEADERS, ["content-encoding", "gzip"]]);
      expectError(answer, { status: 400, code: "invalid_request" });
    });

    it("404 for an unknown model, whose hostile name does not break the JSON", async () => {
      const model = '"},{\n\u0000<script>\u2028é';
      const message = expectError(await post(chatBody({ model })), {
        status: 404,
        code: "model_not_found",
      });
      expect(message).to.include(model);
    });

    it("413 one byte over the limit, and none at the limit", async () => {
      const padded = (bytes: number): string => {
        const body = chatBody({ user: "" });
        return body.replace('"user":""', `"user":"${"u".repeat(bytes - body.length)}"`);
      };
      const message = expectError(await post(padded(BODY_LIMIT_BYTES + 1)), {
        status: 413,
        code: "body_too_large",
      });
      expect(message).to.include("65537").and.include("65536");
      expect((await post(padded(BODY_LIMIT_BYTES))).status).to.equal(200);
    });

    it("429 for a queue that is full, and for a wait that is over", async () => {
      const chunked = [...JSON_HEADERS, ["x-mock", "hang"], ["transfer-encoding", "chunked"]];
      const holder = open({
        port: stack.port,
        method: "POST",
        path: CHAT,
        headers: chunked as [string, string][],
      });
      holder.write(chatBody());
      holder.end();
      await stack.until("the slot is taken", () => stack.held()["inFlight"] === 1);
      const waiting = sendChat(stack);
      await stack.until("one waits", () => stack.held()["queued"] === 1);
      const full = await sendChat(stack);
      expectError(full, { status: 429, code: "scheduler_queue_full", retryAfter: "1" });
      expectError(await waiting, {
        status: 429,
        code: "scheduler_queue_timeout",
        retryAfter: "1",
      });
      holder.abort();
      await holder.answer;
    });

    it("503 while it drains", async () => {
      const other = await startStack({ workers: 1 });
      try {
        other.app.desk.drain();
        expectError(await sendChat(other), { status: 503, code: "draining", retryAfter: "1" });
      } finally {
        await other.stop();
      }
    });
  });

  describe("Envoy's own", () => {
    it("408 for a request that is not sent to its end", async () => {
      const answer = await exchangeRaw(
        stack.port,
        `POST ${CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{`,
      );
      if (answer === undefined) throw new Error("no answer");
      expectError(answer, { status: 408, code: "request_timeout" });
      const [record] = await stack.settlements(1);
      expect(record).to.deep.include({ outcome: "pre_admission_interrupted", status: 408 });
    });

    it("408 for headers that are not sent to their end", async () => {
      const answer = await exchangeRaw(stack.port, `POST ${CHAT} HTTP/1.1\r\nhost: a\r\n`);
      if (answer === undefined) throw new Error("no answer");
      expectError(answer, { status: 408, code: "request_timeout" });
    });

    it("400 for a request without a host", async () => {
      const answer = await exchangeRaw(stack.port, `POST ${CHAT} HTTP/1.1\r\n\r\n`);
      if (answer === undefined) throw new Error("no answer");
      expectError(answer, { status: 400, code: "invalid_request" });
    });

    it("413 for a body of no announced length that is far over the limit", async () => {
      // Envoy's buffer stands 1 MiB above Weir's limit.
      const headers = [...JSON_HEADERS, ["transfer-encoding", "chunked"]] as [string, string][];
      const answer = await post(Buffer.alloc(1_048_576 + 2 * BODY_LIMIT_BYTES, " "), headers);
      expectError(answer, { status: 413, code: "body_too_large" });
      const [record] = await stack.settlements(1);
      expect(record).to.deep.include({ admitted: false, status: 413 });
    });

    it("503 for a worker that breaks off before it answers", async () => {
      const answer = await sendChat(stack, [["x-mock", "reset=before"]]);
      expectError(answer, { status: 503, code: "worker_failed" });
      const [record] = await stack.settlements(1);
      expect(record).to.deep.include({ outcome: "http_5xx", rejection: undefined, status: 503 });
    });

    it("503 for a worker that cannot be connected to", async () => {
      const other = await startStack({ workers: 1 });
      try {
        await Promise.all(other.workers.map((worker) => worker.close(0)));
        const answer = await sendChat(other);
        expectError(answer, { status: 503, code: "worker_failed" });
        const [record] = await other.settlements(1);
        expect(record?.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
      } finally {
        await other.stop();
      }
    });

    it("429 of an operator's own filter before Weir", async () => {
      const filter = {
        name: "envoy.filters.http.fault",
        typed_config: {
          "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
          abort: { http_status: 429, percentage: { numerator: 100 } },
        },
      };
      const other = await startStack({
        workers: 1,
        config: { envoy: { http_filters_before: [filter] } },
      });
      try {
        expectError(await sendChat(other), { status: 429, code: "refused_by_envoy" });
        expect(other.settled).to.deep.equal([]);
      } finally {
        await other.stop();
      }
    });
  });

  describe("a worker's own", () => {
    for (const status of [400, 404, 429, 500, 503]) {
      it(`${String(status)} passes as it is`, async () => {
        const answer = await sendChat(stack, [["x-mock", `status=${String(status)}`]]);
        expect(answer.status).to.equal(status);
        expect(answer.headers).to.not.have.property("x-weir-error-code");
        const body = JSON.parse(answer.body.toString("utf8")) as { error: { code: unknown } };
        expect(body.error.code).to.equal(status);
        const [record] = await stack.settlements(1);
        expect(record).to.deep.include({ status, rejection: undefined });
      });
    }
  });
});

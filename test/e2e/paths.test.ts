// Goal: only the paths of the allow-list reach a worker, and only in their plain spelling. Engines
// serve administration beside inference, so every other spelling and method is refused before a
// worker sees anything. Nothing is normalized on the way: Envoy hands the path on as it was sent, and
// Weir refuses it. Method: bytes on a socket, because HTTP clients clean paths up.
import { expect } from "chai";
import { expectError, forgetSeen, seenByWorkers } from "../support/chat.js";
import { request } from "../support/http-client.js";
import { exchangeRaw, type RawAnswer } from "../support/raw-http.js";
import { chatBody, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const CHAT = "/v1/chat/completions";
const BODY = chatBody();

describe("paths through Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.stop());
  beforeEach(async () => {
    await stack.idle();
    stack.clear();
    await forgetSeen(stack);
  });

  /** Sends a chat body to a target that stands in the request line as it is. */
  function send(method: string, target: string): Promise<RawAnswer | undefined> {
    const head = [
      `${method} ${target} HTTP/1.1`,
      "host: weir.test",
      "connection: close",
      "content-type: application/json",
      `content-length: ${String(BODY.length)}`,
    ];
    return exchangeRaw(stack.port, `${head.join("\r\n")}\r\n\r\n${BODY}`);
  }

  async function answerTo(method: string, target: string): Promise<RawAnswer> {
    const answer = await send(method, target);
    if (answer === undefined) throw new Error(`no answer to ${method} ${target}`);
    return answer;
  }

  async function expectUntouched(): Promise<void> {
    await stack.idle();
    expect(seenByWorkers(stack)).to.deep.equal([]);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    for (const record of stack.settled) {
      expect(record).to.deep.include({ admitted: false, outcome: "rejected" });
    }
  }

  describe("an inference path in another spelling is refused with 400 invalid_path", () => {
    const byWeir = [
      "/v1/chat/%63ompletions",
      "/v1/chat/completion%73",
      "/%76%31/chat/completions",
      "/v1/chat/completions%20",
      "/v1/chat/completions%00",
      "/v1/chat/%2e%2e/chat/completions",
      "/v1//chat/completions",
      "//v1/chat/completions",
      "/v1/chat/completions//",
      "/v1/chat/completions;x",
      "/v1/chat/completions;x=1?y=2",
      "/v1;a=b/chat/completions",
      "/v1/./chat/completions",
      "/v1/chat/../chat/completions",
      "/v1/chat/completions/.",
      "/v1/chat/completions/../../flush_cache",
      "/v1/chat/completions/../../../flush_cache",
      "/v1/models/../../flush_cache",
      "/v1/chat/completions;x=../../../flush_cache",
      "/v1\\chat\\completions",
      "/v1/chat/completions\\..\\..\\..\\flush_cache",
      "/healthz/../flush_cache",
      "//healthz",
      "http://elsewhere.test/v1//chat/completions",
    ];
    for (const target of byWeir) {
      it(target, async () => {
        const message = expectError(await answerTo("POST", target), {
          status: 400,
          code: "invalid_path",
        });
        expect(message).to.include("is not accepted");
        await expectUntouched();
      });
    }

    const byEnvoy = [
      "/v1/chat%2fcompletions",
      "/v1%2Fchat/completions",
      "/v1%5cchat%5ccompletions",
      "/v1/models/..%2f..%2fflush_cache",
      "/v1/chat/completions#x",
      "/v1/chat/completions#/../../flush_cache",
    ];
    for (const target of byEnvoy) {
      it(`${target} (by Envoy itself)`, async () => {
        const message = expectError(await answerTo("POST", target), {
          status: 400,
          code: "invalid_path",
        });
        expect(message).to.equal("path_normalization_failed");
        await expectUntouched();
      });
    }
  });

  describe("a path nobody serves, an engine's administration among them, is 404 unknown_path", () => {
    const targets = [
      ...["/flush_cache", "/abort_request", "/reset_prefix_cache", "/metrics", "/health"],
      ...["/mock/state", "/mock/faults", "/v1/loads", "/get_load", "/get_server_info"],
      ...["/v1/load_lora_adapter", "/sleep", "/tokenize", "/docs", "/openapi.json", "/"],
      ...["/V1/chat/completions", "/v1/chat/Completions", "/v1/chat", "/v1/chat/completions/x"],
      ...["/chat/completions", "/v1/chat/completionsx", "/healthz/", "/healthz/x", "/v1/modelsx"],
      "http://elsewhere.test/flush_cache",
      "/flush_cache?x=/v1/chat/completions",
    ];
    for (const target of targets) {
      it(target, async () => {
        for (const method of ["POST", "GET"]) {
          const answer = await answerTo(method, target);
          expectError(answer, { status: 404, code: "unknown_path" });
        }
        await expectUntouched();
      });
    }

    it("OPTIONS * (by Envoy itself)", async () => {
      const answer = await answerTo("OPTIONS", "*");
      expectError(answer, { status: 404, code: "unknown_path" });
      await expectUntouched();
    });

    it("CONNECT to another port, which makes no tunnel", async () => {
      const admin = `127.0.0.1:${String(stack.config.envoy.admin_port)}`;
      const answer = await exchangeRaw(
        stack.port,
        `CONNECT ${admin} HTTP/1.1\r\nhost: ${admin}\r\n\r\nGET /stats HTTP/1.1\r\nhost: a\r\n\r\n`,
      );
      if (answer === undefined) throw new Error("no answer to CONNECT");
      expectError(answer, { status: 404, code: "unknown_path" });
      await expectUntouched();
    });
  });

  describe("the wrong method is 405 with the allowed ones", () => {
    for (const method of ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]) {
      it(`${method} on an inference path`, async () => {
        const answer = await answerTo(method, CHAT);
        expectError(answer, { status: 405, code: "method_not_allowed" });
        expect(answer.headers.allow).to.equal("POST");
        await expectUntouched();
      });
    }

    for (const method of ["POST", "PUT", "DELETE", "OPTIONS"]) {
      it(`${method} on a pass-through path`, async () => {
        for (const path of ["/v1/models", "/v1/models/demo", "/version"]) {
          const answer = await answerTo(method, path);
          expectError(answer, { status: 405, code: "method_not_allowed" });
          expect(answer.headers.allow).to.equal("GET, HEAD");
        }
        await expectUntouched();
      });
    }

    it("HEAD on an inference path, which has no body to answer with", async () => {
      const answer = await request({ port: stack.port, method: "HEAD", path: CHAT });
      expect(answer.status).to.equal(405);
      expect(answer.headers["x-weir-error-code"]).to.equal("method_not_allowed");
      expect(answer.headers.allow).to.equal("POST");
      await expectUntouched();
    });
  });

  describe("an upgrade of the connection is refused", () => {
    for (const [method, path] of [
      ["GET", "/v1/models"],
      ["POST", CHAT],
    ] as const) {
      it(`${method} ${path}`, async () => {
        const answer = await exchangeRaw(
          stack.port,
          `${method} ${path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`,
        );
        if (answer === undefined) throw new Error("no answer to the upgrade");
        expectError(answer, { status: 403, code: "forbidden" });
        expect(seenByWorkers(stack)).to.deep.equal([]);
      });
    }
  });

  describe("a request that Envoy cannot parse ends its connection and leaves nothing", () => {
    const malformed: Readonly<Record<string, string>> = {
      "no HTTP at all": "BLAH\r\n\r\n",
      "an unknown method": `FOO ${CHAT} HTTP/1.1\r\nhost: a\r\n\r\n`,
      "a byte above ASCII in the path":
        "POST /v1/chat/compl\u00e9tions HTTP/1.1\r\nhost: a\r\n\r\n",
      "a blank in the path": "POST /v1/chat/completions /x HTTP/1.1\r\nhost: a\r\n\r\n",
      "two different lengths": `POST ${CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello`,
      "a length beside chunks": `POST ${CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
    };
    for (const [what, text] of Object.entries(malformed)) {
      it(what, async () => {
        const answer = await exchangeRaw(stack.port, text);
        // Envoy closes the connection before ext_proc lets its 400 pass.
        expect([undefined, 400]).to.include(answer?.status);
        expect(seenByWorkers(stack)).to.deep.equal([]);
        expect(stack.settled).to.deep.equal([]);
        expect(stack.held()).to.deep.equal(NOTHING_HELD);
        expect((await answerTo("POST", CHAT)).status).to.equal(200);
      });
    }
  });

  describe("what is served", () => {
    it("an inference path with a query, which the worker sees unchanged", async () => {
      const answer = await answerTo("POST", `${CHAT}?api-version=1&x=%2F..%2F//;`);
      expect(answer.status).to.equal(200);
      const [seen] = seenByWorkers(stack);
      expect(seen?.path).to.equal(`${CHAT}?api-version=1&x=%2F..%2F//;`);
    });

    it("an inference path behind an absolute target, by its path alone", async () => {
      const answer = await answerTo("POST", `http://elsewhere.test${CHAT}`);
      expect(answer.status).to.equal(200);
      expect(seenByWorkers(stack)[0]?.path).to.equal(CHAT);
    });

    for (const path of ["/v1/models", "/v1/models/demo", "/version", "/v1/models?limit=1"]) {
      it(`GET and HEAD of ${path}, past admission and free of charge`, async () => {
        for (const method of ["GET", "HEAD"]) {
          const answer = await request({ port: stack.port, method, path });
          expect(answer.status).to.equal(200);
          expect(answer.body.length > 0).to.equal(method === "GET");
        }
        const records = await stack.settlements(2);
        for (const record of records) {
          expect(record).to.deep.include({
            endpoint: "pass_through",
            admitted: false,
            outcome: "success",
            charge: undefined,
          });
        }
        expect(seenByWorkers(stack)).to.have.length(2);
      });
    }

    it("/healthz is Envoy's own 200: Weir decides nothing about it", async () => {
      for (const method of ["GET", "HEAD", "POST"]) {
        const answer = await request({ port: stack.port, method, path: "/healthz?verbose" });
        expect([answer.status, answer.body.length]).to.deep.equal([200, 0]);
      }
      expect(stack.settled).to.deep.equal([]);
      expect(seenByWorkers(stack)).to.deep.equal([]);
    });
  });
});

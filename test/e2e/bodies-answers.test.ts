// Goal: Weir reads the usage of every answer and changes nothing of it, compressed or not. Method: a
// worker that gives the same bytes each time; the answer that came through Envoy and Weir is held
// against the one that came straight from the worker.
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { expect } from "chai";
import {
  cut,
  startFixedWorker,
  type FixedAnswer,
  type FixedWorker,
} from "../support/fixed-worker.js";
import { request, type Answer } from "../support/http-client.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const TOKENS = 12_345;
const ESTIMATE = 4;
/** Long enough for several pieces and for the codings to matter. */
const ANSWER_JSON = JSON.stringify({
  choices: [
    { index: 0, message: { role: "assistant", content: "Wehr über dem Fluß ".repeat(500) } },
  ],
  usage: { prompt_tokens: 9, completion_tokens: TOKENS, total_tokens: 9 + TOKENS },
});
const event = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
const ANSWER_SSE = [
  event({ choices: [{ index: 0, delta: { role: "assistant", content: "" } }] }),
  ...Array.from({ length: 30 }, (_, word) =>
    event({ choices: [{ index: 0, delta: { content: `Wörter ${String(word)}` } }], usage: null }),
  ),
  event({ choices: [], usage: { prompt_tokens: 9, completion_tokens: TOKENS } }),
  "data: [DONE]\n\n",
].join("");

const CODINGS = {
  gzip: (text: string): Buffer => gzipSync(text),
  br: (text: string): Buffer => brotliCompressSync(text),
  deflate: (text: string): Buffer => deflateSync(text),
} as const;
/** Headers that belong to one connection, or to Envoy as a server. */
const OF_THE_HOP = ["connection", "keep-alive", "date", "server", "x-envoy-upstream-service-time"];

describe("an answer that came through Weir", () => {
  let worker: FixedWorker;
  let stack: Stack;
  before(async () => {
    worker = await startFixedWorker();
    stack = await startStack({
      workers: 0,
      config: {
        workers: [{ url: worker.url, cluster: "worker_1", models: ["demo"] }],
        fair_share: { default_output_tokens: ESTIMATE },
      },
    });
  });
  after(async () => {
    await stack.stop();
    await worker.close();
  });
  beforeEach(() => {
    stack.clear();
  });

  const ask = (port: number): Promise<Answer> =>
    request({
      port,
      path: "/v1/chat/completions",
      headers: [...JSON_HEADERS, ["accept-encoding", "gzip, br, deflate"]],
      body: chatBody(),
    });

  const ownHeaders = ({ headers }: Answer): object =>
    Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_THE_HOP.includes(name)));

  /** Asks with and without Weir and holds the answers equal; gives the settled charge. */
  async function expectUnchanged(answer: FixedAnswer): Promise<object | undefined> {
    worker.answer = answer;
    const straight = await ask(worker.port);
    const through = await ask(stack.port);
    expect(through.status).to.equal(straight.status);
    expect(through.complete).to.equal(true);
    expect(through.body.equals(straight.body), "the same bytes").to.equal(true);
    expect(ownHeaders(through)).to.deep.equal(ownHeaders(straight));
    await stack.settlements(1);
    await stack.idle();
    expect(stack.settled).to.have.length(1);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    return stack.settled[0]?.charge;
  }

  const OBSERVED = { kind: "observed", tokens: TOKENS, clockTokens: TOKENS };

  it("keeps the content-length and the bytes of JSON", async () => {
    const body = Buffer.from(ANSWER_JSON);
    const headers = { "content-type": "application/json", "content-length": body.length };
    const charge = await expectUnchanged({ status: 200, headers, pieces: cut(body, 1_000) });
    expect(charge).to.deep.equal(OBSERVED);
  });

  it("keeps the bytes of JSON without a content-length", async () => {
    const headers = { "content-type": "application/json" };
    const pieces = cut(Buffer.from(ANSWER_JSON), 999);
    expect(await expectUnchanged({ status: 200, headers, pieces })).to.deep.equal(OBSERVED);
  });

  it("keeps the bytes of a stream cut anywhere, also inside a character", async () => {
    const headers = { "content-type": "text/event-stream" };
    const pieces = cut(Buffer.from(ANSWER_SSE), 7);
    expect(await expectUnchanged({ status: 200, headers, pieces })).to.deep.equal(OBSERVED);
  });

  for (const [coding, compress] of Object.entries(CODINGS)) {
    it(`in ${coding} keeps its bytes, coding and content-length, and its usage is read`, async () => {
      const body = compress(ANSWER_JSON);
      const headers = {
        "content-type": "application/json",
        "content-encoding": coding,
        "content-length": body.length,
      };
      const charge = await expectUnchanged({ status: 200, headers, pieces: cut(body, 100) });
      expect(charge).to.deep.equal(OBSERVED);
      expect(stack.settled[0]).to.deep.include({ outcome: "success", promptTokens: 9 });
    });

    it(`as a stream in ${coding} keeps its bytes and its coding, and its usage is read`, async () => {
      const headers = { "content-type": "text/event-stream", "content-encoding": coding };
      const pieces = cut(compress(ANSWER_SSE), 7);
      expect(await expectUnchanged({ status: 200, headers, pieces })).to.deep.equal(OBSERVED);
    });
  }

  it("in a coding nobody knows passes too, at the estimate", async () => {
    const headers = { "content-type": "application/json", "content-encoding": "rot13" };
    const charge = await expectUnchanged({
      status: 200,
      headers,
      pieces: [Buffer.from(ANSWER_JSON)],
    });
    expect(charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
  });

  it("that says gzip and is not passes too, at the estimate", async () => {
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    const charge = await expectUnchanged({
      status: 200,
      headers,
      pieces: [Buffer.from(ANSWER_JSON)],
    });
    expect(charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
  });

  it("of 204 with a content-encoding and no body passes and is settled", async () => {
    const headers = { "content-encoding": "gzip" };
    const charge = await expectUnchanged({ status: 204, headers, pieces: [] });
    expect(charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
  });

  it("with an empty body and a content-encoding passes and is settled", async () => {
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    const charge = await expectUnchanged({ status: 200, headers, pieces: [] });
    expect(charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
  });

  it("of status 500 with usage is http_5xx for its status and charged for its usage", async () => {
    const headers = { "content-type": "application/json" };
    const pieces = [Buffer.from(ANSWER_JSON)];
    expect(await expectUnchanged({ status: 500, headers, pieces })).to.deep.equal(OBSERVED);
    expect(stack.settled[0]).to.deep.include({ outcome: "http_5xx", status: 500 });
  });

  it("was asked for without accept-encoding", async () => {
    worker.answer = { status: 200, headers: { "content-type": "application/json" }, pieces: [] };
    const before = worker.seen.length;
    await ask(stack.port);
    const seen = worker.seen.slice(before);
    expect(seen).to.have.length(1);
    expect(seen[0]).to.include({ "content-type": "application/json" });
    expect(seen[0]).to.not.have.any.keys("accept-encoding", "x-weir-cluster", "x-weir-peer");
    await stack.settlements(1);
  });
});

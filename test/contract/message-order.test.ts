// Messages in every order a real Envoy, another proxy or an attacker on the socket can produce. Goal:
// each gets the right reply, a refusal or a stream error; none hangs, crashes the server, or lets a
// request pass that nobody decided about.

import { expect } from "chai";
import { createRng, type Rng } from "../../extproc/core/model/rng.js";
import {
  describeTransports,
  inParallel,
  NOTHING_HELD,
  replyKind,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  responseTrailers,
  type ExtProcClient,
  type ProcessStream,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";
import { encodeRequest } from "../support/oracle.js";

const USAGE = '{"usage":{"prompt_tokens":9,"completion_tokens":37}}';
const INTERNAL = "refuse 503 internal_error";
const FUZZ_STREAMS = 500;
const FUZZ_SEED = 20_240_601;

describeTransports("messages of a stream", (start) => {
  let weir: WeirUnderTest;
  let client: ExtProcClient;

  before(async () => {
    weir = await start();
    client = weir.client();
  });
  beforeEach(() => {
    weir.clear();
  });
  after(() => weir.stop());

  /** A whole request works: the server lives on. */
  async function expectAlive(): Promise<void> {
    await weir.idle();
    weir.clear();
    const stream = client.open();
    const kinds = await stream.askAll(
      requestHeaders(),
      requestBody(),
      responseHeaders(),
      responseBody(USAGE, true),
    );
    expect(kinds).to.deep.equal(["request_headers", "route", "read", "response_body"]);
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    const [record] = await weir.settlements(1);
    expect(record?.charge).to.deep.include({ kind: "observed", tokens: 37 });
    weir.clear();
  }

  it("answers a whole request in Envoy's order and settles it once", async () => {
    const stream = client.open();
    const unwanted = ["accept-encoding", "x-weir-tenant-id"];
    const headers = unwanted.map((name) => [name, "gzip"] as const);
    expect(await stream.ask(requestHeaders({ id: "r-77", headers }))).to.equal("request_headers");
    stream.send(requestBody());
    const route = await stream.shape();
    const common = route.request_body?.response;
    const [set] = common?.header_mutation?.set_headers ?? [];
    expect(set?.header.key).to.equal("x-weir-cluster");
    expect(String(set?.header.raw_value)).to.equal("worker_1");
    expect(set?.header.value).to.equal(undefined);
    expect(set?.append_action).to.equal(2);
    expect(common?.clear_route_cache).to.equal(true);
    expect(common?.header_mutation?.remove_headers).to.deep.equal(unwanted);
    expect(route.dynamic_metadata?.fields).to.have.property("weir");
    expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 1, queued: 0 });
    stream.send(responseHeaders());
    expect((await stream.shape()).mode_override).to.deep.equal({
      request_header_mode: 1,
      response_header_mode: 1,
      request_body_mode: 2,
      response_body_mode: 1,
      request_trailer_mode: 2,
      response_trailer_mode: 1,
    });
    expect(await stream.ask(responseBody(USAGE.slice(0, 20)))).to.equal("response_body");
    expect(await stream.ask(responseBody(USAGE.slice(20)))).to.equal("response_body");
    expect(await stream.ask(responseBody("", true))).to.equal("response_body");
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    expect(await weir.settlements(1)).to.have.length(1);
    expect(weir.settled[0]).to.deep.include({
      requestId: "r-77",
      outcome: "success",
      status: 200,
      charge: { kind: "observed", tokens: 37, clockTokens: 37 },
      promptTokens: 9,
    });
    expect(stream.replies).to.have.length(6);
    expect(weir.held()).to.deep.equal(NOTHING_HELD);
  });

  it("ends an answer at its trailers when no body message carried the end", async () => {
    const stream = client.open();
    await stream.askAll(requestHeaders(), requestBody(), responseHeaders(), responseBody(USAGE));
    expect(await stream.ask(responseTrailers())).to.equal("response_trailers");
    await weir.settlements(1);
    expect(weir.settled[0]?.charge).to.deep.include({ kind: "observed", tokens: 37 });
    stream.end();
    await stream.ended;
    expect(weir.settled).to.have.length(1);
  });

  it("decides at the headers when no body follows", async () => {
    const stream = client.open();
    const models = { method: "GET", path: "/v1/models", endOfStream: true };
    expect(await stream.askAll(requestHeaders(models), responseHeaders())).to.deep.equal([
      "route",
      "response_headers",
    ]);
    stream.end();
    await weir.settlements(1);
    expect(weir.settled[0]).to.include({ endpoint: "pass_through", outcome: "success" });
  });

  it("goes on with a stream whose first message is response headers, because an earlier filter answered", async () => {
    const stream = client.open();
    const answered = { status: 401, codeDetails: "jwt_authn_access_denied" };
    expect(
      await stream.askAll(responseHeaders(answered), responseBody("no", true), responseTrailers()),
    ).to.deep.equal(["response_headers", "response_body", "response_trailers"]);
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    expect(weir.settled).to.have.length(0);
    await expectAlive();
  });

  it("cuts a stream that begins with response headers and goes on with garbage, instead of answering 503 over the filter's answer", async () => {
    const stream = client.open();
    await stream.ask(responseHeaders({ status: 401, codeDetails: "jwt_authn_access_denied" }));
    stream.send(Buffer.from([0xff, 0xff]));
    expect((await stream.ended).code).to.equal(13);
    expect(stream.kinds()).to.deep.equal(["response_headers"]);
  });

  it("takes the second response_headers for nothing new", async () => {
    const stream = client.open();
    await stream.askAll(requestHeaders(), requestBody(), responseHeaders());
    expect(await stream.ask(responseHeaders({ status: 504, codeDetails: "x" }))).to.equal(
      "response_headers",
    );
    expect(await stream.ask(responseBody(USAGE, true))).to.equal("response_body");
    await weir.settlements(1);
    expect(weir.settled[0]).to.include({ status: 200, outcome: "success" });
    stream.end();
    await stream.ended;
    expect(weir.settled).to.have.length(1);
  });

  it("goes on after a second request_body of a request that runs already", async () => {
    const stream = client.open();
    await stream.askAll(requestHeaders(), requestBody());
    expect(await stream.ask(requestBody())).to.equal("request_body");
    expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 1, queued: 0 });
    await stream.askAll(responseHeaders(), responseBody(USAGE, true));
    await weir.settlements(1);
    stream.end();
    expect(weir.settled).to.have.length(1);
  });

  const refused: { readonly title: string; readonly messages: readonly (object | Buffer)[] }[] = [
    { title: "a body before the headers", messages: [requestBody()] },
    { title: "request headers twice", messages: [requestHeaders(), requestHeaders()] },
    { title: "an empty message", messages: [Buffer.alloc(0)] },
    { title: "a message of an unknown kind", messages: [Buffer.from([0xa2, 0x06, 0x00])] },
    { title: "request trailers first", messages: [{ request_trailers: {} }] },
    { title: "bytes that are no message", messages: [Buffer.from("GET / HTTP/1.1\r\n\r\n")] },
    {
      title: "truncated request headers",
      messages: [encodeRequest(requestHeaders()).subarray(0, 40)],
    },
    {
      title: "a truncated body",
      messages: [requestHeaders(), encodeRequest(requestBody()).subarray(0, 10)],
    },
  ];
  for (const { title, messages } of refused) {
    it(`answers 503 to ${title}, and lets nothing through`, async () => {
      const stream = client.open();
      for (const message of messages) stream.send(message);
      for (let count = 1; count < messages.length; count += 1) await stream.reply();
      expect(await stream.reply()).to.equal(INTERNAL);
      stream.end();
      expect((await stream.ended).code).to.equal(0);
      await weir.idle();
      expect(weir.settled.map(({ rejection }) => rejection)).to.deep.equal(
        messages.length > 1 ? ["internal_error"] : [],
      );
      await expectAlive();
    });
  }

  it("cuts the stream of a running request at a message that is none, and settles it once", async () => {
    for (const garbage of [Buffer.alloc(0), Buffer.from([0x08]), encodeRequest(requestHeaders())]) {
      weir.clear();
      const stream = client.open();
      await stream.askAll(requestHeaders(), requestBody());
      stream.send(garbage);
      expect((await stream.ended).code).to.equal(13);
      expect(stream.kinds()).to.deep.equal(["request_headers", "route"]);
      await weir.settlements(1);
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]?.charge).to.deep.include({ kind: "interrupted", tokens: 256 });
    }
    await expectAlive();
  });

  it("writes nothing after a refusal, whatever comes", async () => {
    const stream = client.open();
    expect(await stream.ask(requestHeaders({ path: "/flush_cache" }))).to.equal(
      "refuse 404 unknown_path",
    );
    for (const message of [requestBody(), responseHeaders(), responseBody("x", true)]) {
      stream.send(message);
    }
    stream.send(Buffer.from([0xff]));
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    expect(stream.replies).to.have.length(1);
    expect(weir.settled).to.have.length(1);
  });

  it("does not settle its own 429 as an answer when it comes back through the response phase", async () => {
    const stream = client.open();
    expect(await stream.ask(requestHeaders())).to.equal("request_headers");
    expect(await stream.ask(requestBody('{"model":"gpt-9"}'))).to.equal(
      "refuse 404 model_not_found",
    );
    stream.send(responseHeaders({ status: 429, codeDetails: "weir_model_not_found" }));
    stream.send(responseBody(USAGE, true));
    stream.end();
    await stream.ended;
    expect(weir.settled).to.have.length(1);
    expect(weir.settled[0]).to.deep.include({
      outcome: "rejected",
      rejection: "model_not_found",
      status: 404,
      charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
    });
  });

  it("answers messages after the end of an answer and counts none of them", async () => {
    const stream = client.open();
    await stream.askAll(
      requestHeaders(),
      requestBody(),
      responseHeaders(),
      responseBody(USAGE, true),
    );
    await weir.settlements(1);
    const late = [
      responseBody('{"usage":{"completion_tokens":900}}', true),
      responseTrailers(),
      responseHeaders({ status: 500 }),
      requestBody(),
    ];
    expect(await stream.askAll(...late)).to.deep.equal([
      "response_body",
      "response_trailers",
      "response_headers",
      "request_body",
    ]);
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    expect(weir.settled).to.have.length(1);
    expect(weir.held()).to.deep.equal(NOTHING_HELD);
  });

  it(`survives ${String(FUZZ_STREAMS)} hostile streams (seed ${String(FUZZ_SEED)}): each is answered, refused or cut, and none is let through undecided`, async () => {
    const rng = createRng(FUZZ_SEED);
    const scripts = Array.from({ length: FUZZ_STREAMS }, (_none, index) => script(rng, index));
    await inParallel(FUZZ_STREAMS, 25, async (index) => {
      const stream = client.open();
      const messages = scripts[index] ?? [];
      for (const message of messages) stream.send(message);
      stream.end();
      const { code } = await stream.ended;
      expectSound(stream, messages.length, code);
    });
    await weir.idle();
    const ids = weir.settled.map(({ requestId }) => requestId).filter((id) => id.startsWith("f-"));
    expect(new Set(ids).size).to.equal(ids.length);
    expect(ids.length).to.be.greaterThan(FUZZ_STREAMS / 4);
    await expectAlive();
  });
});

/** One to six messages: sound ones in any order, cut ones, bent ones, and noise. */
function script(rng: Rng, index: number): Buffer[] {
  const sound = [
    requestHeaders({ id: `f-${String(index)}` }),
    requestBody(),
    responseHeaders(),
    responseBody(USAGE, true),
    responseTrailers(),
    { request_trailers: {} },
  ].map((message) => encodeRequest(message));
  const length = 1 + rng.below(6);
  const messages: Buffer[] = [];
  for (let count = 0; count < length; count += 1) {
    // Half of the streams begin as Envoy's do, so that the later phases are reached.
    const inOrder = index % 2 === 0 && count < 3;
    const source = Buffer.from(sound[inOrder ? count : rng.below(sound.length)] ?? []);
    const way = rng.below(inOrder ? 10 : 5);
    if (way === 0) messages.push(source.subarray(0, rng.below(source.length + 1)));
    else if (way === 1) {
      for (let bends = 1 + rng.below(4); bends > 0; bends -= 1) {
        source[rng.below(source.length)] = rng.below(256);
      }
      messages.push(source);
    } else if (way === 2) {
      messages.push(Buffer.from(Array.from({ length: rng.below(80) }, () => rng.below(256))));
    } else messages.push(source);
  }
  return messages;
}

/** What must hold of any stream that was half-closed after `sent` messages. */
function expectSound(stream: ProcessStream, sent: number, code: number): void {
  const kinds = stream.replies.map(replyKind);
  const said = `${String(sent)} messages -> status ${String(code)}, ${kinds.join(", ")}`;
  const refusal = kinds.findIndex((kind) => kind.startsWith("refuse"));
  if (refusal >= 0) expect(refusal, said).to.equal(kinds.length - 1);
  else if (code === 0) expect(kinds.length, said).to.equal(sent);
  // Only Weir's own cut is an error; a crash would be another status.
  else expect(code, said).to.equal(13);
  const letGo = kinds.indexOf("request_body");
  if (letGo < 0) return;
  const decided = kinds.findIndex((kind) => kind === "route" || /^re(ad|sponse)/.test(kind));
  expect(decided, said).to.be.within(0, letGo - 1);
}

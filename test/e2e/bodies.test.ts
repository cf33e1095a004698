// Goal: request bodies of every size and kind either pass unchanged or are refused with a clear 413 or
// 400, by Weir up to a mebibyte above its limit and by Envoy beyond. Method: bodies of exact sizes
// through a real Envoy; what arrived is counted at the worker.
import { expect } from "chai";
import { expectError } from "../support/chat.js";
import { open, request, type Answer, type OpenRequest } from "../support/http-client.js";
import { PATIENT_MS } from "../support/slots.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const CHAT = "/v1/chat/completions";
const CHUNKED = [...JSON_HEADERS, ["transfer-encoding", "chunked"]] as const;
const CANCELLED = { kind: "cancelled", tokens: 0, clockTokens: 0 };
/** Big blocks, so that a prompt of 20 MB fits the worker's cache. */
const MOCK = { slots: 100, blockChars: 65_536 };

let stack: Stack;

/** A chat request whose body has exactly this many bytes. */
function bodyOf(bytes: number): string {
  const message = (content: string): string => chatBody({ messages: [{ role: "user", content }] });
  const body = message("x".repeat(bytes - message("").length));
  expect(Buffer.byteLength(body)).to.equal(bytes);
  return body;
}

function send(
  body: string,
  headers: readonly (readonly [string, string])[] = JSON_HEADERS,
): Promise<Answer> {
  return request({ port: stack.port, path: CHAT, headers, body, limitMs: PATIENT_MS });
}

function openChat(headers: readonly (readonly [string, string])[]): OpenRequest {
  return open({ port: stack.port, method: "POST", path: CHAT, headers, limitMs: PATIENT_MS });
}

/** Sizes of the bodies that reached the worker since the last settlement was cleared. */
function arrivedBytes(): readonly number[] {
  return stack.workers[0]?.state().last_requests.map((seen) => seen.body_bytes) ?? [];
}

async function forget(): Promise<void> {
  stack.clear();
  const port = stack.workers[0]?.port ?? 0;
  await request({ port, method: "POST", path: "/mock/reset" });
}

async function expectServed(answer: Answer, bytes: number): Promise<void> {
  expect(answer.status, answer.body.toString("utf8")).to.equal(200);
  expect(arrivedBytes()).to.deep.equal([bytes]);
  await stack.settlements(1);
  await stack.idle();
  expect(stack.settled).to.have.length(1);
  expect(stack.settled[0]).to.deep.include({ outcome: "success" });
}

/** Refused, settled once, at no charge, and no worker has seen it. */
async function expectRefused(answer: Answer, status: number, code: string): Promise<string> {
  const message = expectError(answer, { status, code });
  await stack.settlements(1);
  await stack.idle();
  expect(stack.settled).to.have.length(1);
  expect(stack.settled[0]).to.deep.include({ admitted: false, status, charge: CANCELLED });
  expect(stack.held()).to.deep.equal(NOTHING_HELD);
  expect(arrivedBytes()).to.deep.equal([]);
  return message;
}

describe("a request body within the limit", () => {
  before(async () => {
    stack = await startStack({ workers: 1, mock: MOCK });
  });
  after(() => stack.stop());
  beforeEach(forget);

  it("of 20 MB passes", async () => {
    await expectServed(await send(bodyOf(20_000_000)), 20_000_000);
  });

  for (const bytes of [32_768, 32_769]) {
    it(`of ${String(bytes)} bytes passes: no 413 at 32,768 bytes`, async () => {
      await expectServed(await send(bodyOf(bytes)), bytes);
    });
  }

  it("of 300 kB from 64 clients at once passes: no crash of the heap", async () => {
    const body = bodyOf(300_000);
    const answers = await Promise.all(Array.from({ length: 64 }, () => send(body)));
    expect(answers.map(({ status }) => status)).to.deep.equal(new Array<number>(64).fill(200));
    // The worker remembers its last 50 requests.
    expect(arrivedBytes()).to.deep.equal(new Array<number>(50).fill(300_000));
    await stack.settlements(64);
    await stack.idle();
    expect(stack.settled).to.have.length(64);
  });

  it("passes in chunks without a content-length", async () => {
    const body = bodyOf(200_000);
    const opened = openChat(CHUNKED);
    for (let at = 0; at < body.length; at += 7_001) opened.write(body.slice(at, at + 7_001));
    opened.end();
    await expectServed(await opened.answer, 200_000);
  });

  it("passes when the upload takes longer than Envoy's message timeout of 2 s", async () => {
    const body = bodyOf(5_000);
    const opened = openChat([...JSON_HEADERS, ["content-length", "5000"]]);
    for (let at = 0; at < body.length; at += 1_000) {
      opened.write(body.slice(at, at + 1_000));
      await new Promise((done) => setTimeout(done, 500));
    }
    opened.end();
    await expectServed(await opened.answer, 5_000);
    expect(stack.settled[0]?.durationMs).to.be.greaterThan(2_000);
  });
});

describe("a request body that cannot be taken", () => {
  const limit = 65_536;
  const envoysLimit = limit + 1_048_576;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: MOCK,
      config: { limits: { body_limit_bytes: limit } },
    });
  });
  after(() => stack.stop());
  beforeEach(forget);

  it("does not begin below the limit: exactly limits.body_limit_bytes pass", async () => {
    await expectServed(await send(bodyOf(limit)), limit);
  });

  it("is one byte past the limit, with a content-length: Weir's 413 names both sizes", async () => {
    const message = await expectRefused(await send(bodyOf(limit + 1)), 413, "body_too_large");
    expect(message).to.include("65537").and.to.include("65536");
    expect(stack.settled[0]).to.deep.include({ rejection: "body_too_large", outcome: "rejected" });
  });

  it("is one byte past the limit, in chunks: Weir's 413 as well", async () => {
    const answer = await send(bodyOf(limit + 1), CHUNKED);
    const message = await expectRefused(answer, 413, "body_too_large");
    expect(message).to.include("65537").and.to.include("65536");
    expect(stack.settled[0]).to.deep.include({ rejection: "body_too_large", outcome: "rejected" });
  });

  it("is announced far past the limit: Weir's 413 before any of it is sent", async () => {
    const opened = openChat([...JSON_HEADERS, ["content-length", "1000000000"]]);
    const message = await expectRefused(await opened.answer, 413, "body_too_large");
    expect(message).to.include("1000000000");
  });

  it("is far past the limit, in chunks: Envoy's 413 in the same shape", async () => {
    const opened = openChat(CHUNKED);
    const answered = new AbortController();
    void opened.answer.finally(() => {
      answered.abort();
    });
    const piece = "x".repeat(65_536);
    opened.write(bodyOf(limit).slice(0, -20));
    for (let sent = limit; sent <= envoysLimit && !answered.signal.aborted; sent += piece.length) {
      opened.write(piece);
      await new Promise((done) => setImmediate(done));
    }
    const message = await expectRefused(await opened.answer, 413, "body_too_large");
    expect(message).to.equal("request_payload_too_large");
    expect(stack.settled[0]).to.deep.include({
      outcome: "pre_admission_interrupted",
      rejection: undefined,
      codeDetails: "request_payload_too_large",
    });
  });

  it("is empty: 400 that says what is expected", async () => {
    const message = await expectRefused(await send(""), 400, "invalid_request");
    expect(message).to.include("JSON");
  });

  it("is empty and chunked: 400 as well", async () => {
    const opened = openChat(CHUNKED);
    opened.end();
    await expectRefused(await opened.answer, 400, "invalid_request");
  });

  it("is no JSON object: 400", async () => {
    await expectRefused(await send("[1]"), 400, "invalid_request");
  });

  it("is compressed: 400 that names the coding", async () => {
    const headers = [...JSON_HEADERS, ["content-encoding", "gzip"]] as const;
    const message = await expectRefused(await send(bodyOf(1_000), headers), 400, "invalid_request");
    expect(message).to.include("gzip");
  });
});

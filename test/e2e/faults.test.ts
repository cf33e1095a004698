// Goal: whoever leaves or breaks, at whatever moment, a request is settled exactly once with the right
// kind and charge, the client sees what it should, and nothing stays in slots, queue or live load.
// Method: clients that leave and workers that reset at each phase of a request, through a real Envoy.
// The worker's clock stands still, so that it has produced exactly as many tokens as a test says.
import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { expectError, sendChat, type HeaderLines } from "../support/chat.js";
import { startFixedWorker, type FixedWorker } from "../support/fixed-worker.js";
import { open, request, type Answer } from "../support/http-client.js";
import {
  cancelledAtWorkers,
  occupySlot,
  openStream,
  PACED,
  produceTokens,
  runningAtWorkers,
  startChat,
  untilQueued,
  type StreamingChat,
} from "../support/slots.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

/** Output tokens booked for a request until its usage is known. */
const ESTIMATE = 4;
const CHAT = "/v1/chat/completions";
const CANCELLED = { kind: "cancelled", tokens: 0, clockTokens: 0 };
const AT_ESTIMATE = { kind: "interrupted", tokens: ESTIMATE, clockTokens: ESTIMATE };

let stack: Stack;

async function start(slots: number): Promise<void> {
  stack = await startStack({
    workers: 1,
    mock: PACED,
    config: {
      scheduler: { max_concurrent_requests: slots, queue_size: 10, queue_timeout_secs: 60 },
      fair_share: { default_output_tokens: ESTIMATE },
      // One fault after another: the breaker has a test of its own.
      breaker: { consecutive_failures: 1_000, window_requests: 10_000 },
    },
  });
}

/** The one record there is, once Weir holds nothing any more. */
async function onlySettlement(): Promise<SettlementRecord> {
  await stack.settlements(1);
  await stack.idle();
  expect(stack.held()).to.deep.equal(NOTHING_HELD);
  expect(stack.settled).to.have.length(1);
  const [record] = stack.settled;
  if (record === undefined) throw new Error("there is one record");
  return record;
}

/** Opens a stream of 50 tokens and waits until the worker has it. */
async function startStream(headers: HeaderLines = []): Promise<StreamingChat> {
  const stream = openStream(stack, headers);
  await stack.until("the stream runs", () => runningAtWorkers(stack) === 1);
  return stream;
}

/** What Envoy answers in place of a worker that broke off: one shape, no Retry-After. */
function expectWorkerFailed(answer: Answer): void {
  expect(expectError(answer, { status: 503, code: "worker_failed" })).to.include("upstream_reset");
}

describe("a client that leaves", () => {
  before(() => start(1));
  after(() => stack.stop());
  beforeEach(() => {
    stack.clear();
  });

  it("before its body is complete costs nothing and never reaches a worker", async () => {
    const seen = stack.workers[0]?.state().last_requests.length;
    const opened = open({
      port: stack.port,
      method: "POST",
      path: CHAT,
      headers: [...JSON_HEADERS, ["content-length", "1000"]],
    });
    opened.write('{"model":"demo"');
    await stack.until("Weir knows the request", () => stack.held()["live"] === 1);
    opened.abort();
    expect((await opened.answer).status).to.equal(0);
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "pre_admission_interrupted", admitted: false });
    expect(record).to.deep.include({ worker: undefined, status: undefined, waited: false });
    expect(record.charge).to.deep.equal(CANCELLED);
    expect(stack.workers[0]?.state().last_requests.length).to.equal(seen);
  });

  it("while it is held goes from the queue at once, and the next in line is served", async () => {
    const occupant = await occupySlot(stack);
    const leaver = startChat(stack);
    await untilQueued(stack, 1);
    const next = startChat(stack);
    await untilQueued(stack, 2);
    leaver.abort();
    await untilQueued(stack, 1);
    const [record] = await stack.settlements(1);
    expect(record).to.deep.include({ outcome: "pre_admission_interrupted", admitted: false });
    expect(record).to.deep.include({ waited: true, cutHold: false, worker: undefined });
    expect(record?.charge).to.deep.equal(CANCELLED);
    expect(stack.held()).to.deep.equal({ inFlight: 1, load: 1, live: 2, queued: 1 });

    occupant.abort();
    await stack.until("the next one has the slot", () => stack.held()["queued"] === 0);
    await stack.until("it runs", () => runningAtWorkers(stack) === 1);
    await produceTokens(stack, 5);
    expect((await next.answer).status).to.equal(200);
    await stack.idle();
    expect(stack.settled.map(({ outcome }) => outcome)).to.deep.equal([
      "pre_admission_interrupted",
      "interrupted",
      "success",
    ]);
  });

  it("before the response headers is charged the estimate, and its worker stops", async () => {
    const cancelled = cancelledAtWorkers(stack);
    const opened = await occupySlot(stack);
    opened.abort();
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "interrupted", admitted: true, status: undefined });
    expect(record.charge).to.deep.equal(AT_ESTIMATE);
    await stack.until("the worker stops", () => runningAtWorkers(stack) === 0);
    expect(cancelledAtWorkers(stack)).to.equal(cancelled + 1);
  });

  it("in the middle of a stream is charged what it was sent, and its worker stops", async () => {
    const cancelled = cancelledAtWorkers(stack);
    const streaming = await startStream();
    await produceTokens(stack, 6);
    await stack.until("six tokens arrived", () => streaming.contentEvents() === 6);
    streaming.abort();
    const { status, complete } = await streaming.answer;
    expect({ status, complete }).to.deep.equal({ status: 200, complete: false });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "interrupted", status: 200, stream: true });
    expect(record.charge).to.deep.equal({ kind: "interrupted", tokens: 6, clockTokens: 6 });
    await stack.until("the worker stops", () => runningAtWorkers(stack) === 0);
    expect(cancelledAtWorkers(stack)).to.equal(cancelled + 1);
  });

  it("after few tokens of a stream is charged the estimate, so that leaving saves nothing", async () => {
    const streaming = await startStream();
    await produceTokens(stack, 2);
    await stack.until("two tokens arrived", () => streaming.contentEvents() === 2);
    streaming.abort();
    expect((await onlySettlement()).charge).to.deep.equal(AT_ESTIMATE);
  });

  it("leaves no load behind, a hundred times at each phase", async () => {
    const leave = async (leaver: { abort: () => void }, there: () => boolean): Promise<void> => {
      await stack.until("the client can leave", there);
      leaver.abort();
    };
    const each = 100;
    for (let round = 0; round < each; round += 1) {
      const unfinished = open({
        port: stack.port,
        method: "POST",
        path: CHAT,
        headers: JSON_HEADERS,
      });
      await leave(unfinished, () => stack.held()["live"] === 1);
      await stack.idle();
      await leave(startChat(stack, [["x-mock", "hang"]]), () => runningAtWorkers(stack) === 1);
      await stack.idle();
    }
    await stack.settlements(2 * each);
    const outcomes = stack.settled.map(({ outcome }) => outcome);
    expect(outcomes.filter((one) => one === "pre_admission_interrupted")).to.have.length(each);
    expect(outcomes.filter((one) => one === "interrupted")).to.have.length(each);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    await stack.until("the workers are idle", () => runningAtWorkers(stack) === 0);
  }).timeout(60_000);
});

describe("a worker that breaks off half-way through a JSON answer", () => {
  let worker: FixedWorker;
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

  it("cuts it for the client as well, and the request keeps its estimate", async () => {
    let cutNow = (): void => undefined;
    const cutAfter = new Promise<void>((done) => {
      cutNow = done;
    });
    worker.answer = {
      status: 200,
      headers: { "content-type": "application/json", "content-length": 1_000 },
      pieces: [Buffer.from('{"usage":{"completion_tokens":9},"choices":[')],
      cutAfter,
    };
    const answer = await request({
      port: stack.port,
      path: CHAT,
      headers: JSON_HEADERS,
      body: chatBody(),
      onChunk: () => {
        cutNow();
      },
    });
    expect({ status: answer.status, complete: answer.complete }).to.deep.equal({
      status: 200,
      complete: false,
    });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "interrupted", status: 200, admitted: true });
    expect(record.charge).to.deep.equal(AT_ESTIMATE);
  });
});

describe("a client whose upload does not end in time", () => {
  before(async () => {
    stack = await startStack({ workers: 1, config: { envoy: { request_timeout: "1s" } } });
  });
  after(() => stack.stop());

  it("gets 408 from Envoy in the common shape, is settled once and costs nothing", async () => {
    const slow = open({ port: stack.port, method: "POST", path: CHAT, headers: JSON_HEADERS });
    slow.write('{"model":');
    expectError(await slow.answer, { status: 408, code: "request_timeout" });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "pre_admission_interrupted", status: 408 });
    expect(record.charge).to.deep.equal(CANCELLED);
  });
});

describe("a worker that resets", () => {
  before(() => start(8));
  after(() => stack.stop());
  beforeEach(() => {
    stack.clear();
  });

  it("before its answer gives 503 from Envoy, and the request keeps its estimate", async () => {
    expectWorkerFailed(await sendChat(stack, [["x-mock", "reset=before"]]));
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "http_5xx", status: 503, admitted: true });
    expect(record.codeDetails).to.match(/^upstream_reset_before_response_started/);
    expect(record.charge).to.deep.equal(AT_ESTIMATE);
  });

  it("in the middle of a stream cuts it, and the request is charged what was sent", async () => {
    const streaming = await startStream([["x-mock", "reset=after"]]);
    await produceTokens(stack, 20);
    await stack.until("20 tokens arrived", () => streaming.contentEvents() === 20);
    await produceTokens(stack, 30);
    const { status, complete } = await streaming.answer;
    expect({ status, complete }).to.deep.equal({ status: 200, complete: false });
    // The worker breaks off after half of its 50 tokens.
    const arrived = streaming.contentEvents();
    expect(arrived).to.be.within(20, 25);
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "interrupted", status: 200, stream: true });
    expect(record.charge).to.deep.include({ kind: "interrupted" });
    // Envoy may have seen the cut before it passed the last pieces on, to the client or to Weir.
    expect(record.charge?.tokens).to.be.within(20, 25);
  });

  it("together with its first bytes gives 502 from Envoy, and the request keeps its estimate", async () => {
    const pending = sendChat(stack, [["x-mock", "reset=after"]]);
    await stack.until("it runs", () => runningAtWorkers(stack) === 1);
    await produceTokens(stack, 5);
    const answer = await pending;
    // Envoy has the headers and waits for Weir's word on them when it learns of the reset.
    const message = expectError(answer, { status: 502, code: "worker_failed" });
    expect(message).to.match(/^upstream_reset_after_response_started/);
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "interrupted", admitted: true });
    expect(record.charge).to.deep.equal(AT_ESTIMATE);
  });

  it("that gives up a stream with an error event is charged what was sent", async () => {
    const streaming = await startStream([["x-mock", "error_event"]]);
    await produceTokens(stack, 50);
    const { status, complete } = await streaming.answer;
    expect({ status, complete }).to.deep.equal({ status: 200, complete: true });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "success", status: 200 });
    expect(record.charge).to.deep.equal({ kind: "missing_usage", tokens: 25, clockTokens: 25 });
  });

  it("that answers with an error of its own passes it through unchanged", async () => {
    const answer = await sendChat(stack, [["x-mock", "status=400"]]);
    expect(answer.status).to.equal(400);
    expect(JSON.parse(answer.body.toString("utf8"))).to.deep.equal({
      error: { message: "Injected fault.", type: "BadRequestError", param: null, code: 400 },
    });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "http_4xx", status: 400 });
    expect(record.charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
  });

  it("leaves Weir able to serve the next request", async () => {
    const pending = request({
      port: stack.port,
      path: CHAT,
      headers: JSON_HEADERS,
      body: chatBody(),
    });
    await stack.until("it runs", () => runningAtWorkers(stack) === 1);
    await produceTokens(stack, 5);
    expect((await pending).status).to.equal(200);
    expect((await onlySettlement()).charge).to.deep.include({ kind: "observed", tokens: 5 });
  });
});

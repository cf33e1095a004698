// Goal: a stop loses nothing that can be kept. After SIGTERM new requests are refused by Weir itself,
// the queue is served as long as it may be, running answers are watched to their end, and the exit
// code says whether anything was refused or left. Method: Weir as a process of its own, with one slot
// and a worker whose clock stands still.
import { expect } from "chai";
import { expectError, sendChat } from "../support/chat.js";
import { open } from "../support/http-client.js";
import {
  openStream,
  PACED,
  produceTokens,
  runningAtWorkers,
  startChat,
  type StreamingChat,
} from "../support/slots.js";
import { chatBody, JSON_HEADERS, startStack, type Stack } from "../support/stack.js";
import { startWeir, type WeirProcess } from "../support/weir-process.js";

const DRAINING = { status: 503, code: "draining", retryAfter: "1" };
const CLOSED_BY_GOAWAY = "cluster.ext_proc.upstream_cx_close_notify";

let stack: Stack;
let weir: WeirProcess;

async function start(drainTimeoutSecs: number): Promise<void> {
  stack = await startStack({
    withoutWeir: true,
    workers: 1,
    mock: PACED,
    config: {
      scheduler: { max_concurrent_requests: 1, queue_size: 30, queue_timeout_secs: 60 },
      limits: { drain_timeout_secs: drainTimeoutSecs, shutdown_grace_period_secs: 50 },
    },
  });
}

/** A stream that has its slot and two tokens. */
async function runningStream(): Promise<StreamingChat> {
  const stream = openStream(stack);
  await stack.until("the stream runs", () => runningAtWorkers(stack) === 1);
  await produceTokens(stack, 2);
  await stack.until("two tokens arrived", () => stream.contentEvents() === 2);
  return stream;
}

async function queuedChats(count: number): Promise<ReturnType<typeof startChat>[]> {
  const chats = Array.from({ length: count }, () => startChat(stack));
  await stack.until("they are held", async () => (await weir.held())["queued"] === count);
  return chats;
}

async function terminate(): Promise<void> {
  weir.process.signal("SIGTERM");
  await stack.until("it is not ready", async () => (await weir.readiness()) === 503);
}

async function expectWhole(stream: StreamingChat): Promise<void> {
  const { status, complete, body } = await stream.answer;
  expect({ status, complete }).to.deep.equal({ status: 200, complete: true });
  expect(stream.contentEvents()).to.equal(50);
  expect(body.toString("utf8").trimEnd().endsWith("data: [DONE]")).to.equal(true);
}

/** The last line of the log and the exit code. */
async function ending(): Promise<Record<string, unknown>> {
  const { code, signal } = await weir.process.ended;
  const last = weir.log().at(-1);
  expect(last?.["msg"]).to.equal("stopped");
  return { code, signal, refused: last?.["refused"], unobserved: last?.["unobserved"] };
}

describe("SIGTERM", function () {
  this.timeout(60_000);
  before(() => start(40));
  after(() => stack.stop());
  beforeEach(async () => {
    weir = await startWeir(stack);
  });
  afterEach(() => weir.stop());

  it("with 20 queued and one running: new ones get 503, the rest is served, exit code 0", async () => {
    const stream = await runningStream();
    const queued = await queuedChats(20);
    const goaways = await stack.envoy.stat(CLOSED_BY_GOAWAY);
    await terminate();
    // Weir itself refuses, over the same connection: a GOAWAY would give Envoy's own 503.
    for (let sent = 0; sent < 3; sent += 1) expectError(await sendChat(stack), DRAINING);
    expect(await stack.envoy.stat(CLOSED_BY_GOAWAY)).to.equal(goaways);
    expect(await weir.state()).to.deep.include({ draining: true, ready: false });
    expect((await weir.held())["queued"]).to.equal(20);

    await produceTokens(stack, 48);
    await expectWhole(stream);
    let served = 0;
    for (const { answer } of queued) void answer.then(() => (served += 1));
    await stack.until("the queue is served", async () => {
      await produceTokens(stack, 1);
      return served === 20;
    });
    for (const { answer } of queued) expect((await answer).status).to.equal(200);
    expect(await ending()).to.deep.equal({ code: 0, signal: null, refused: 0, unobserved: 0 });
    const outcomes = weir.settled().map((line) => line["outcome"]);
    expect(outcomes.filter((outcome) => outcome === "success")).to.have.length(21);
    expect(outcomes.filter((outcome) => outcome === "rejected")).to.have.length(3);
    await stack.until(
      "Envoy heard the GOAWAY",
      async () => (await stack.envoy.stat(CLOSED_BY_GOAWAY)) === goaways + 1,
    );
    expectError(await sendChat(stack), { status: 503, code: "weir_unavailable", retryAfter: "1" });
  });

  it("in idleness ends the process at once with exit code 0", async () => {
    weir.process.signal("SIGTERM");
    expect(await ending()).to.deep.equal({ code: 0, signal: null, refused: 0, unobserved: 0 });
  });

  it("is what SIGINT does as well", async () => {
    weir.process.signal("SIGINT");
    expect(await ending()).to.deep.equal({ code: 0, signal: null, refused: 0, unobserved: 0 });
  });

  it("lets a request whose body is still coming in be served", async () => {
    const stream = await runningStream();
    const upload = open({
      port: stack.port,
      method: "POST",
      path: "/v1/chat/completions",
      headers: JSON_HEADERS,
    });
    upload.write(chatBody().slice(0, 10));
    await stack.until("it is known", async () => (await weir.held())["live"] === 2);
    await terminate();
    upload.write(chatBody().slice(10));
    upload.end();
    await stack.until("it is held", async () => (await weir.held())["queued"] === 1);
    await produceTokens(stack, 48);
    await expectWhole(stream);
    await stack.until("it runs", () => runningAtWorkers(stack) === 1);
    await produceTokens(stack, 5);
    expect((await upload.answer).status).to.equal(200);
    expect(await ending()).to.deep.equal({ code: 0, signal: null, refused: 0, unobserved: 0 });
  });

  it("a second time ends the process at once with exit code 3; the answer reaches its client whole", async () => {
    const stream = await runningStream();
    const [queued] = await queuedChats(1);
    await terminate();
    weir.process.signal("SIGTERM");
    expect(await ending()).to.deep.equal({ code: 3, signal: null, refused: 1, unobserved: 1 });
    expectError(await (queued?.answer ?? sendChat(stack)), DRAINING);
    expect(runningAtWorkers(stack)).to.equal(1);
    await produceTokens(stack, 48);
    await expectWhole(stream);
  });
});

describe("a drain whose time is over", function () {
  this.timeout(60_000);
  before(() => start(1));
  after(() => stack.stop());
  beforeEach(async () => {
    weir = await startWeir(stack);
  });
  afterEach(() => weir.stop());

  it("refuses the queue with 503, watches running answers to their end, and exits with 3", async () => {
    const stream = await runningStream();
    const queued = await queuedChats(5);
    await terminate();
    for (const { answer } of queued) expectError(await answer, DRAINING);
    expect(weir.process.end).to.equal(undefined);
    expectError(await sendChat(stack), DRAINING);
    await produceTokens(stack, 48);
    await expectWhole(stream);
    expect(await ending()).to.deep.equal({ code: 3, signal: null, refused: 5, unobserved: 0 });
    const running = weir.settled().filter((line) => line["outcome"] === "success");
    expect(running).to.have.length(1);
    expect(running[0]).to.deep.include({ kind: "missing_usage", stream: true });
  });
});

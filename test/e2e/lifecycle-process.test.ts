// Goal: what happens to Weir's process does as little harm as possible. A process that hangs is given
// up within seconds and comes back without a leak; a process that is killed takes no running answer
// with it, and its successor starts clean. Method: Weir as a process of its own between a real Envoy
// and a worker whose clock stands still, so that answers run for as long as the test wants.
import { expect } from "chai";
import { expectError, sendChat } from "../support/chat.js";
import { openStream, PACED, produceTokens, runningAtWorkers, startChat } from "../support/slots.js";
import { NOTHING_HELD, startStack, type Stack } from "../support/stack.js";
import { startWeir, type WeirProcess } from "../support/weir-process.js";

const AWAY = { status: 503, code: "weir_unavailable", retryAfter: "1" };

describe("Weir as a process", function () {
  this.timeout(60_000);
  let stack: Stack;
  let weir: WeirProcess;
  before(async () => {
    stack = await startStack({
      withoutWeir: true,
      workers: 1,
      mock: PACED,
      config: {
        scheduler: { max_concurrent_requests: 1, queue_size: 10, queue_timeout_secs: 60 },
        fair_share: { default_output_tokens: 4 },
      },
    });
  });
  after(() => stack.stop());
  beforeEach(async () => {
    weir = await startWeir(stack);
  });
  afterEach(() => weir.stop());

  const untilRunning = (count: number): Promise<void> =>
    stack.until(`${String(count)} running`, () => runningAtWorkers(stack) === count);

  const untilHeld = (what: string, expected: Record<string, number>): Promise<void> =>
    stack.until(what, async () => {
      const held = await weir.held();
      return Object.entries(expected).every(([name, count]) => held[name] === count);
    });

  /** A whole answer to one request, while the worker's clock stands still. */
  async function serveOne(): Promise<number> {
    const pending = startChat(stack);
    await untilRunning(1);
    await produceTokens(stack, 5);
    return (await pending.answer).status;
  }

  it("that hangs is given up within seconds, also for a held request, and goes on without a leak", async () => {
    const stream = openStream(stack);
    await untilRunning(1);
    await produceTokens(stack, 2);
    await stack.until("two tokens arrived", () => stream.contentEvents() === 2);
    const held = startChat(stack);
    await untilHeld("one is held", { queued: 1, inFlight: 1 });

    weir.process.signal("SIGSTOP");
    // The hold may last 65 s, a new request waits at most Envoy's message timeout of 2 s.
    const stoppedAt = Date.now();
    const fresh = sendChat(stack);
    await produceTokens(stack, 2);
    expectError(await fresh, AWAY);
    expectError(await held.answer, AWAY);
    // Keep-alive asks every 5 s and waits 2 s for the reply; the rest is a slow machine's.
    expect(Date.now() - stoppedAt).to.be.lessThan(20_000);
    await produceTokens(stack, 46);
    const { status, complete, body } = await stream.answer;
    expect({ status, complete }).to.deep.equal({ status: 200, complete: true });
    expect(body.toString("utf8").trimEnd().endsWith("data: [DONE]")).to.equal(true);
    expect(stream.contentEvents()).to.equal(50);

    weir.process.signal("SIGCONT");
    await untilHeld("nothing is held", NOTHING_HELD);
    expect(await serveOne()).to.equal(200);
    await untilHeld("nothing is held", NOTHING_HELD);
    const ids = (await weir.untilSettled(3)).map((line) => line["request_id"]);
    expect(new Set(ids).size, "each request is settled once").to.equal(ids.length);
    const outcomes = weir.settled().map((line) => line["outcome"]);
    expect(outcomes).to.include.members(["interrupted", "pre_admission_interrupted", "success"]);
    // One request may never have got through to the stopped process.
    expect(outcomes.length).to.be.within(3, 4);
  });

  it("that is killed takes no running answer with it, and the next one starts clean", async () => {
    const stream = openStream(stack);
    await untilRunning(1);
    await produceTokens(stack, 2);
    await stack.until("two tokens arrived", () => stream.contentEvents() === 2);
    await weir.stop();

    for (let sent = 0; sent < 3; sent += 1) expectError(await sendChat(stack), AWAY);
    expect(runningAtWorkers(stack)).to.equal(1);
    weir = await startWeir(stack);
    expect(await weir.held()).to.deep.equal(NOTHING_HELD);
    // The running stream is not known to the new process: its one slot is free.
    const json = startChat(stack);
    await untilRunning(2);
    await weir.stop();
    await produceTokens(stack, 48);

    const streamed = await stream.answer;
    expect([streamed.status, streamed.complete]).to.deep.equal([200, true]);
    expect(stream.contentEvents()).to.equal(50);
    expect(streamed.body.toString("utf8").trimEnd().endsWith("data: [DONE]")).to.equal(true);
    const answered = await json.answer;
    expect([answered.status, answered.complete]).to.deep.equal([200, true]);
    expect(JSON.parse(answered.body.toString("utf8"))).to.deep.nested.include({
      "usage.completion_tokens": 5,
    });

    weir = await startWeir(stack);
    expect(await serveOne(), "the first request after readiness").to.equal(200);
    await untilHeld("nothing is held", NOTHING_HELD);
    expect(await weir.untilSettled(1)).to.have.length(1);
  });

  it("that is killed while it holds a request gives that client an error at once", async () => {
    const stream = openStream(stack);
    await untilRunning(1);
    const held = startChat(stack);
    await untilHeld("one is held", { queued: 1 });
    await weir.stop();
    expectError(await held.answer, AWAY);
    expect(stack.workers[0]?.state().running).to.equal(1);
    await produceTokens(stack, 50);
    expect((await stream.answer).complete).to.equal(true);
    weir = await startWeir(stack);
  });
});

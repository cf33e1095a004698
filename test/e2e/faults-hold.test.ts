// Goal: a held request waits as long as Weir says and not as long as Envoy's message timeout says;
// when Envoy cuts a hold all the same, Weir notices and counts it. Method: Envoy's message timeout is
// 2 s as shipped, the queue timeout 3 s, and a hanging request keeps the only slot.
import { expect } from "chai";
import { expectError } from "../support/chat.js";
import { occupySlot, startChat, startSpread, untilQueued } from "../support/slots.js";
import { NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

/** A little more than Envoy's message timeout of 2 s. */
const PAST_MESSAGE_TIMEOUT_MS = 2_500;

const wait = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

describe("a held request", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      config: {
        scheduler: { max_concurrent_requests: 1, queue_size: 10, queue_timeout_secs: 3 },
      },
    });
  });
  after(() => stack.stop());
  beforeEach(() => {
    stack.clear();
  });

  it("is served after 2.5 s although Envoy's message timeout is 2 s", async () => {
    expect(stack.config.envoy.message_timeout_ms).to.equal(2_000);
    const occupant = await occupySlot(stack);
    const held = startChat(stack);
    await untilQueued(stack, 1);
    await wait(PAST_MESSAGE_TIMEOUT_MS);
    expect(stack.held()["queued"]).to.equal(1);
    occupant.abort();
    expect((await held.answer).status).to.equal(200);
    await stack.settlements(2);
    const record = stack.settled.find(({ waited }) => waited);
    expect(record).to.deep.include({ outcome: "success", cutHold: false });
    expect(record?.queuedMs).to.be.at.least(PAST_MESSAGE_TIMEOUT_MS - 100);
    await stack.idle();
  });

  it("that gets no slot in 3 s gets Weir's 429 with Retry-After, not Envoy's 504", async () => {
    const occupant = await occupySlot(stack);
    const held = startChat(stack);
    const answer = await held.answer;
    const retryAfter = String(answer.headers["retry-after"]);
    expectError(answer, { status: 429, code: "scheduler_queue_timeout", retryAfter });
    expect(Number(retryAfter)).to.be.within(1, 3);
    const [record] = await stack.settlements(1);
    expect(record).to.deep.include({ outcome: "rejected", status: 429, waited: true });
    expect(record).to.deep.include({ rejection: "scheduler_queue_timeout", cutHold: false });
    expect(record?.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
    expect(record?.queuedMs).to.be.at.least(3_000);
    expect(stack.held()).to.deep.equal({ inFlight: 1, load: 1, live: 1, queued: 0 });
    occupant.abort();
    await stack.idle();
  });

  it("is refused at once when the queue is full", async () => {
    const occupant = await occupySlot(stack);
    const held = Array.from({ length: 10 }, () => startChat(stack));
    await untilQueued(stack, 10);
    const refused = await startChat(stack).answer;
    const retryAfter = String(refused.headers["retry-after"]);
    expectError(refused, { status: 429, code: "scheduler_queue_full", retryAfter });
    expect(Number(retryAfter)).to.be.within(1, 3);
    occupant.abort();
    const answers = await Promise.all(held.map(({ answer }) => answer));
    expect(answers.map(({ status }) => status)).to.deep.equal(new Array<number>(10).fill(200));
    await stack.idle();
    expect(stack.settled).to.have.length(12);
  });
});

describe("a hold that Envoy cuts, because its longest hold is shorter than the queue timeout", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      config: {
        scheduler: { max_concurrent_requests: 1, queue_size: 10, queue_timeout_secs: 30 },
      },
      bootstrap: (yaml) => {
        const edited = yaml.replace("max_message_timeout: 35s", "max_message_timeout: 1s");
        if (edited === yaml) throw new Error("the bootstrap has no max_message_timeout of 35 s");
        return edited;
      },
    });
  });
  after(() => stack.stop());

  it("gives 503 with Retry-After and is counted in weir_envoy_cut_hold_total", async () => {
    const occupant = await occupySlot(stack);
    const held = await startSpread(stack, 8);
    await untilQueued(stack, 8);
    for (const { answer } of held) {
      expectError(await answer, { status: 503, code: "weir_unavailable", retryAfter: "1" });
    }
    await stack.settlements(8);
    expect(stack.held()).to.deep.equal({ inFlight: 1, load: 1, live: 1, queued: 0 });
    for (const record of stack.settled) {
      expect(record).to.deep.include({ outcome: "pre_admission_interrupted", waited: true });
      expect(record.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
    }
    // A hold counts as cut when it ends within 100 ms of Envoy's timeout; a busy machine may be
    // late with some of the eight.
    const cut = stack.settled.filter((record) => record.cutHold).length;
    expect(cut).to.be.at.least(1);
    const page = await stack.app.metrics.registry.getSingleMetricAsString(
      "weir_envoy_cut_hold_total",
    );
    expect(page).to.match(new RegExp(`^weir_envoy_cut_hold_total ${String(cut)}$`, "m"));
    occupant.abort();
    await stack.idle();
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
  });

  it("does not count a client that leaves while it is held", async () => {
    stack.clear();
    const occupant = await occupySlot(stack);
    const leaver = startChat(stack);
    await untilQueued(stack, 1);
    leaver.abort();
    const [record] = await stack.settlements(1);
    expect(record).to.deep.include({ outcome: "pre_admission_interrupted", cutHold: false });
    occupant.abort();
    await stack.idle();
  });
});

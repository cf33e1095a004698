// Goal: whatever meets a preemption at the same instant, every client gets one whole answer or has
// left, the settlement says the same as the client saw, and nothing stays held. Method: one slot and
// many tries, each with its moment drawn from a printed seed around the point where the two events
// meet. That point is found by the tries themselves: a try that one side won moves the next one
// towards the other side, so both outcomes are met on a slow machine as well.
import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { forgetSeen } from "../support/chat.js";
import {
  classTable,
  expectAccounted,
  expectEnvoyAtRest,
  expectPreempted,
  expectServed,
  openChat,
  openQueued,
  openRunning,
  untilRunning,
  type OpenChat,
} from "../support/class-chat.js";
import type { Answer } from "../support/http-client.js";
import { seededChance } from "../support/seed.js";
import { startStack, type Stack } from "../support/stack.js";

const TRIES = 80;
/** What the worker of a victim takes for its answer, in milliseconds. */
const WORK_MS = 25;
/** How far a try moves the next one, and how far around it moments are drawn, in milliseconds. */
const STEP_MS = 1;
const SPREAD_MS = 2;
const TOKENS = 3;

const turn = (): Promise<void> => new Promise((done) => setImmediate(done));
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

describe("preemption at the same instant", () => {
  let stack: Stack;
  let sent = 0;
  let someoneLeft = false;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: { slots: 64 },
      config: {
        scheduler: {
          max_concurrent_requests: 1,
          queue_size: 10,
          default_max_class: "system",
          classes: classTable({ interactive: { can_preempt: true } }),
        },
      },
    });
  });
  after(() => stack.stop());
  beforeEach(async () => {
    someoneLeft = false;
    await stack.idle();
    stack.clear();
    await forgetSeen(stack);
  });
  afterEach(async () => {
    await stack.idle();
    await untilRunning(stack, 0);
    // A client that leaves frees its slot before the worker hears of it: Envoy tells Weir first. So
    // the next request may meet the last moments of one whose client has gone, and of no other.
    expect(stack.workers[0]?.state().peak_running).to.be.at.most(someoneLeft ? 2 : 1);
    await expectAccounted(stack, sent);
    await expectEnvoyAtRest(stack);
  });

  function send(chat: Parameters<typeof openChat>[1]): OpenChat {
    sent += 1;
    return openChat(stack, chat);
  }

  async function sendRunning(chat: Parameters<typeof openChat>[1]): Promise<OpenChat> {
    sent += 1;
    return openRunning(stack, chat);
  }

  /** Settlements of this try, by class. */
  async function settledOf(count: number): Promise<ReadonlyMap<string, SettlementRecord>> {
    await stack.idle();
    const records = await stack.settlements(count);
    expect(records).to.have.length(count);
    return new Map(records.map((record) => [record.class, record]));
  }

  function expectWhole(answer: Answer, stream: boolean): void {
    expectServed(answer);
    const text = answer.body.toString("utf8");
    if (stream) expect(text).to.match(/data: \[DONE\]\n\n$/);
    else {
      const { usage } = JSON.parse(text) as { usage: { completion_tokens: number } };
      expect(usage.completion_tokens).to.equal(TOKENS);
    }
  }

  for (const [kind, stream] of [
    ["a JSON answer", false],
    ["a stream", true],
  ] as const) {
    it(`with the first byte of ${kind}: the victim's client gets all of it, or all of a 503`, async () => {
      const chance = seededChance(`first byte of ${kind}`);
      const outcomes = { served: 0, preempted: 0 };
      let delayMs = WORK_MS;
      for (let round = 0; round < TRIES; round += 1) {
        stack.clear();
        const mock = `delay_ms=${String(WORK_MS)},tokens=${String(TOKENS)}`;
        const usage = { stream_options: { include_usage: true } };
        const body = stream ? { stream, ...usage } : {};
        const victim = await sendRunning({ class: "bulk", mock, body });
        await sleep(Math.max(0, delayMs + SPREAD_MS * (2 * chance.unit() - 1)));
        const comer = send({ class: "interactive" });
        const answer = await victim.answer;
        expectServed(await comer.answer);
        const record = (await settledOf(2)).get("bulk");
        if (answer.status === 200) {
          outcomes.served += 1;
          delayMs -= STEP_MS;
          expectWhole(answer, stream);
          const charge = { kind: "observed", tokens: TOKENS, clockTokens: TOKENS };
          expect(record).to.deep.include({ outcome: "success", preemptedBy: undefined, charge });
        } else {
          outcomes.preempted += 1;
          delayMs += STEP_MS;
          expectPreempted(answer);
          const charge = { kind: "cancelled", tokens: 0, clockTokens: 0 };
          const facts = { outcome: "http_5xx", preemptedBy: "interactive", charge };
          expect(record).to.deep.include(facts);
        }
      }
      console.log(`      ${JSON.stringify(outcomes)}`);
      // Tries that all end the same way would not have met the instant.
      expect(outcomes.served).to.be.greaterThan(TRIES / 10);
      expect(outcomes.preempted).to.be.greaterThan(TRIES / 10);
    });
  }

  it("with the victim's client leaving: the one it gives way to is served, and one end is settled", async () => {
    const chance = seededChance("victim leaves");
    someoneLeft = true;
    const ends = new Set<string>();
    for (let round = 0; round < TRIES; round += 1) {
      stack.clear();
      const victim = await sendRunning({ class: "bulk", mock: "hang" });
      await untilRunning(stack, 1);
      const leadMs = 6 * chance.unit() - 3;
      let comer: OpenChat | undefined;
      if (leadMs > 0) {
        comer = send({ class: "interactive" });
        await sleep(leadMs);
        victim.abort();
      } else {
        victim.abort();
        await sleep(-leadMs);
        comer = send({ class: "interactive" });
      }
      const answer = await victim.answer;
      if (answer.status !== 0 && answer.complete) expectPreempted(answer);
      expectServed(await comer.answer);
      const record = (await settledOf(2)).get("bulk");
      const end = record?.preemptedBy === undefined ? "left" : "preempted";
      ends.add(end);
      if (end === "preempted") {
        expect(record?.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
      } else {
        // The worker had begun: the estimate of a client that left stays.
        expect(record).to.deep.include({ outcome: "interrupted", rejection: undefined });
        expect(record?.charge?.kind).to.equal("interrupted");
      }
    }
    expect([...ends]).to.have.members(["left", "preempted"]);
  });

  it("with the preemptor leaving: its victim's slot goes to the next waiter", async () => {
    const chance = seededChance("preemptor leaves");
    someoneLeft = true;
    const ends = { early: 0, unwinding: 0, running: 0 };
    for (let round = 0; round < TRIES; round += 1) {
      stack.clear();
      const holder = await sendRunning({ class: "bulk", mock: "hang" });
      await untilRunning(stack, 1);
      sent += 1;
      const next = await openQueued(stack, { class: "default" });
      const comer = send({ class: "interactive", mock: "hang" });
      while (stack.held()["live"] !== 3) await turn();
      for (let turns = chance.whole(0, 12); turns > 0; turns -= 1) await turn();
      comer.abort();
      await comer.answer;
      const settled = (): SettlementRecord | undefined =>
        stack.settled.find((record) => record.class === "interactive");
      await stack.until("the one that left is settled", () => settled() !== undefined);
      const record = settled();
      if (record?.waited === true) {
        // It had found the slot taken, and so had marked the holder: what it leaves is not lost.
        ends[record.admitted ? "running" : "unwinding"] += 1;
        expectPreempted(await holder.answer);
      } else {
        ends.early += 1;
        holder.abort();
      }
      expectServed(await next.answer);
      await stack.idle();
    }
    console.log(`      ${JSON.stringify(ends)}`);
    expect(ends.unwinding).to.be.greaterThan(0);
  });
});

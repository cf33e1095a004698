// Goal: with the scheduler off, a plain limiter bounds what runs and what waits, with the same error
// answers as ever and without classes or preemption; with the scheduler on, requests per second are
// checked beside the slots. Method: a real Envoy, and a worker that runs whatever it is sent and
// counts how much that was.
import { expect } from "chai";
import { expectError, forgetSeen, seenByWorkers } from "../support/chat.js";
import {
  classTable,
  expectAccounted,
  expectContended,
  expectServed,
  namesAt,
  openChat,
  openQueued,
  openRunning,
  scrape,
  untilRunning,
  type OpenChat,
} from "../support/class-chat.js";
import { startStack, type Stack } from "../support/stack.js";

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Runs tests on one stack that holds nothing and has seen nothing when each of them begins. */
function onStack(title: string, scheduler: object, tests: (stack: () => Stack) => void): void {
  describe(title, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ workers: 1, mock: { slots: 256 }, config: { scheduler } });
    });
    after(() => stack.stop());
    beforeEach(async () => {
      await stack.idle();
      await untilRunning(stack, 0);
      stack.clear();
      await forgetSeen(stack);
    });
    tests(() => stack);
  });
}

async function takeSlots(stack: Stack, count: number): Promise<readonly OpenChat[]> {
  const taken: OpenChat[] = [];
  while (taken.length < count) taken.push(await openRunning(stack, { mock: "hang" }));
  return taken;
}

describe("the limiter through Envoy", () => {
  onStack(
    "with four slots and a queue of two",
    {
      enabled: false,
      max_concurrent_requests: 4,
      rate_limit_tokens_per_second: 0,
      queue_size: 2,
      queue_timeout_secs: 1,
    },
    (stack) => {
      it("L1 a queue of two holds two, and the third is refused", async () => {
        const taken = await takeSlots(stack(), 4);
        const waiting = [await openQueued(stack(), {}), await openQueued(stack(), {})];
        expectContended(await openChat(stack(), {}).answer, "scheduler_queue_full", 1);
        expect(stack().held()).to.include({ inFlight: 4, queued: 2 });
        for (const { abort } of taken) abort();
        for (const { answer } of waiting) expectServed(await answer);
        expect(stack().workers[0]?.state()).to.include({ served: 2, cancelled: 4 });
      });

      it("refuses who waited in vain after the queue timeout", async () => {
        const taken = await takeSlots(stack(), 4);
        const sentAt = performance.now();
        const answer = await openChat(stack(), {}).answer;
        expectContended(answer, "scheduler_queue_timeout", 1);
        expect(performance.now() - sentAt).to.be.within(1_000, 2_000);
        for (const { abort } of taken) abort();
      });

      it("L3 a waiter that left frees its place at once", async () => {
        const taken = await takeSlots(stack(), 4);
        const stays = await openQueued(stack(), {});
        const leaves = await openQueued(stack(), {});
        leaves.abort();
        await stack().until("its place is free", () => stack().held()["queued"] === 1);
        const comes = await openQueued(stack(), {});
        for (const { abort } of taken) abort();
        expectServed(await stays.answer);
        expectServed(await comes.answer);
      });

      it("knows no class: who came first goes first, nobody gives way, no worker sees the header", async () => {
        const taken = await takeSlots(stack(), 4);
        await untilRunning(stack(), 4);
        const first = await openQueued(stack(), { class: "bulk", name: "first" });
        const second = await openQueued(stack(), { class: "system", name: "second" });
        taken[0]?.abort();
        expectServed(await first.answer);
        expectServed(await second.answer);
        expect(stack().workers.flatMap((worker) => namesAt(worker))).to.deep.equal([
          "first",
          "second",
        ]);
        expect(stack().workers[0]?.state()).to.include({ cancelled: 1, running: 3 });
        for (const { headers } of seenByWorkers(stack())) {
          expect(headers).to.not.have.property("x-weir-priority");
        }
        for (const { abort } of taken) abort();
      });
    },
  );

  onStack(
    "with four slots and a long queue",
    {
      enabled: false,
      max_concurrent_requests: 4,
      rate_limit_tokens_per_second: 0,
      queue_size: 200,
      queue_timeout_secs: 20,
    },
    (stack) => {
      it("never runs more than four of a hundred at once, and serves them all", async () => {
        const chats = Array.from({ length: 100 }, () => openChat(stack(), { mock: "delay_ms=10" }));
        for (const { answer } of chats) expectServed(await answer);
        expect(stack().workers[0]?.state()).to.include({ served: 100, peak_running: 4 });
        await stack().idle();
        await expectAccounted(stack(), 100);
      });
    },
  );

  onStack(
    "with two slots and no queue",
    {
      enabled: false,
      max_concurrent_requests: 2,
      rate_limit_tokens_per_second: 0,
      queue_size: 0,
    },
    (stack) => {
      it("L2 a queue of no place lets nobody wait", async () => {
        const taken = await takeSlots(stack(), 2);
        expectContended(await openChat(stack(), {}).answer, "scheduler_queue_full", 60);
        taken[0]?.abort();
        await stack().until("a slot is free", () => stack().held()["inFlight"] === 1);
        expectServed(await openChat(stack(), {}).answer);
        taken[1]?.abort();
      });
    },
  );

  onStack("without a limit", { enabled: false }, (stack) => {
    it("lets everybody through at once", async () => {
      const chats = Array.from({ length: 80 }, () => openChat(stack(), { mock: "hang" }));
      await untilRunning(stack(), 80);
      expect(stack().held()).to.include({ inFlight: 80, queued: 0 });
      for (const { abort } of chats) abort();
      await stack().idle();
      const series = await scrape(stack());
      expect(series("weir_http_admission_limit")).to.equal(-1);
    });
  });
});

describe("the rate check through Envoy", () => {
  onStack(
    "at one request per second",
    {
      max_concurrent_requests: 3,
      rate_limit_tokens_per_second: 1,
      queue_size: 10,
      classes: classTable({}),
    },
    (stack) => {
      it("refuses what comes faster with Retry-After, and serves it when it comes again then", async () => {
        // As many as there are slots may come at once; one token comes back in a second.
        const burst = Array.from({ length: 4 }, () => openChat(stack(), { class: "default" }));
        const answers = await Promise.all(burst.map(({ answer }) => answer));
        const [refused, ...more] = answers.filter(({ status }) => status !== 200);
        if (refused === undefined) throw new Error("nobody was refused");
        expect(more).to.deep.equal([]);
        expectError(refused, { status: 429, code: "rate_limited", retryAfter: "1" });
        expect(refused.headers).to.not.have.property("x-weir-preempted");
        await sleep(Number(refused.headers["retry-after"]) * 1_000);
        expectServed(await openChat(stack(), { class: "default" }).answer);

        await stack().idle();
        await expectAccounted(stack(), 5);
        expect(stack().workers[0]?.state()).to.include({ served: 4 });
        const series = await scrape(stack());
        const checks = "weir_http_rate_limit_total";
        expect(series(checks, { result: "allowed" })).to.equal(4);
        expect(series(checks, { result: "rejected" })).to.equal(1);
        expect(series("weir_rejections_total", { code: "rate_limited" })).to.equal(1);
      });
    },
  );
});

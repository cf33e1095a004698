// Goal: a request that has to give way is answered whole, its worker really stops, and its slot goes
// to the one it gave way to; a request whose answer has begun is never touched. Method: few slots,
// each step confirmed at Weir and at the worker before the next one, so that only one order of events
// is possible. What happens when two events meet stands in preemption-races.test.ts.
import { expect } from "chai";
import { type PriorityClass } from "../../extproc/core/model/priority.js";
import { expectError, forgetSeen } from "../support/chat.js";
import {
  classTable,
  expectContended,
  expectEnvoyAtRest,
  expectPreempted,
  expectServed,
  namesAt,
  openChat,
  openQueued,
  openRunning,
  scrape,
  untilRunning,
  type OpenChat,
} from "../support/class-chat.js";
import type { MockState } from "../../envoy/mock-worker/worker.js";
import { startStack, type Stack } from "../support/stack.js";

/** A victim's client waits for nothing but its answer; this is far above what it takes. */
const SOON_MS = 1_500;
const CANCELLED = { kind: "cancelled", tokens: 0, clockTokens: 0 };
const MAY_PREEMPT = { can_preempt: true };
const STREAM = { stream: true };

interface Setup {
  readonly slots: number;
  readonly classes: Record<string, object>;
  readonly queueSize?: number;
  readonly msPerToken?: number;
}

/** Runs tests on one stack that holds nothing and has seen nothing when each of them begins. */
function onStack(title: string, setup: Setup, tests: (stack: () => Stack) => void): void {
  describe(title, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({
        workers: 1,
        // More slots than Weir gives: whatever runs there at once, Weir has let through at once.
        mock: { slots: 64, msPerToken: setup.msPerToken ?? 0 },
        config: {
          scheduler: {
            max_concurrent_requests: setup.slots,
            queue_size: setup.queueSize ?? 10,
            default_max_class: "system",
            classes: setup.classes,
          },
        },
      });
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

function workerState(stack: Stack): MockState {
  const [worker] = stack.workers;
  if (worker === undefined) throw new Error("the stack has no worker");
  return worker.state();
}

function namesOf(stack: Stack): readonly string[] {
  return stack.workers.flatMap((worker) => namesAt(worker));
}

describe("preemption through Envoy", () => {
  onStack(
    "of a request that has not begun to answer",
    { slots: 1, classes: classTable({ interactive: MAY_PREEMPT, system: MAY_PREEMPT }) },
    (stack) => {
      it("V2 one slot held by bulk: interactive ends it and is served when it has unwound", async () => {
        const victim = await openRunning(stack(), { class: "bulk", mock: "hang", name: "victim" });
        await untilRunning(stack(), 1);
        const sentAt = performance.now();
        const comer = openChat(stack(), { class: "interactive", name: "comer" });
        expectPreempted(await victim.answer);
        expect(performance.now() - sentAt).to.be.below(SOON_MS);
        expectServed(await comer.answer);

        expect(namesOf(stack())).to.deep.equal(["victim", "comer"]);
        // Never two at once: the worker had let go of the victim when the other one came.
        const counts = { cancelled: 1, served: 1, running: 0, peak_running: 1 };
        expect(workerState(stack())).to.include(counts);
        const settled = await stack().settlements(2);
        expect(settled.find((record) => record.class === "bulk")).to.deep.include({
          preemptedBy: "interactive",
          rejection: "scheduler_preempted",
          status: 503,
          outcome: "http_5xx",
          admitted: true,
          charge: CANCELLED,
        });
        expect(settled.find((record) => record.class === "interactive")).to.deep.include({
          preemptedBy: undefined,
          outcome: "success",
          waited: true,
        });
      });

      it("says in the victim's answer to whom it gave way, and counts it once", async () => {
        const before = await scrape(stack());
        const victim = await openRunning(stack(), { class: "bulk", mock: "hang" });
        expectServed(await openChat(stack(), { class: "system" }).answer);
        const answer = await victim.answer;
        const expected = { status: 503, code: "scheduler_preempted", retryAfter: "1" };
        expect(expectError(answer, expected)).to.equal(
          'the request gave way to one of the class "system"',
        );
        await stack().settlements(2);
        const after = await scrape(stack());
        const rise = (name: string, labels: Record<string, string>): number =>
          after(name, labels) - before(name, labels);
        const preemption = "weir_scheduler_preemption_total";
        expect(rise(preemption, { victim_class: "bulk", by_class: "system" })).to.equal(1);
        expect(rise(preemption, {})).to.equal(1);
        const ends = "weir_scheduler_admit_total";
        expect(rise(ends, { class: "bulk", outcome: "preempted" })).to.equal(1);
        expect(rise(ends, { class: "bulk" })).to.equal(1);
        expect(rise(ends, { class: "system", outcome: "admitted" })).to.equal(1);
      });

      it("leaves 50 preemptions in a row without a reset stream, and nothing held", async () => {
        for (let round = 0; round < 50; round += 1) {
          const victim = await openRunning(stack(), { class: "bulk", mock: "hang" });
          await untilRunning(stack(), 1);
          const comer = openChat(stack(), { class: "interactive" });
          expectPreempted(await victim.answer);
          expectServed(await comer.answer);
          await stack().idle();
        }
        expect(workerState(stack())).to.include({ cancelled: 50, served: 50, peak_running: 1 });
        const settled = await stack().settlements(100);
        const victims = settled.filter((record) => record.preemptedBy !== undefined);
        expect(victims).to.have.length(50);
        for (const { charge } of victims) expect(charge).to.deep.equal(CANCELLED);
        await untilRunning(stack(), 0);
        await expectEnvoyAtRest(stack());
      });
    },
  );

  describe("who may end whom", () => {
    type Row = readonly [holder: PriorityClass, comer: PriorityClass, gives: "way" | "no way"];

    function table(rows: readonly Row[], stack: () => Stack): void {
      for (const [holder, comer, gives] of rows) {
        it(`${holder} gives ${gives} to ${comer}`, async () => {
          const first = await openRunning(stack(), { class: holder, mock: "delay_ms=400" });
          await untilRunning(stack(), 1);
          const second = openChat(stack(), { class: comer });
          const answer = await first.answer;
          if (gives === "way") expectPreempted(answer);
          else expectServed(answer);
          expectServed(await second.answer);
          const cancelled = gives === "way" ? 1 : 0;
          expect(workerState(stack())).to.include({ cancelled, served: 2 - cancelled });
          expect(workerState(stack()).peak_running).to.equal(1);
        });
      }
    }

    onStack(
      "with the right given to interactive and system",
      { slots: 1, classes: classTable({ interactive: MAY_PREEMPT, system: MAY_PREEMPT }) },
      (stack) => {
        table(
          [
            ["bulk", "bulk", "no way"],
            ["bulk", "default", "no way"],
            ["bulk", "system", "way"],
            ["default", "interactive", "way"],
            ["default", "system", "way"],
            ["interactive", "interactive", "no way"],
            ["interactive", "system", "way"],
            ["system", "interactive", "no way"],
            ["system", "system", "no way"],
          ],
          stack,
        );
      },
    );

    onStack(
      "with the right given to default and system only",
      { slots: 1, classes: classTable({ default: MAY_PREEMPT, system: MAY_PREEMPT }) },
      (stack) => {
        table(
          [
            ["bulk", "default", "way"],
            ["bulk", "interactive", "no way"],
            ["default", "interactive", "no way"],
            ["default", "system", "way"],
          ],
          stack,
        );
      },
    );
  });

  onStack(
    "with three slots",
    { slots: 3, classes: classTable({ interactive: MAY_PREEMPT }) },
    (stack) => {
      it("ends the lowest class first and in it the latest, one for each that comes", async () => {
        const older = await openRunning(stack(), { class: "bulk", mock: "hang" });
        const later = await openRunning(stack(), { class: "bulk", mock: "hang" });
        const normal = await openRunning(stack(), { class: "default", mock: "hang" });
        await untilRunning(stack(), 3);
        const comers: OpenChat[] = [];
        for (const victim of [later, older, normal]) {
          const name = `comer-${String(comers.length)}`;
          comers.push(openChat(stack(), { class: "interactive", mock: "hang", name }));
          expectPreempted(await victim.answer);
          await stack().until("it runs in the victim's place", () =>
            namesOf(stack()).includes(name),
          );
          const cancelled = comers.length;
          expect(workerState(stack())).to.include({ cancelled, running: 3, peak_running: 3 });
        }
        // All slots are of the comers' own class now, so a fourth one waits.
        const fourth = await openQueued(stack(), { class: "interactive" });
        expect(workerState(stack())).to.include({ running: 3, cancelled: 3 });
        for (const { abort } of comers) abort();
        expectServed(await fourth.answer);
      });

      it("frees one slot for each of a burst, and no more than that", async () => {
        const victims = await Promise.all(
          ["first", "second", "third"].map((name) =>
            openRunning(stack(), { class: "bulk", mock: "hang", name }),
          ),
        );
        await untilRunning(stack(), 3);
        const burst = [1, 2].map(() =>
          openChat(stack(), { class: "interactive", mock: "delay_ms=100" }),
        );
        for (const { answer } of burst) expectServed(await answer);
        expect(workerState(stack())).to.include({ cancelled: 2, running: 1, peak_running: 3 });
        for (const { abort } of victims) abort();
      });
    },
  );

  onStack(
    "of a request whose answer has begun",
    {
      slots: 1,
      msPerToken: 50,
      classes: classTable({
        default: { queue_timeout_secs: 1 },
        interactive: { can_preempt: true, queue_timeout_secs: 1 },
        system: MAY_PREEMPT,
      }),
    },
    (stack) => {
      it("V4 only a victim past its first byte: nothing is ended, and the wait ends by timeout", async () => {
        const stream = openChat(stack(), { class: "bulk", mock: "tokens=30", body: STREAM });
        await stream.begun;
        const comer = await openChat(stack(), { class: "interactive" }).answer;
        expectContended(comer, "scheduler_queue_timeout", 1);
        const answer = await stream.answer;
        expectServed(answer);
        expect(answer.body.toString("utf8")).to.match(/data: \[DONE\]\n\n$/);
        expect(workerState(stack())).to.include({ cancelled: 0, served: 1 });
      });

      it("V4 a class without the right: nothing is ended, and the wait ends by timeout", async () => {
        const holder = await openRunning(stack(), { class: "bulk", mock: "delay_ms=1500" });
        await untilRunning(stack(), 1);
        const comer = await openChat(stack(), { class: "default" }).answer;
        expectContended(comer, "scheduler_queue_timeout", 1);
        expectServed(await holder.answer);
        expect(workerState(stack())).to.include({ cancelled: 0, served: 1 });
      });

      it("lets the highest class wait for the end of a stream", async () => {
        const stream = openChat(stack(), { class: "bulk", mock: "tokens=8", body: STREAM });
        await stream.begun;
        const comer = await openQueued(stack(), { class: "system", body: { max_tokens: 1 } });
        expectServed(await stream.answer);
        expectServed(await comer.answer);
        expect(workerState(stack())).to.include({ cancelled: 0, served: 2, peak_running: 1 });
      });

      it("counts the headers of a stream as its beginning, before any token", async () => {
        const mock = "headers=early,delay_ms=400,tokens=2";
        const stream = openChat(stack(), { class: "bulk", mock, body: STREAM });
        await stream.begun;
        const comer = await openChat(stack(), { class: "system", body: { max_tokens: 1 } }).answer;
        expectServed(comer);
        expectServed(await stream.answer);
        expect(workerState(stack())).to.include({ cancelled: 0, served: 2 });
      });
    },
  );

  onStack(
    "with a queue of no place",
    { slots: 1, queueSize: 0, classes: classTable({ interactive: MAY_PREEMPT }) },
    (stack) => {
      it("hurts nobody: who cannot wait for the victim's slot is refused", async () => {
        const holder = await openRunning(stack(), { class: "bulk", mock: "delay_ms=300" });
        await untilRunning(stack(), 1);
        const comer = await openChat(stack(), { class: "interactive" }).answer;
        expectContended(comer, "scheduler_queue_full", 30);
        expectServed(await holder.answer);
        expect(workerState(stack()).cancelled).to.equal(0);
      });
    },
  );
});

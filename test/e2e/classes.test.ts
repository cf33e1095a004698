// Goal: a class that a client asks for by header is the class it is served in, as far as its tenant
// may; a higher class goes first; slots kept back for a class stay free for it; and each class waits
// as long as its own timeout says, refused by Weir and never by Envoy. Method: one step at a time
// through a real Envoy, the order of service read from the worker's own log.
import { expect } from "chai";
import { PRIORITY_CLASSES, type PriorityClass } from "../../extproc/core/model/priority.js";
import { forgetSeen, seenByWorkers, settledChat, type HeaderLines } from "../support/chat.js";
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
import type { ConfigSketch } from "../support/config.js";
import { startStack, type Stack } from "../support/stack.js";

const PRIORITY = "x-weir-priority";
const TENANT = "x-weir-tenant-id";

/** Runs tests on one stack of one worker that takes whatever Weir lets through. */
function onStack(title: string, config: ConfigSketch, tests: (stack: () => Stack) => void): void {
  describe(title, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ workers: 1, mock: { slots: 64 }, config });
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

describe("priority classes through Envoy", () => {
  onStack(
    "by header",
    {
      trust: { tenant_id: true, peers: ["127.0.0.1"] },
      scheduler: {
        max_concurrent_requests: 4,
        classes: classTable({}),
        default_max_class: "default",
        tenant_policies: {
          "header:acme": { max_class: "interactive" },
          "header:root": { max_class: "system" },
          "header:night": { max_class: "bulk" },
        },
      },
    },
    (stack) => {
      const ROOT: HeaderLines = [[TENANT, "root"]];

      const known: readonly (readonly [sent: string, read: string])[] = [
        ...PRIORITY_CLASSES.map((name) => [name, name] as const),
        ["SYSTEM", "system"],
        ["Interactive", "interactive"],
        ["bUlK", "bulk"],
        ["  default\t", "default"],
        ["  system  ", "system"],
      ];
      for (const [sent, read] of known) {
        it(`C1 ${JSON.stringify(sent)} is the class ${read}`, async () => {
          const { answer, record } = await settledChat(stack(), [...ROOT, [PRIORITY, sent]]);
          expect(answer.status).to.equal(200);
          const facts = { requestedClass: read, class: read, unknownPriorityValue: false };
          expect(record).to.deep.include(facts);
        });
      }

      for (const [what, lines, unknown] of [
        ['"urgent"', [[PRIORITY, "urgent"]], true],
        ['"123"', [[PRIORITY, "123"]], true],
        ["an empty value", [[PRIORITY, ""]], false],
        ["no header", [], false],
        [
          "two copies",
          [
            [PRIORITY, "system"],
            [PRIORITY, "system"],
          ],
          true,
        ],
      ] as const) {
        it(`C1 the class is default for ${what}`, async () => {
          const { answer, record } = await settledChat(stack(), [...ROOT, ...lines]);
          expect(answer.status).to.equal(200);
          const facts = { requestedClass: "default", class: "default" };
          expect(record).to.deep.include({ ...facts, unknownPriorityValue: unknown });
        });
      }

      it("C1 no worker ever sees the header, whatever it says", async () => {
        for (const value of ["system", "urgent", ""]) {
          await settledChat(stack(), [...ROOT, [PRIORITY, value]]);
        }
        const seen = seenByWorkers(stack());
        expect(seen).to.have.length(3);
        for (const { headers } of seen) expect(headers).to.not.have.property(PRIORITY);
      });

      it("C2 a ceiling lowers what is asked for and never raises it", async () => {
        const rows = [
          [[], "interactive", "default"],
          [[[TENANT, "acme"]], "system", "interactive"],
          [[[TENANT, "root"]], "bulk", "bulk"],
          [[[TENANT, "night"]], "default", "bulk"],
        ] as const;
        for (const [tenant, asked, served] of rows) {
          const { record } = await settledChat(stack(), [...tenant, [PRIORITY, asked]]);
          expect(record).to.deep.include({ requestedClass: asked, class: served });
        }
      });

      it("C3 a tenant with a policy has its own ceiling, every other one the configured", async () => {
        const rows = [
          ["acme", "interactive"],
          ["nobody-knows", "default"],
        ] as const;
        for (const [tenant, served] of rows) {
          const { record } = await settledChat(stack(), [
            [TENANT, tenant],
            [PRIORITY, "interactive"],
          ]);
          expect(record).to.deep.include({ tenant: `header:${tenant}`, class: served });
        }
      });

      it("counts what was lowered and what was not understood", async () => {
        const before = await scrape(stack());
        await settledChat(stack(), [[PRIORITY, "system"]]);
        await settledChat(stack(), [[PRIORITY, "urgent"]]);
        const after = await scrape(stack());
        const rise = (name: string, labels: Record<string, string>): number =>
          after(name, labels) - before(name, labels);
        const lowered = { requested_class: "system", effective_class: "default" };
        expect(rise("weir_scheduler_clamp_total", lowered)).to.equal(1);
        expect(rise("weir_scheduler_clamp_total", {})).to.equal(1);
        expect(rise("weir_scheduler_unknown_priority_value_total", {})).to.equal(1);
      });
    },
  );

  onStack(
    "in one queue",
    {
      scheduler: {
        max_concurrent_requests: 1,
        queue_size: 8,
        default_max_class: "system",
        classes: classTable({}),
      },
    },
    (stack) => {
      it("serves the higher class first, and within a class who came first", async () => {
        const holder = await openRunning(stack(), { mock: "hang", name: "holder" });
        const waiting: OpenChat[] = [];
        for (const round of ["1", "2"]) {
          for (const name of PRIORITY_CLASSES) {
            const chat = { class: name, name: `${name}-${round}` };
            waiting.push(await openQueued(stack(), chat));
          }
        }
        // Eight wait in a queue of eight: the ninth finds no place, whatever its class.
        expectContended(
          await openChat(stack(), { class: "system" }).answer,
          "scheduler_queue_full",
          30,
        );
        holder.abort();
        for (const { answer } of waiting) expectServed(await answer);
        expect(stack().workers.flatMap((worker) => namesAt(worker))).to.deep.equal([
          "holder",
          ...["system-1", "system-2", "interactive-1", "interactive-2"],
          ...["default-1", "default-2", "bulk-1", "bulk-2"],
        ]);
      });
    },
  );

  onStack(
    "with slots kept back",
    {
      scheduler: {
        max_concurrent_requests: 4,
        queue_size: 0,
        default_max_class: "system",
        classes: classTable({
          bulk: { queue_timeout_secs: 23 },
          system: { reserved_floor: 2, queue_timeout_secs: 7 },
        }),
      },
    },
    (stack) => {
      async function takeSlots(...names: readonly PriorityClass[]): Promise<readonly OpenChat[]> {
        const taken: OpenChat[] = [];
        for (const name of names) {
          taken.push(await openRunning(stack(), { class: name, mock: "hang" }));
        }
        return taken;
      }

      async function refused(name: PriorityClass): Promise<string | undefined> {
        const answer = await openChat(stack(), { class: name }).answer;
        expectContended(answer, "scheduler_queue_full", 30);
        return answer.headers["retry-after"];
      }

      // The first test of its stack: no slot has ever been given back.
      it("C5 a full queue that never moved says the timeout of the class as Retry-After", async () => {
        const taken = await takeSlots("system", "system", "system", "system");
        expect(await refused("bulk")).to.equal("23");
        expect(await refused("default")).to.equal("30");
        expect(await refused("system")).to.equal("7");
        for (const { abort } of taken) abort();
      });

      it("S4 bulk gets two of four slots, system the other two, and then all is full", async () => {
        const taken = [...(await takeSlots("bulk", "bulk"))];
        await refused("bulk");
        await refused("interactive");
        taken.push(...(await takeSlots("system", "system")));
        await refused("system");
        await untilRunning(stack(), 4);
        for (const { abort } of taken) abort();
      });
    },
  );

  describe("that wait in vain", () => {
    let stack: Stack;
    const timeouts = { bulk: 4, default: 3, interactive: 2, system: 1 } as const;
    before(async () => {
      stack = await startStack({
        workers: 1,
        config: {
          // Far below every hold: only the time asked of Envoy for each of them keeps them alive.
          envoy: { message_timeout: "300ms" },
          scheduler: {
            max_concurrent_requests: 1,
            queue_size: 20,
            default_max_class: "system",
            classes: classTable({
              bulk: { queue_timeout_secs: timeouts.bulk },
              default: { queue_timeout_secs: timeouts.default },
              interactive: { queue_timeout_secs: timeouts.interactive },
              system: { queue_timeout_secs: timeouts.system },
            }),
          },
        },
      });
    });
    after(() => stack.stop());

    it("C4 are refused with 429 by Weir, each class after its own timeout, and never by Envoy", async () => {
      const holder = await openRunning(stack, { mock: "hang" });
      const waits = await Promise.all(
        [...PRIORITY_CLASSES, ...PRIORITY_CLASSES].map(async (name) => {
          const sentAt = performance.now();
          const answer = await openChat(stack, { class: name }).answer;
          expectContended(answer, "scheduler_queue_timeout", timeouts[name]);
          return { name, waitedMs: performance.now() - sentAt };
        }),
      );
      for (const { name, waitedMs } of waits) {
        // Never early; late by less than the second by which the next class waits longer.
        expect(waitedMs, name).to.be.within(timeouts[name] * 1_000, timeouts[name] * 1_000 + 900);
      }
      holder.abort();
      await stack.idle();
      await expectAccounted(stack, 9);
      const series = await scrape(stack);
      for (const name of PRIORITY_CLASSES) {
        const labels = { class: name, outcome: "rejected_queue_timeout" };
        expect(series("weir_scheduler_admit_total", labels)).to.equal(2);
      }
      expect(series("weir_envoy_cut_hold_total")).to.equal(0);
      const codes = (await stack.envoy.waitForAccessLog(9)).map(({ code }) => code);
      expect(codes.filter((code) => code === 429)).to.have.length(8);
      expect(codes).to.not.include(504);
    });
  });
});

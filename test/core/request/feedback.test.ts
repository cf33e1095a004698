// What the engines report, in the life of a request and in the slots of its partition: a whole core, with
// telemetry published by hand.

import { expect } from "chai";
import { bytes, NOTHING_LEFT, type Driven } from "../../support/desk.js";
import { FeedbackDesk, URLS } from "../../support/feedback-desk.js";

const code = (driven: Driven): string | undefined => {
  const verdict = driven.last();
  return verdict?.kind === "refuse" ? verdict.rejection.code : verdict?.kind;
};

describe("the feedback of the engines", () => {
  it("refuses a request that has its slot, before a worker is chosen, and takes its charge back", () => {
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ waiting: 5 }, { waiting: 5 });
    const refused = bench.drive();
    expect(code(refused)).to.equal("adaptive_admission_saturated");
    expect(refused.last()).to.have.nested.property("rejection.status", 429);
    expect(refused.last()).to.have.nested.property("rejection.retryAfterS", 1);
    expect(bench.settled.at(-1)).to.deep.include({
      rejection: "adaptive_admission_saturated",
      feedbackReason: "engine_waiting",
      worker: undefined,
      admitted: false,
      charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
    });
    expect(bench.tokens("ip:203.0.113.42")).to.deep.equal([0, 0]);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(bench.core.feedback?.outstanding("global" as never)).to.equal(0);
  });

  it("does not ask about requests that generate nothing", () => {
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ waiting: 5 }, { waiting: 5 });
    const body = bytes({ model: "demo", input: "text" });
    expect(code(bench.drive({ target: "/v1/embeddings" }, body))).to.equal("route");
    expect(bench.decisions).to.deep.equal([]);
  });

  it("counts in shadow what it would have refused, and lets it pass", () => {
    const bench = new FeedbackDesk({ mode: "shadow" });
    bench.report({ tokenUsage: 0.95 }, { tokenUsage: 0.95 });
    expect(code(bench.drive())).to.equal("route");
    expect(bench.decisions).to.deep.equal(["token_pressure"]);
    expect(bench.slots).to.equal(100);
  });

  it("is not there in mode off: nothing is asked, nothing decided", () => {
    const bench = new FeedbackDesk({ mode: "off" });
    expect([bench.core.telemetry, bench.core.feedback]).to.deep.equal([undefined, undefined]);
    expect(code(bench.drive())).to.equal("route");
    expect(bench.decisions).to.deep.equal([]);
  });

  it("lets everything pass when too few engines report, and says so", () => {
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ waiting: 50 }, undefined);
    expect(code(bench.drive())).to.equal("route");
    expect(bench.decisions).to.deep.equal(["telemetry_fallback"]);
  });

  it("counts a request until it has ended, and no longer", () => {
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ maxRunning: 1 }, { maxRunning: 1 });
    const running = [bench.drive(), bench.drive()];
    expect(running.map(code)).to.deep.equal(["route", "route"]);
    expect(code(bench.drive())).to.equal("adaptive_admission_saturated");
    for (const driven of running) bench.answer(driven);
    expect(code(bench.drive())).to.equal("route");
  });

  describe("with slots that follow it", () => {
    const adaptive = (): FeedbackDesk =>
      new FeedbackDesk(
        { mode: "enforce" },
        {
          scheduler: {
            max_concurrent_requests: 100,
            queue_size: 100,
            admission_partitions: { default: { max_concurrent_requests: 100, queue_size: 100 } },
          },
        },
      );

    it("holds what the engines cannot take, refuses nobody, and lets them go when they can", () => {
      const bench = adaptive();
      bench.report({ maxRunning: 1 }, { maxRunning: 1 });
      expect(bench.slots).to.equal(2);
      const driven = [bench.drive(), bench.drive(), bench.drive(), bench.drive()];
      expect(driven.map(code)).to.deep.equal(["route", "route", "hold", "hold"]);
      const busy = { running: 1, waiting: 5, maxRunning: 8 };
      bench.report(busy, busy);
      expect(bench.slots, "engines that keep requests waiting get none").to.equal(0);
      for (const one of driven.slice(0, 2)) bench.answer(one);
      expect(driven.slice(2).map(code)).to.deep.equal(["hold", "hold"]);
      bench.report({ maxRunning: 8 }, { maxRunning: 8 });
      expect(bench.slots).to.equal(16);
      expect(driven.slice(2).map(code)).to.deep.equal(["route", "route"]);
      expect(bench.decisions).to.not.include("adaptive_admission_saturated");
    });

    it("asks engines that run nothing and report pressure with one request, or they would never be asked again", () => {
      const bench = adaptive();
      bench.report({ waiting: 9 }, {});
      expect(bench.slots).to.equal(1);
      expect([bench.drive(), bench.drive()].map(code)).to.deep.equal(["route", "hold"]);
    });

    it("is not held closed by the last report of a worker that can no longer be read", () => {
      const bench = adaptive();
      bench.report({ running: 3, waiting: 30 }, { running: 3 });
      expect(bench.slots).to.equal(0);
      bench.report(undefined, { running: 3 });
      expect(bench.slots).to.be.greaterThan(3);
    });

    it("never gets more slots than the configuration gives, and all of them without telemetry", () => {
      const bench = adaptive();
      bench.report({ maxRunning: 512 }, { maxRunning: 512 });
      expect(bench.slots).to.equal(100);
      bench.report({ maxRunning: 4 }, { maxRunning: 4 });
      expect(bench.slots).to.equal(8);
      // Lost polls are bridged until the last reading is 30 s old.
      bench.advance(30_000);
      bench.report(undefined, undefined);
      expect(bench.slots).to.equal(100);
    });

    it("follows a worker that is lost at once, without waiting for the next poll", () => {
      const bench = adaptive();
      bench.report({ maxRunning: 10 }, { maxRunning: 10 });
      expect(bench.slots).to.equal(20);
      bench.registry.remove(URLS[1]);
      expect(bench.slots).to.equal(10);
    });
  });
});

describe("requests of an earlier process", () => {
  const tenSlots = (mode: string): FeedbackDesk =>
    new FeedbackDesk({ mode }, { scheduler: { max_concurrent_requests: 10, queue_size: 100 } });

  it("keep slots from being given twice until they have ended, and never come back", () => {
    const bench = tenSlots("enforce");
    bench.report({ running: 3 }, { running: 4 });
    expect(bench.slots).to.equal(3);
    const own = [bench.drive(), bench.drive(), bench.drive(), bench.drive()];
    expect(own.map(code)).to.deep.equal(["route", "route", "route", "hold"]);
    // Two of them and one of the other worker's have ended; Weir's own three run now too.
    bench.report({ running: 1 + 2 }, { running: 3 + 1 });
    expect(bench.slots).to.be.within(6, 7);
    expect(own.map(code)).to.deep.equal(["route", "route", "route", "route"]);
    for (const driven of own) bench.answer(driven);
    bench.report({ running: 0 }, { running: 0 });
    expect(bench.slots).to.equal(10);
    bench.report({ running: 9 }, { running: 9 });
    expect(bench.slots, "what runs beyond the live load later is no rest").to.equal(10);
  });

  it("take no more than a worker's part of the slots, whatever it reports, and none in shadow", () => {
    const bench = tenSlots("enforce");
    bench.report({ running: 1_000 }, { running: 0 });
    expect(bench.slots).to.equal(5);
    const shadow = tenSlots("shadow");
    shadow.report({ running: 1_000 }, { running: 0 });
    expect(shadow.slots).to.equal(10);
  });

  it("go with their worker when that is lost", () => {
    const bench = tenSlots("enforce");
    bench.report({ running: 4 }, { running: 0 });
    expect(bench.slots).to.equal(6);
    for (let failed = 0; failed < 2; failed += 1) bench.registry.recordHealth(URLS[0], false);
    expect(bench.slots).to.equal(10);
  });

  it("are unknown without telemetry, and count for ten minutes at most", () => {
    const silent = new FeedbackDesk({ mode: "enforce" });
    silent.report(undefined, undefined);
    expect(silent.slots).to.equal(100);
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ running: 30 }, { running: 0 });
    expect(bench.slots).to.equal(70);
    bench.advance(600_000);
    bench.report({ running: 30 }, { running: 0 });
    expect(bench.slots).to.equal(100);
  });
});

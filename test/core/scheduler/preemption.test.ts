// Who gives way to whom, and who is left alone.

import { expect } from "chai";
import fc from "fast-check";
import type { PriorityClass } from "../../../extproc/core/model/priority.js";
import { sumOf } from "../../../extproc/core/scheduler/admission.js";
import { SchedulerBench, type PartitionSketch } from "../../support/scheduler.js";

const PREEMPTING = ["interactive", "system"] as const;

function bench(capacity: number, over: Partial<PartitionSketch> = {}): SchedulerBench {
  return new SchedulerBench({ capacity, canPreempt: PREEMPTING, ...over });
}

const victims = (of: SchedulerBench): string[] => of.preempted.map(({ victim }) => victim);

describe("preemption", () => {
  it("V1 finds no victim where nothing of a lower class runs", () => {
    const one = bench(1);
    one.admit("a", "interactive");
    expect(one.admit("b", "interactive")).to.equal("queued");
    expect(victims(one)).to.deep.equal([]);
  });

  it("V1 takes the lowest class before its first byte, and the next one when that has begun to answer", () => {
    const two = bench(2);
    two.admit("default");
    two.admit("bulk", "bulk");
    two.admit("i1", "interactive");
    expect(victims(two)).to.deep.equal(["bulk"]);
    const begun = bench(2);
    begun.admit("default");
    begun.admit("bulk", "bulk");
    begun.permits.get("bulk")?.firstByte(begun.now);
    begun.admit("i1", "interactive");
    expect(victims(begun)).to.deep.equal(["default"]);
  });

  it("V1 never takes a victim of the same or a higher class: nothing stands below bulk", () => {
    const one = new SchedulerBench({ capacity: 1, canPreempt: ["bulk", "default", ...PREEMPTING] });
    one.admit("a", "bulk");
    one.admit("b", "bulk");
    expect(victims(one)).to.deep.equal([]);
  });

  it("takes the most recently admitted of the victim's class", () => {
    const three = bench(3);
    for (const request of ["old", "middle", "new"]) three.admit(request, "bulk");
    three.admit("i", "interactive");
    expect(victims(three)).to.deep.equal(["new"]);
  });

  it("V2 a preempting waiter is served when its victim has unwound, and not before", () => {
    const one = bench(1);
    one.admit("victim", "bulk");
    expect(one.admit("i", "interactive")).to.equal("queued");
    expect(one.preempted).to.deep.equal([{ victim: "victim", by: 2 }]);
    expect(sumOf(one.view().in_flight)).to.equal(1);
    one.advance(1_000);
    expect(one.granted).to.deep.equal([]);
    one.release("victim");
    expect(one.granted).to.deep.equal(["i"]);
  });

  it("V3 a waiter that left before it was queued disturbs nobody, and one that leaves later keeps no claim", () => {
    const one = bench(1);
    one.admit("victim", "bulk");
    one.admit("gone", "interactive");
    one.leave("gone");
    expect(victims(one)).to.deep.equal(["victim"]);
    // The victim is on its way out already: the next waiter counts on it and marks nobody else.
    one.admit("next", "interactive");
    expect(victims(one)).to.deep.equal(["victim"]);
    one.release("victim");
    expect(one.granted).to.deep.equal(["next"]);
  });

  it("V4 leaves a victim past its first byte alone: the waiter times out", () => {
    const one = bench(1, { queueTimeoutSecs: 1 });
    one.admit("a", "bulk");
    one.permits.get("a")?.firstByte(one.now);
    one.admit("i", "interactive");
    one.advance(1_000);
    expect(victims(one)).to.deep.equal([]);
    expect(one.timedOut.map(({ request }) => request)).to.deep.equal(["i"]);
  });

  it("V4 a class without the right preempts nobody", () => {
    const one = bench(1, { queueTimeoutSecs: 1 });
    one.admit("a", "bulk");
    one.admit("d", "default");
    one.advance(1_000);
    expect(victims(one)).to.deep.equal([]);
    expect(one.timedOut.map(({ request }) => request)).to.deep.equal(["d"]);
  });

  it("V5 after its first byte a request cannot be marked, and after its marking its first byte does not count", () => {
    const two = bench(2);
    two.admit("a", "bulk");
    two.admit("b", "bulk");
    expect(two.permits.get("b")?.firstByte(two.now)).to.equal(true);
    two.admit("i", "interactive");
    expect(victims(two)).to.deep.equal(["a"]);
    expect(two.permits.get("a")?.firstByte(two.now)).to.equal(false);
  });

  it("marks nobody for a waiter that a freed slot would not help, since it is kept for a higher class", () => {
    const one = bench(1, {
      reserved: [0, 0, 0, 1],
      starvationSecs: [0, 1_000_000, 1_000_000, 1_000_000],
    });
    one.admit("b", "bulk");
    one.advance(5);
    expect(one.granted).to.deep.equal(["b"]);
    one.admit("i", "interactive");
    expect(victims(one)).to.deep.equal([]);
    one.admit("s", "system");
    expect(victims(one)).to.deep.equal(["b"]);
  });

  it("hurts nobody for a request that finds no place in the queue", () => {
    const one = bench(1, { queueSize: 0 });
    one.admit("b", "bulk");
    expect(one.admit("i", "interactive")).to.equal("queue_full");
    expect(victims(one)).to.deep.equal([]);
  });

  it("marks one victim per waiter of a burst and no more than there are waiters", () => {
    const four = bench(4);
    for (const request of ["a", "b", "c", "d"]) four.admit(request, "bulk");
    for (const request of ["i1", "i2", "i3"]) four.admit(request, "interactive");
    expect(victims(four)).to.deep.equal(["d", "c", "b"]);
    four.admit("i4", "interactive");
    four.admit("i5", "interactive");
    expect(victims(four)).to.deep.equal(["d", "c", "b", "a"]);
  });

  it("counts a waiter that timed out as gone, so that its victim serves another", () => {
    const one = bench(1, { queueTimeoutSecs: [60, 60, 1, 60] });
    one.admit("victim", "bulk");
    one.admit("i", "interactive");
    one.advance(1_000);
    expect(one.timedOut.map(({ request }) => request)).to.deep.equal(["i"]);
    one.admit("s", "system");
    expect(victims(one)).to.deep.equal(["victim"]);
    one.release("victim");
    expect(one.granted).to.deep.equal(["s"]);
  });

  it("marks another victim when the first one's slot was lost to a shrink", () => {
    const two = bench(2);
    two.admit("b1", "bulk");
    two.admit("b2", "bulk");
    two.admit("s", "system");
    expect(victims(two)).to.deep.equal(["b2"]);
    two.resize(1);
    two.release("b2");
    expect(victims(two)).to.deep.equal(["b2", "b1"]);
    two.release("b1");
    expect(two.granted).to.deep.equal(["s"]);
  });

  it("preempts for a waiter later, when what is in flight has come down to where one victim helps", () => {
    const six = bench(6);
    for (let index = 0; index < 6; index += 1) six.admit(`b${String(index)}`, "bulk");
    six.resize(4);
    six.admit("s", "system");
    expect(victims(six)).to.deep.equal([]);
    six.release("b0");
    expect(victims(six)).to.deep.equal([]);
    six.release("b1");
    expect(victims(six)).to.deep.equal(["b5"]);
    six.release("b5");
    expect(six.granted).to.deep.equal(["s"]);
  });

  it("preempts nobody for a waiter behind one of a higher class that would take the slot", () => {
    const one = new SchedulerBench({ capacity: 1, canPreempt: ["interactive"] });
    one.admit("b", "bulk");
    one.admit("s", "system");
    one.admit("i", "interactive");
    expect(victims(one)).to.deep.equal([]);
    one.leave("s");
    expect(victims(one)).to.deep.equal(["b"]);
  });

  it("preempts nobody while the freed slot would go to a starved lane", () => {
    const one = bench(1, { starvationSecs: [1, 1_000_000, 1_000_000, 1_000_000] });
    one.admit("running", "bulk");
    one.admit("starved", "bulk");
    one.advance(1_500);
    one.admit("s", "system");
    expect(victims(one)).to.deep.equal([]);
    one.release("running");
    expect(one.granted).to.deep.equal(["starved"]);
  });

  it("spares a request that passed a higher class because its lane was starved, and no other promotion", () => {
    const one = bench(1, { starvationSecs: [1, 1_000_000, 1_000_000, 1_000_000] });
    one.admit("first", "interactive");
    one.admit("starved", "bulk");
    one.admit("i", "interactive");
    one.advance(1_500);
    one.release("first");
    expect(one.granted).to.deep.equal(["starved"]);
    one.admit("s", "system");
    expect(victims(one)).to.deep.equal([]);
    // A promotion that nobody contested only borrowed an idle slot, and gives it back.
    const idle = bench(1, { reserved: [0, 0, 0, 1], starvationSecs: [1, 9, 9, 9] });
    idle.admit("borrower", "bulk");
    idle.advance(1_500);
    expect(idle.granted).to.deep.equal(["borrower"]);
    idle.admit("s", "system");
    expect(victims(idle)).to.deep.equal(["borrower"]);
  });

  it("keeps its books in any order of arrivals, first bytes, releases, departures and resizing", () => {
    const step = fc.record({
      kind: fc.constantFrom(
        "admit",
        "admit",
        "admit",
        "firstByte",
        "release",
        "leave",
        "resize",
        "tick",
      ),
      name: fc.constantFrom<PriorityClass>("bulk", "default", "interactive", "system"),
      at: fc.nat(60),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 150 }), (steps) => {
        checkBooks(steps);
      }),
      { numRuns: 400 },
    );
  });
});

function checkBooks(
  steps: readonly { readonly kind: string; readonly name: PriorityClass; readonly at: number }[],
): void {
  const all = bench(4, {
    queueSize: 10,
    reserved: [0, 0, 1, 1],
    queueTimeoutSecs: 5,
    starvationSecs: 2,
  });
  const begun = new Set<string>();
  const released = new Set<string>();
  const rank = new Map<string, number>();
  const live = (): string[] => [...all.permits.keys()].filter((name) => !released.has(name));
  let next = 0;
  let marked = 0;
  for (const { kind, name, at } of steps) {
    if (kind === "admit") {
      const request = `r${String(next)}`;
      next += 1;
      rank.set(request, ["bulk", "default", "interactive", "system"].indexOf(name));
      all.admit(request, name);
    } else if (kind === "firstByte") {
      const request = live()[at % Math.max(1, live().length)];
      if (request !== undefined && all.permits.get(request)?.firstByte(all.now) === true) {
        begun.add(request);
      }
    } else if (kind === "release") {
      const request = live()[at % Math.max(1, live().length)];
      if (request !== undefined) {
        released.add(request);
        all.release(request);
      }
    } else if (kind === "leave") {
      all.leave(`r${String(at)}`);
    } else if (kind === "resize") {
      all.resize(at % 7);
    } else {
      all.advance(700);
    }
    for (const { victim, by } of all.preempted.slice(marked)) {
      expect(begun.has(victim), "a victim had begun to answer").to.equal(false);
      expect(released.has(victim), "a victim had ended").to.equal(false);
      expect(rank.get(victim), "a victim is of a lower class").to.be.below(by);
    }
    marked = all.preempted.length;
    expect(new Set(all.preempted.map(({ victim }) => victim)).size).to.equal(marked);
    const view = all.view();
    expect(sumOf(view.in_flight)).to.equal(live().length);
    expect(sumOf(view.queued)).to.be.at.most(10);
  }
  // Whatever happened, everything can be given back and the next requests are served.
  for (const request of live()) {
    released.add(request);
    all.permits.get(request)?.release();
  }
  all.scheduler.expire(all.now, true);
  expect(sumOf(all.view().in_flight)).to.equal(0);
  all.resize(1);
  expect(all.admit("last", "system")).to.equal("granted");
}

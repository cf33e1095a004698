// The clock alone: the worked trace, and what its rules promise, against sums kept in plain lists.

import { expect } from "chai";
import fc from "fast-check";
import { FairClock, type ClockEntry } from "../../../extproc/core/fairshare/fair-clock.js";

/** The entry that is next: the least finish, then the smaller key. */
function next(entries: readonly ClockEntry[]): ClockEntry {
  const [first] = entries
    .filter(({ queued }) => queued > 0)
    .sort((a, b) => a.finish - b.finish || (a.key < b.key ? -1 : 1));
  if (first === undefined) throw new Error("nobody waits");
  return first;
}

describe("FairClock", () => {
  it("follows the worked trace: weights 2 and 1, ten tokens each, both always backlogged", () => {
    const clock = new FairClock();
    const a = clock.add("a", 2);
    const b = clock.add("b", 1);
    for (let index = 0; index < 31; index += 1) {
      clock.register(a);
      clock.register(b);
    }
    const seen: unknown[] = [];
    for (let pick = 0; pick < 30; pick += 1) {
      const entry = next([a, b]);
      clock.reserve(entry, 10);
      clock.settle(entry, 10, 10);
      seen.push([entry.key, a.virtualFinish, b.virtualFinish, clock.virtualTime]);
    }
    expect(seen.slice(0, 9)).to.deep.equal([
      ["a", 5, 0, 0],
      ["b", 5, 10, 5],
      ["a", 10, 10, 10],
      ["a", 15, 10, 10],
      ["b", 15, 20, 15],
      ["a", 20, 20, 20],
      ["a", 25, 20, 20],
      ["b", 25, 30, 25],
      ["a", 30, 30, 30],
    ]);
    const picks = seen.map((row) => (row as string[])[0]);
    expect(picks.filter((key) => key === "a")).to.have.length(20);
    expect(picks.filter((key) => key === "b")).to.have.length(10);
  });

  it("gives a refund in full to the contender that holds the clock", () => {
    const clock = new FairClock();
    const a = clock.add("a", 1);
    const b = clock.add("b", 1);
    for (const entry of [a, a, b, b]) clock.register(entry);
    clock.reserve(a, 100);
    clock.reserve(b, 10);
    clock.settle(b, 10, 10);
    expect(clock.virtualTime, "the estimate of a does not move the clock").to.equal(0);
    clock.settle(a, 100, 1);
    expect(a.virtualFinish).to.equal(1);
  });

  it("lets nobody keep idle time: who begins to wait again starts at the clock", () => {
    const clock = new FairClock();
    const busy = clock.add("busy", 1);
    const idle = clock.add("idle", 1);
    clock.register(busy);
    for (let index = 0; index < 100; index += 1) {
      clock.register(busy);
      clock.reserve(busy, 10);
      clock.settle(busy, 10, 10);
    }
    clock.register(idle);
    expect([clock.virtualTime, busy.virtualFinish, idle.virtualFinish]).to.deep.equal([
      1_000, 1_000, 1_000,
    ]);
  });

  it("never refunds below the time at which the contender began to wait", () => {
    const clock = new FairClock();
    const a = clock.add("a", 1);
    const b = clock.add("b", 1);
    clock.register(a);
    clock.reserve(a, 100);
    for (let index = 0; index < 3; index += 1) {
      clock.register(b);
      clock.register(b);
      clock.reserve(b, 50);
      clock.settle(b, 50, 50);
      clock.unregister(b);
    }
    const joined = clock.virtualTime;
    clock.register(a);
    clock.settle(a, 100, 0);
    expect(joined).to.be.greaterThan(0);
    expect(a.virtualFinish).to.equal(joined);
  });

  it("counts from 0 again past its scale, and nobody's order or lifetime figure changes", () => {
    const run = (rebaseAt: number): string[] => {
      const clock = new FairClock(rebaseAt);
      const entries = [clock.add("a", 2), clock.add("b", 1), clock.add("c", 0.5)];
      const picks: string[] = [];
      for (const entry of entries)
        for (let index = 0; index < 200; index += 1) clock.register(entry);
      for (let pick = 0; pick < 150; pick += 1) {
        const entry = next(entries);
        clock.reserve(entry, 16);
        clock.settle(entry, 16, 8 * (1 + (pick % 5)));
        picks.push(
          [entry.key, ...entries.map((each) => each.virtualFinish), clock.virtualTime].join(" "),
        );
      }
      return picks;
    };
    expect(run(64)).to.deep.equal(run(2 ** 40));
  });

  it("forgets only an entry that is idle and not ahead", () => {
    const clock = new FairClock();
    const a = clock.add("a", 1);
    const b = clock.add("b", 1);
    clock.register(b);
    clock.register(a);
    expect(clock.isSpent(a), "waiting").to.equal(false);
    clock.reserve(a, 10);
    expect(clock.isSpent(a), "running").to.equal(false);
    clock.settle(a, 10, 10);
    expect(clock.isSpent(a), "ahead of the clock, which b holds at 0").to.equal(false);
    expect(() => {
      clock.forget(a);
    }).to.throw(/not ahead/);
    clock.reserve(b, 10);
    clock.settle(b, 10, 10);
    expect(clock.isSpent(a)).to.equal(true);
  });

  it("keeps V monotone, F at the floor or above and p the sum of what runs, on any schedule", () => {
    const step = fc.record({
      kind: fc.constantFrom("register", "register", "unregister", "reserve", "settle", "cancel"),
      who: fc.nat(3),
      estimate: fc.integer({ min: 1, max: 1_000 }),
      charge: fc.integer({ min: 1, max: 10_000 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const clock = new FairClock(1_000);
        const parties = [1, 2, 0.3, 7].map((weight, index) => ({
          entry: clock.add(`t${String(index)}`, weight),
          running: [] as number[],
        }));
        let last = 0;
        for (const { kind, who, estimate, charge } of steps) {
          const party = parties[who];
          if (party === undefined) throw new Error("no such party");
          const { entry, running } = party;
          const booked = running[0];
          if (kind === "register") clock.register(entry);
          else if (kind === "unregister" && entry.queued > 0) clock.unregister(entry);
          else if (kind === "reserve" && entry.queued > 0) {
            clock.reserve(entry, estimate);
            running.push(estimate);
          } else if (booked !== undefined && (kind === "settle" || kind === "cancel")) {
            running.shift();
            clock.settle(entry, booked, kind === "settle" ? charge : 0);
          }
          expect(clock.virtualTime).to.be.at.least(last);
          last = clock.virtualTime;
          for (const each of parties) {
            const sum = each.running.reduce((total, tokens) => total + tokens, 0);
            expect(each.entry.provisionalTokens).to.equal(sum);
            expect(each.entry.active).to.equal(each.running.length);
            expect(each.entry.finish).to.be.at.least(each.entry.floor - 1e-9);
          }
        }
      }),
      { numRuns: 300 },
    );
  });
});

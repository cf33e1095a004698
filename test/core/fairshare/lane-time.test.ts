// The time of a contest by itself: it grows by what is charged per weight of all that are busy.

import { expect } from "chai";
import { FairClock, type ClockEntry } from "../../../extproc/core/fairshare/fair-clock.js";
import { LaneTime } from "../../../extproc/core/fairshare/lane-time.js";

describe("LaneTime", () => {
  let clock: FairClock;
  let time: LaneTime;
  let a: ClockEntry;
  let b: ClockEntry;
  beforeEach(() => {
    clock = new FairClock();
    time = new LaneTime();
    a = clock.add("a", 1);
    b = clock.add("b", 3);
  });

  it("grows by what is charged, per weight of all that wait or run here", () => {
    time.enter(a);
    time.enter(b);
    time.enter(b);
    time.exit(a, 8);
    expect(time.now, "8 / (1 + 3)").to.equal(2);
    time.exit(b, 9);
    expect(time.now, "9 / 3 more").to.equal(5);
    time.exit(b, 0);
    expect(time.now, "left without having run").to.equal(5);
  });

  it("puts whoever begins to wait at its time, or near the next one, whichever is more", () => {
    time.enter(b);
    time.exit(b, 30);
    expect(time.ahead(a, undefined), "30 / 3").to.equal(10);
    expect(time.ahead(b, 25), "the next one stands at 25").to.equal(25);
    expect(time.ahead(b, 12), "it is remembered").to.equal(25);
  });

  it("forgets what a contender is ahead by as far as its clock has lifted it since", () => {
    expect(time.ahead(a, 40)).to.equal(40);
    clock.register(b);
    clock.reserve(b, 90);
    clock.settle(b, 90, 90);
    clock.register(a);
    // The clock stands at 90 / 3, where a begins.
    expect([a.virtualFinish, time.ahead(a, undefined)]).to.deep.equal([30, 10]);
  });

  it("is not reached by who was never here", () => {
    expect(() => {
      time.exit(a, 1);
    }).to.throw(/leaves/);
  });
});

// The simulation is as good as its checkers. Most are seen to fail by a sabotage of Weir; those that a
// stricter one would always precede are seen to fail here.

import { expect } from "chai";
import { available, PartitionBook, type Entry } from "./partition-book.js";

const [BULK, DEFAULT, INTERACTIVE, SYSTEM] = [0, 1, 2, 3] as const;
const NOTHING = [0, 0, 0, 0];

class Case {
  readonly violations: string[] = [];
  readonly book = new PartitionBook("pool", 1_000, (what) => {
    this.violations.push(what);
  });
  #next = 0;

  constructor(capacity: number, reserved: readonly number[] = NOTHING) {
    this.book.resize(capacity, reserved);
  }

  waits(rank: number, heldAt: number): Entry {
    this.#next += 1;
    const entry: Entry = {
      id: `r${String(this.#next)}`,
      rank,
      heldAt,
      answerBegan: false,
      preemptedBy: undefined,
      promoted: false,
      spared: false,
    };
    this.book.lane(rank).push(entry);
    return entry;
  }

  /** A grant that is over at once. */
  served(entry: Entry, now: number): void {
    this.book.grant(entry, now);
    this.book.running.delete(entry);
  }
}

describe("the naive book of a partition", () => {
  it("keeps slots back for higher classes, their own excepted, and no more than are unused", () => {
    const reserved = [0, 0, 0, 32];
    expect(available(BULK, 128, reserved, NOTHING)).to.equal(96);
    expect(available(SYSTEM, 128, reserved, NOTHING)).to.equal(128);
    expect(available(BULK, 128, reserved, [0, 0, 0, 32])).to.equal(96);
    expect(available(BULK, 40, reserved, [10, 10, 10, 10])).to.equal(0);
  });

  it("finds a starved lane that 65 dispatches pass, and none that 64 pass", () => {
    const pool = new Case(1);
    pool.waits(BULK, 0);
    // Threshold 8 s, less those that a bound on promotions may put off.
    const now = 8_001;
    const passed = (): string[] => pool.violations.filter((what) => what.includes("is passed"));
    for (let count = 0; count < 64; count += 1) pool.served(pool.waits(SYSTEM, now), now);
    expect(passed()).to.deep.equal([]);
    pool.served(pool.waits(SYSTEM, now), now);
    expect(passed()).to.deep.equal(["the starved lane bulk of pool is passed 65 times"]);
  });

  it("finds the 17th contested promotion among 64 dispatches", () => {
    const pool = new Case(1);
    pool.waits(SYSTEM, 8_001);
    for (let count = 0; count < 16; count += 1) pool.served(pool.waits(BULK, 0), 8_001);
    expect(pool.violations).to.deep.equal([]);
    pool.served(pool.waits(BULK, 0), 8_001);
    expect(pool.violations).to.deep.equal([
      "r18 is one contested promotion too many",
      "r18 is contested promotion 17 of 64",
    ]);
    expect(pool.book.stats).to.include({ contested: 17, promotions: 17 });
  });

  it("finds a lower class served before a higher one, and a lane starved for more than its threshold only", () => {
    const pool = new Case(1);
    pool.waits(INTERACTIVE, 8_000);
    const bulk = pool.waits(BULK, 0);
    pool.served(bulk, 8_000);
    expect(pool.violations).to.deep.equal([`${bulk.id} is served before a higher class`]);
  });

  it("finds a victim that changes nothing: its slot is kept back for a still higher class", () => {
    const pool = new Case(1, [0, 0, 0, 1]);
    const victim = pool.waits(BULK, 0);
    pool.served(victim, 9_000);
    pool.book.running.add(victim);
    pool.waits(INTERACTIVE, 9_000);
    pool.book.preempt(victim, 9_000);
    expect(pool.violations).to.deep.equal([
      `${victim.id} is preempted in vain: no waiter gets a slot by that`,
    ]);
  });

  it("finds a victim that nobody needs, because one on its way out is enough", () => {
    const pool = new Case(2);
    const [first, second] = [pool.waits(DEFAULT, 0), pool.waits(DEFAULT, 0)];
    for (const entry of [first, second]) pool.book.grant(entry, 1);
    pool.waits(SYSTEM, 2);
    pool.book.preempt(second, 2);
    expect(pool.violations).to.deep.equal([]);
    pool.book.lane(SYSTEM).pop();
    pool.waits(SYSTEM, 3);
    pool.book.preempt(first, 3);
    expect(pool.violations).to.deep.equal([`${first.id} is preempted without need`]);
  });
});

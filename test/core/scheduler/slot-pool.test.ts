import { expect } from "chai";
import fc from "fast-check";
import {
  RANKS,
  rankOf,
  type ClassRank,
  type PerClass,
} from "../../../extproc/core/model/priority.js";
import {
  classReservations,
  scaleFloor,
  scaleQueueShares,
} from "../../../extproc/core/scheduler/reservations.js";
import { SlotPool } from "../../../extproc/core/scheduler/slot-pool.js";

const BULK = rankOf("bulk");
const SYSTEM = rankOf("system");

function pool(capacity: number, reserved: PerClass<number>): SlotPool {
  const slots = new SlotPool();
  slots.resize(capacity, reserved);
  return slots;
}

function take(slots: SlotPool, rank: ClassRank, times: number): number {
  let taken = 0;
  for (let index = 0; index < times; index += 1) if (slots.tryTake(rank)) taken += 1;
  return taken;
}

describe("SlotPool", () => {
  it("S1 128 slots with 32 for system: bulk may take 96, system 128; its own reserve does not hurt bulk", () => {
    const slots = pool(128, [0, 0, 0, 32]);
    expect([slots.available(BULK), slots.available(SYSTEM)]).to.deep.equal([96, 128]);
    expect(pool(128, [32, 0, 0, 0]).available(BULK)).to.equal(128);
  });

  it("S2 with 32 system requests in flight bulk may take 96: a reservation in use no longer counts", () => {
    const slots = pool(128, [0, 0, 0, 32]);
    expect(take(slots, SYSTEM, 32)).to.equal(32);
    expect(slots.available(BULK)).to.equal(96);
  });

  it("S3 ten of each class on 40 slots leave none", () => {
    const slots = pool(40, [0, 0, 0, 0]);
    for (const rank of RANKS) expect(take(slots, rank, 10)).to.equal(10);
    for (const rank of RANKS) expect(slots.available(rank)).to.equal(0);
  });

  it("S4 4 slots with 2 for system: bulk gets 2 and no third, system still gets 2, then it is full", () => {
    const slots = pool(4, [0, 0, 0, 2]);
    expect(take(slots, BULK, 3)).to.equal(2);
    expect(take(slots, SYSTEM, 3)).to.equal(2);
    expect(slots.tryTakeIgnoringReservations(SYSTEM)).to.equal(false);
  });

  it("S5 4 slots all kept for system: bulk is refused, and accepted when reservations are ignored", () => {
    const slots = pool(4, [0, 0, 0, 4]);
    expect(slots.tryTake(BULK)).to.equal(false);
    expect(slots.tryTakeIgnoringReservations(BULK)).to.equal(true);
    expect(slots.total).to.equal(1);
  });

  it("S6 200 tries in one tick on 64 slots take exactly 64, and a full pool refuses", () => {
    const slots = pool(64, [0, 0, 0, 0]);
    expect(take(slots, BULK, 200)).to.equal(64);
    expect(slots.tryTakeIgnoringReservations(SYSTEM)).to.equal(false);
  });

  it("S6 a release too many is an invariant's business and leaves the count at zero", () => {
    const slots = pool(1, [0, 0, 0, 0]);
    slots.tryTake(BULK);
    slots.release(BULK);
    expect(() => {
      slots.release(BULK);
    }).to.throw(/released/);
    expect(slots.total).to.equal(0);
  });

  it("never exceeds its capacity at a take, and agrees with the formula, in any order of calls", () => {
    const step = fc.record({
      kind: fc.constantFrom("take", "force", "release", "resize"),
      rank: fc.constantFrom(...RANKS),
      amount: fc.nat(20),
      reserved: fc.tuple(fc.nat(6), fc.nat(6), fc.nat(6), fc.nat(6)),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 150 }), (steps) => {
        const slots = pool(8, [0, 1, 2, 1]);
        let capacity = 8;
        let reserved: PerClass<number> = [0, 1, 2, 1];
        const used: [number, number, number, number] = [0, 0, 0, 0];
        const total = (): number => used[0] + used[1] + used[2] + used[3];
        for (const { kind, rank, amount, reserved: next } of steps) {
          let kept = 0;
          for (const higher of RANKS) {
            if (higher > rank) kept += Math.max(0, reserved[higher] - used[higher]);
          }
          const free = Math.max(0, Math.max(0, capacity - total()) - kept);
          expect(slots.available(rank)).to.equal(free);
          if (kind === "take") {
            expect(slots.tryTake(rank)).to.equal(free > 0);
            if (free > 0) used[rank] += 1;
          } else if (kind === "force") {
            const possible = total() < capacity;
            expect(slots.tryTakeIgnoringReservations(rank)).to.equal(possible);
            if (possible) used[rank] += 1;
          } else if (kind === "release" && used[rank] > 0) {
            slots.release(rank);
            used[rank] -= 1;
          } else if (kind === "resize") {
            capacity = amount;
            reserved = next;
            slots.resize(capacity, reserved);
          }
          expect(slots.total).to.equal(total());
          expect(slots.free).to.equal(Math.max(0, capacity - total()));
        }
      }),
    );
  });
});

/** Floors and shares of the shipped classes, bulk first. */
const DEFAULTS = [
  { floor: 0, perSlot: 0 },
  { floor: 0, perSlot: 0.1 },
  { floor: 128, perSlot: 0.25 },
  { floor: 32, perSlot: 0 },
] as const;

describe("classReservations", () => {
  it("E1 gives the table of capacities 800, 256, 200, 100 and 80, and the same again after a shrink", () => {
    const table: readonly (readonly [number, PerClass<number>])[] = [
      [800, [0, 80, 200, 32]],
      [256, [0, 26, 128, 32]],
      [200, [0, 20, 128, 32]],
      [100, [0, 0, 68, 32]],
      [80, [0, 0, 48, 32]],
      [800, [0, 80, 200, 32]],
    ];
    for (const [capacity, reserved] of table) {
      expect(classReservations(DEFAULTS, capacity, 1), String(capacity)).to.deep.equal(reserved);
    }
  });

  it("takes at most half of the capacity by default, from the highest class down", () => {
    expect(classReservations(DEFAULTS, 24, 0.5)).to.deep.equal([0, 0, 0, 12]);
    expect(classReservations(DEFAULTS, 100, 0.5)).to.deep.equal([0, 0, 18, 32]);
    expect(classReservations(DEFAULTS, 1, 0.5)).to.deep.equal([0, 0, 0, 0]);
    expect(classReservations(DEFAULTS, 0, 1)).to.deep.equal([0, 0, 0, 0]);
  });

  it("takes a share that is no number, infinite or negative for none", () => {
    for (const perSlot of [Number.NaN, Number.POSITIVE_INFINITY, -1]) {
      const settings = [DEFAULTS[0], DEFAULTS[0], DEFAULTS[0], { floor: 0, perSlot }] as const;
      expect(classReservations(settings, 10, 1)).to.deep.equal([0, 0, 0, 0]);
    }
  });

  it("never hands out more than its part, and never less than nothing", () => {
    const setting = fc.record({
      floor: fc.nat(200),
      perSlot: fc.double({ min: 0, max: 2, noNaN: true }),
    });
    fc.assert(
      fc.property(
        fc.tuple(setting, setting, setting, setting),
        fc.nat(1_000),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (settings, capacity, share) => {
          const reserved = classReservations(settings, capacity, share);
          const sum = reserved.reduce((left, right) => left + right, 0);
          expect(sum).to.be.at.most(Math.floor(share * capacity));
          for (const slots of reserved) expect(slots).to.be.at.least(0);
        },
      ),
    );
  });
});

describe("derived settings", () => {
  it("G8 scales a floor to a partition of 64 among 8000: system 32 to 1, interactive 128 to 2", () => {
    expect([scaleFloor(32, 64, 8_000), scaleFloor(128, 64, 8_000)]).to.deep.equal([1, 2]);
  });

  it("G7 scales the queue shares to an exact budget", () => {
    const shares: PerClass<number> = [1_024, 512, 256, 64];
    const table: readonly (readonly [number, PerClass<number>])[] = [
      [2_000, [1_103, 551, 275, 71]],
      [100, [55, 27, 13, 5]],
      [40, [22, 11, 5, 2]],
      [0, [0, 0, 0, 0]],
    ];
    for (const [total, scaled] of table) {
      expect(scaleQueueShares(shares, total), String(total)).to.deep.equal(scaled);
    }
    expect(scaleQueueShares([0, 0, 0, 0], 100)).to.deep.equal([0, 0, 0, 0]);
  });
});

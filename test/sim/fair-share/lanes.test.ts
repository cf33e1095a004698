// What goes on in one lane must not decide another: a waiter that is not served holds the clock, and a
// waiter in debt is the oldest of its lane. The real scheduler and ledger, on virtual time.

import { expect } from "chai";
import { chosenSeed } from "../chosen-seed.js";
import { FairnessChecker, type Nearest } from "./fairness-bound.js";
import {
  debtorsInABucket,
  heldClock,
  HOLDER_THAT_COMES,
  namedDebtor,
  PARKED_IN_A_FULL_PARTITION,
  PARKED_IN_BULK,
  SELDOM_SERVED,
} from "./lanes.js";
import { Pool } from "./pool.js";
import type { PoolPlan, Span } from "./pool-plan.js";
import { checking } from "./tally.js";

const MINUTE_MS = 60_000;
const COMES_AT_MS = 10 * MINUTE_MS;
const COMES: readonly Span[] = [[COMES_AT_MS, Number.POSITIVE_INFINITY]];
const COMES_AND_GOES: readonly Span[] = Array.from({ length: 20 }, (_, index) => [
  (6 * index + 5) * MINUTE_MS,
  (6 * index + 7) * MINUTE_MS,
]);

function told(seed: number, moment: Nearest | undefined): string {
  if (moment === undefined) return `SIM_SEED=${String(seed)}: nobody was compared`;
  const { ahead, behind, gap, bound } = moment;
  return (
    `SIM_SEED=${String(seed)}: ${ahead} is ${gap.toFixed(0)} tokens per weight ahead of ${behind}, ` +
    `bound ${bound.toFixed(0)}`
  );
}

/** Every pair of the lane, after every settlement. */
function expectWithinBound(plan: PoolPlan, lengthMs: number): void {
  const seed = chosenSeed();
  const checker = new FairnessChecker(plan.slots, plan.contestants, plan.catchUpTokens);
  const compared = new Set<number>();
  const pool = new Pool(plan, seed, [
    checking(checker, plan),
    { settled: (tenant) => compared.add(tenant) },
  ]);
  pool.run({ ms: lengthMs });
  expect(pool.idleSlotMs, "slots were free while somebody waited").to.equal(0);
  const comes = plan.tenants.findIndex(({ name }) => name === "newcomer");
  expect(compared.has(comes), "the newcomer was served").to.equal(true);
  expect(checker.violations, told(seed, checker.firstViolation)).to.equal(0);
}

describe("a tenant that comes while a waiter that is not served holds the clock", function () {
  this.timeout(60_000);

  for (const holder of [
    PARKED_IN_BULK,
    PARKED_IN_A_FULL_PARTITION,
    SELDOM_SERVED,
    HOLDER_THAT_COMES,
  ]) {
    it(`took all slots until it had caught up on what the others were served before: ${holder.title}`, () => {
      expectWithinBound(heldClock(holder, COMES), 3 * COMES_AT_MS);
    });

    it(`took all slots each time it came back: ${holder.title}`, () => {
      expectWithinBound(heldClock(holder, COMES_AND_GOES), 120 * MINUTE_MS);
    });
  }

  for (const holder of [PARKED_IN_BULK, PARKED_IN_A_FULL_PARTITION, HOLDER_THAT_COMES]) {
    for (const weight of [0.1, 5]) {
      it(`took all slots with weight ${String(weight)}: ${holder.title}`, () => {
        expectWithinBound(heldClock(holder, COMES, weight), 3 * COMES_AT_MS);
      });
    }
  }
});

describe("a profile whose oldest waiter is in debt within the profile", function () {
  this.timeout(60_000);
  const WINDOW_MS = 2 * MINUTE_MS;
  const WINDOWS = 10;

  /** Of the turns in each window since the flat tenant came, its part. */
  function partsOfFlat(plan: PoolPlan): { readonly seed: number; readonly parts: number[] } {
    const seed = chosenSeed();
    const windows = Array.from({ length: WINDOWS }, () => ({ turns: 0, ofFlat: 0 }));
    const pool: Pool = new Pool(plan, seed, [
      {
        runs: (tenant) => {
          const window = windows[Math.floor((pool.now - COMES_AT_MS) / WINDOW_MS)];
          if (window === undefined) return;
          window.turns += 1;
          if (plan.tenants[tenant]?.name === "flat") window.ofFlat += 1;
        },
      },
    ]);
    pool.run({ ms: COMES_AT_MS + WINDOWS * WINDOW_MS });
    expect(pool.idleSlotMs, "slots were free while somebody waited").to.equal(0);
    return { seed, parts: windows.map(({ turns, ofFlat }) => ofFlat / turns) };
  }

  for (const plan of [debtorsInABucket(COMES), namedDebtor(COMES)]) {
    it(`took every turn of the lane, and who has flat weights got nothing: ${plan.title}`, () => {
      const { seed, parts } = partsOfFlat(plan);
      // As many clients on both sides: each gets half of the turns.
      for (const part of parts) {
        expect(part, `SIM_SEED=${String(seed)}: ${parts.map((one) => one.toFixed(2)).join(" ")}`)
          .to.be.at.least(0.35)
          .and.at.most(0.65);
      }
    });
  }
});

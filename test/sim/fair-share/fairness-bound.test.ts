// Is fair sharing fair? The real scheduler and ledger serve a million requests of tenants that always
// wait, and after every settlement each pair of tenants is within its bound. Three policies that are
// unfair on purpose are found by the same checker.

import { expect } from "chai";
import { chosenSeed } from "../chosen-seed.js";
import {
  boundFromAnyMoment,
  boundFromEqualClocks,
  FairnessChecker,
  type Nearest,
} from "./fairness-bound.js";
import { BY_DEFAULT, CHAT, TENFOLD_EITHER_WAY, type EstimateRule } from "./lengths.js";
import { Pool } from "./pool.js";
import { flatPool, type PoolPlan, type Span } from "./pool-plan.js";
import { checking } from "./tally.js";
import { UNFAIR_POLICIES } from "./unfair.js";

const SHORT = process.env["CI"] !== undefined;
/** A machine that tests every change runs shorter ones. */
const REQUESTS = SHORT ? 100_000 : 1_000_000;
const REQUESTS_OF_TWO = SHORT ? 50_000 : 400_000;
const REQUESTS_OF_VARIANTS = SHORT ? 20_000 : 100_000;
const REQUESTS_OF_UNFAIR = 20_000;
const SLOTS = 8;

const always = (factor: number): EstimateRule => ({ kind: "factor", factors: [factor] });

/** Tenants a, b, c that always have something waiting. */
function backlogged(
  weights: readonly number[],
  estimates: readonly EstimateRule[],
  spans: readonly (readonly Span[] | undefined)[] = [],
): PoolPlan {
  const tenants = weights.map((weight, index) => {
    const span = spans[index];
    const traffic = {
      rank: 1,
      arrivals: { kind: "backlogged", clients: 2 * SLOTS, ...(span && { spans: span }) },
      lengths: CHAT,
      estimate: estimates[index] ?? BY_DEFAULT,
      leaving: 0.02,
      withoutUsage: 0.02,
    } as const;
    return ["abc"[index] ?? "", { weight, traffic: [traffic] }] as const;
  });
  return flatPool("always waiting", Object.fromEntries(tenants), { slots: SLOTS });
}

function check(plan: PoolPlan, seed: number, requests: number): FairnessChecker {
  const checker = new FairnessChecker(plan.slots, plan.contestants);
  const pool = new Pool(plan, seed, [checking(checker, plan)]);
  pool.run({ requests });
  expect(checker.settlements).to.equal(requests);
  expect(pool.idleSlotMs, "slots were free while somebody waited").to.equal(0);
  return checker;
}

const told = (moment: Nearest | undefined): string =>
  moment === undefined
    ? "never"
    : `${moment.ahead} ${moment.gap.toFixed(0)} tokens per weight ahead of ${moment.behind}, ` +
      `${(100 * moment.share).toFixed(1)} % of the bound, at settlement ${String(moment.atSettlement)}`;

function expectWithinBound(plan: PoolPlan, requests: number): void {
  const seed = chosenSeed();
  const checker = check(plan, seed, requests);
  console.log(`      SIM_SEED=${String(seed)}, ${String(requests)} requests`);
  console.log(`      nearest to the bound: ${told(checker.nearest)}`);
  console.log(`      largest gap: ${told(checker.largestGap)}`);
  expect(checker.violations, `SIM_SEED=${String(seed)}: ${told(checker.firstViolation)}`).to.equal(
    0,
  );
  // A gap that is always tiny would mean that nothing was compared.
  expect(checker.nearest?.share).to.be.greaterThan(0.02);
}

const MINUTE_MS = 60_000;
const COMING_AND_GOING: readonly Span[] = Array.from({ length: 2_000 }, (_, index) => [
  7 * index * MINUTE_MS,
  (7 * index + 4) * MINUTE_MS,
]);

describe("the bound of fairness", function () {
  this.timeout(180_000);

  describe("two tenants that always wait stay within it in every prefix", () => {
    it(`of ${String(REQUESTS)} requests with weights 5:3:2, each estimated 10 times too high, too low, or right`, () => {
      const mixed = TENFOLD_EITHER_WAY;
      expectWithinBound(backlogged([5, 3, 2], [mixed, mixed, mixed]), REQUESTS);
    });

    it(`of ${String(REQUESTS_OF_TWO)} requests with weights 2:1, one estimated 10 times too high, one 10 times too low`, () => {
      expectWithinBound(backlogged([2, 1], [always(10), always(0.1)]), REQUESTS_OF_TWO);
    });

    const variants: readonly (readonly [string, PoolPlan])[] = [
      ["2:1, one estimate for all", backlogged([2, 1], [BY_DEFAULT, BY_DEFAULT])],
      ["2:1, right estimates", backlogged([2, 1], [always(1), always(1)])],
      [
        "5:3:2, one too high, one too low",
        backlogged([5, 3, 2], [always(10), always(0.1), always(1)]),
      ],
      [
        "5:3:2, two that come and go",
        backlogged(
          [5, 3, 2],
          [always(0.1), always(10), TENFOLD_EITHER_WAY],
          [
            undefined,
            COMING_AND_GOING,
            COMING_AND_GOING.map(([from, to]) => [from + 1, to + 90_000]),
          ],
        ),
      ],
    ];
    for (const [title, plan] of variants) {
      it(`of ${String(REQUESTS_OF_VARIANTS)} requests with weights ${title}`, () => {
        expectWithinBound(plan, REQUESTS_OF_VARIANTS);
      });
    }
  });

  describe("a policy that is unfair on purpose is found by the same checker:", () => {
    for (const { title, apply } of UNFAIR_POLICIES) {
      it(title, () => {
        const plan = backlogged([5, 3, 2], [always(10), always(0.1), always(1)]);
        const mend = apply();
        try {
          const checker = check(plan, 5, REQUESTS_OF_UNFAIR);
          console.log(
            `      found: ${told(checker.firstViolation)}; at last ${told(checker.nearest)}`,
          );
          expect(checker.violations).to.be.greaterThan(0);
        } finally {
          mend();
        }
        expect(check(plan, 5, REQUESTS_OF_UNFAIR).violations).to.equal(0);
      });
    }
  });

  describe("its formula", () => {
    const a = { name: "a", weight: 2 };
    const b = { name: "b", weight: 1 };

    it("adds the last choice of the one ahead and, per other slot, its own charge or the other's estimate", () => {
      // 100 / 2 + 3 * max(100 / 2, 30 / 1); the other way 100 / 1 + 3 * max(100 / 1, 30 / 2).
      const extremes = { chargeTokens: 100, estimateTokens: 30 };
      expect(boundFromEqualClocks(4, extremes, a, b)).to.equal(200);
      expect(boundFromEqualClocks(4, extremes, b, a)).to.equal(400);
      // 100 / 2 + 3 * 80 / 1.
      expect(boundFromEqualClocks(4, { ...extremes, estimateTokens: 80 }, a, b)).to.equal(290);
    });

    it("is four times slots and largest request over the least weight for tenants that come at any time", () => {
      const extremes = { chargeTokens: 100, estimateTokens: 130 };
      expect(boundFromAnyMoment(4, extremes, 2)).to.equal(1_040);
    });

    it("grants a tenant that comes what it may catch up on, by the least weight of those in the lane", () => {
      const elsewhere = { name: "c", weight: 0.1, elsewhere: true };
      const checker = new FairnessChecker(4, [a, b, elsewhere], 80);
      checker.waits(0);
      checker.waits(2);
      checker.settled(0, 10);
      checker.waits(1);
      checker.settled(1, 10);
      // 4 * 4 * 10 / 1 + 80 / 1; nothing is said about who waits elsewhere.
      expect(checker.nearest).to.include({ ahead: "b", behind: "a", gap: 10, bound: 240 });
      checker.settled(2, 1);
      expect(checker.largestGap).to.include({ ahead: "b", behind: "a", gap: 10 });
    });

    it("is reached: a tenant has all slots when the other comes, and each answer is the longest", () => {
      const checker = new FairnessChecker(4, [{ name: "a", weight: 1 }, b]);
      for (let slot = 0; slot < 4; slot += 1) checker.booked(1);
      checker.waits(0);
      checker.waits(1);
      for (let slot = 0; slot < 4; slot += 1) checker.settled(0, 100);
      expect(checker.nearest).to.include({ gap: 400, bound: 400, share: 1 });
      expect(checker.violations).to.equal(0);
      checker.settled(0, 100);
      expect(checker.firstViolation).to.include({ gap: 500, ahead: "a", atSettlement: 5 });
    });
  });
});

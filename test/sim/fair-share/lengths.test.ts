import { expect } from "chai";
import { Chance } from "../chance.js";
import { BY_DEFAULT, CHAT, drawTokens, estimateTokens } from "./lengths.js";

const DRAWS = 50_000;

describe("the lengths of simulated answers", () => {
  it("stay within their limits, with the tail of a bounded Pareto distribution", () => {
    const chance = new Chance(3);
    const lengths = Array.from({ length: DRAWS }, () => drawTokens(CHAT, chance));
    const { lowTokens, capTokens, tail } = CHAT;
    expect(lengths.reduce((one, other) => Math.min(one, other))).to.equal(lowTokens);
    expect(lengths.reduce((one, other) => Math.max(one, other))).to.be.within(
      0.5 * capTokens,
      capTokens,
    );
    // P(X > x) = ((low/x)^tail - (low/cap)^tail) / (1 - (low/cap)^tail).
    const beyondCap = (lowTokens / capTokens) ** tail;
    for (const limit of [64, 320, 3_200]) {
      const expected = ((lowTokens / limit) ** tail - beyondCap) / (1 - beyondCap);
      const found = lengths.filter((tokens) => tokens >= limit).length / DRAWS;
      // Five standard deviations of a share of that many draws.
      expect(found).to.be.closeTo(expected, 5 * Math.sqrt(expected / DRAWS));
    }
  });

  it("are estimated by one of the factors, at least 1 token, or by the default", () => {
    const chance = new Chance(4);
    const tenfold = { kind: "factor", factors: [0.1, 1, 10] } as const;
    const found = new Set(Array.from({ length: 100 }, () => estimateTokens(tenfold, 50, chance)));
    expect([...found].sort((one, other) => one - other)).to.deep.equal([5, 50, 500]);
    expect(estimateTokens({ kind: "factor", factors: [0.1] }, 2, chance)).to.equal(1);
    expect(estimateTokens(BY_DEFAULT, 9_999, chance)).to.equal(256);
  });
});

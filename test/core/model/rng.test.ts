import { expect } from "chai";
import fc from "fast-check";
import { createRng } from "../../../extproc/core/model/rng.js";

describe("createRng", () => {
  it("replays the same stream from the same seed, and another one from a neighbouring seed", () => {
    const draw = (seed: number): number[] => {
      const rng = createRng(seed);
      return Array.from({ length: 20 }, () => rng.uint32());
    };
    expect(draw(7)).to.deep.equal(draw(7));
    expect(draw(7)).to.not.deep.equal(draw(8));
  });

  it("stays below the bound, for any bound", () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 2 ** 32 }), (seed, bound) => {
        const value = createRng(seed).below(bound);
        return Number.isInteger(value) && value >= 0 && value < bound;
      }),
    );
  });

  it("draws each of five values about equally often", () => {
    const rng = createRng(1);
    const counts = [0, 0, 0, 0, 0];
    for (let draw = 0; draw < 50_000; draw += 1) {
      const value = rng.below(5);
      counts[value] = (counts[value] ?? 0) + 1;
    }
    // 10,000 expected each; a deviation of 500 is more than five standard deviations (about 89).
    for (const count of counts) expect(count).to.be.within(9_500, 10_500);
  });
});

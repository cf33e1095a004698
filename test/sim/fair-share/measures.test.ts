import { expect } from "chai";
import { jainIndex, partsOf, quantile } from "./measures.js";

describe("the measures of a simulation", () => {
  it("give Jain's index: 1 for equal values, 1/n when one has all, 0.9 for 1 and 2", () => {
    expect(jainIndex([7, 7, 7])).to.equal(1);
    expect(jainIndex([9, 0, 0, 0])).to.equal(0.25);
    // (1 + 2)^2 / (2 * (1 + 4)).
    expect(jainIndex([1, 2])).to.equal(0.9);
    expect(jainIndex([0, 0])).to.equal(1);
    expect(jainIndex([])).to.equal(1);
  });

  it("give quantiles by nearest rank", () => {
    const values = [10, 20, 30, 40];
    expect(quantile(values, 0.5)).to.equal(20);
    expect(quantile(values, 0.51)).to.equal(30);
    expect(quantile(values, 0.99)).to.equal(40);
    expect(quantile(values, 0)).to.equal(10);
    expect(quantile([], 0.5)).to.equal(undefined);
  });

  it("divide tokens by weight", () => {
    expect(partsOf(100, [5, 3, 2])).to.deep.equal([50, 30, 20]);
    expect(partsOf(100, [])).to.deep.equal([]);
  });
});

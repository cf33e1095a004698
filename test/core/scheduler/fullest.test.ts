// The one with the most places, by class.

import { expect } from "chai";
import { RANKS } from "../../../extproc/core/model/priority.js";
import { Fullest } from "../../../extproc/core/scheduler/fullest.js";

describe("the fullest", () => {
  const firsts = (fullest: Fullest<string, undefined>): (string | undefined)[] =>
    RANKS.map((rank) => fullest.first(rank)?.key);

  it("of a class is the one with the most places of those with a waiter of the class or a lower one", () => {
    const fullest = new Fullest<string, undefined>(() => undefined);
    expect(firsts(fullest)).to.deep.equal([undefined, undefined, undefined, undefined]);
    const high = fullest.add("high", 2);
    fullest.add("high", 2);
    fullest.add("high", 3);
    expect(firsts(fullest)).to.deep.equal([undefined, undefined, "high", "high"]);
    const low = fullest.add("low", 1);
    fullest.add("low", 3);
    expect(firsts(fullest), "three and two").to.deep.equal([undefined, "low", "high", "high"]);
    fullest.remove(low, 1);
    expect(firsts(fullest)).to.deep.equal([undefined, undefined, "high", "high"]);
    fullest.remove(high, 2);
    fullest.remove(high, 2);
    expect(firsts(fullest), "one and one, low came last").to.deep.equal([
      undefined,
      undefined,
      undefined,
      "low",
    ]);
  });

  it("is nobody that gave back all its places, and who comes again is new", () => {
    let made = 0;
    const fullest = new Fullest<string, number>(() => (made += 1));
    const one = fullest.add("one", 0);
    expect(fullest.add("one", 0)).to.equal(one);
    fullest.remove(one, 0);
    fullest.remove(one, 0);
    expect(fullest.first(3)).to.equal(undefined);
    expect(fullest.add("one", 0).value).to.equal(2);
  });

  it("is asked to take back only a place that is held", () => {
    const fullest = new Fullest<string, undefined>(() => undefined);
    const one = fullest.add("one", 0);
    expect(() => {
      fullest.remove(one, 1);
    }).to.throw(/only a place that is held/);
  });
});

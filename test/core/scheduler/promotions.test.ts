import { expect } from "chai";
import fc from "fast-check";
import { RANKS, type ClassRank } from "../../../extproc/core/model/priority.js";
import { PROMOTION_WINDOW, PromotionWindow } from "../../../extproc/core/scheduler/promotions.js";

describe("PromotionWindow", () => {
  it("allows 16 contested promotions among 64 dispatches by default, and the next one when the first has left", () => {
    const window = new PromotionWindow(0.25);
    for (let index = 0; index < 16; index += 1) {
      expect(window.allowsContested).to.equal(true);
      window.dispatched(0);
    }
    expect(window.allowsContested).to.equal(false);
    for (let index = 16; index < 64; index += 1) window.dispatched(undefined);
    expect(window.allowsContested).to.equal(false);
    window.dispatched(undefined);
    expect(window.allowsContested).to.equal(true);
  });

  it("never stops promotions at a share of 1 and never allows one at 0", () => {
    const all = new PromotionWindow(1);
    for (let index = 0; index < 200; index += 1) all.dispatched(0);
    expect(all.allowsContested).to.equal(true);
    expect(new PromotionWindow(0).allowsContested).to.equal(false);
  });

  it("counts per lane what stands among the last 64, in any history", () => {
    const entry = fc.constantFrom<ClassRank | undefined>(undefined, 0, 1, 2);
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 300 }), (history) => {
        const window = new PromotionWindow(0.25);
        for (const promoted of history) window.dispatched(promoted);
        const recent = history.slice(-PROMOTION_WINDOW);
        for (const rank of RANKS) {
          expect(window.countOf(rank)).to.equal(recent.filter((one) => one === rank).length);
        }
        expect(window.allowsContested).to.equal(
          recent.filter((one) => one !== undefined).length < 16,
        );
      }),
    );
  });
});

import { expect } from "chai";
import fc from "fast-check";
import { ORPHAN_AGE_MAX_MS, Orphans } from "../../../extproc/core/capacity/orphans.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";

const A = "http://127.0.0.1:1";
const B = "http://127.0.0.1:2";

describe("orphans of the last process", () => {
  const total = (orphans: Orphans, atMs: number, urls = [A, B]): number =>
    orphans.total(urls, monotonicMs(atMs));

  it("are what a worker runs beyond the live load when it is first heard of", () => {
    const orphans = new Orphans();
    orphans.observe(A, 30, 2, monotonicMs(0));
    orphans.observe(B, 5, 5, monotonicMs(0));
    expect(total(orphans, 0)).to.equal(28);
    expect(total(orphans, 0, [B])).to.equal(0);
  });

  it("only ever fall: requests that the engine has and the live load has no longer add none", () => {
    const orphans = new Orphans();
    orphans.observe(A, 30, 0, monotonicMs(0));
    orphans.observe(A, 40, 30, monotonicMs(10_000));
    expect(total(orphans, 10_000)).to.equal(10);
    orphans.observe(A, 40, 0, monotonicMs(20_000));
    expect(total(orphans, 20_000)).to.equal(10);
    orphans.observe(A, 3, 8, monotonicMs(30_000));
    expect(total(orphans, 30_000)).to.equal(0);
  });

  it("are 0 without telemetry", () => {
    expect(total(new Orphans(), 0)).to.equal(0);
  });

  it("are 0 for good ten minutes after the first sample, whatever comes later", () => {
    const orphans = new Orphans();
    orphans.observe(A, 30, 0, monotonicMs(5));
    expect(total(orphans, 5 + ORPHAN_AGE_MAX_MS - 1)).to.equal(30);
    expect(total(orphans, 5 + ORPHAN_AGE_MAX_MS)).to.equal(0);
    orphans.observe(A, 30, 0, monotonicMs(5 + ORPHAN_AGE_MAX_MS));
    expect(total(orphans, 5 + ORPHAN_AGE_MAX_MS + 1)).to.equal(0);
  });

  it("begin anew with a worker that was removed and registered again", () => {
    const orphans = new Orphans();
    orphans.observe(A, 30, 30, monotonicMs(0));
    orphans.forget(A);
    orphans.observe(A, 30, 20, monotonicMs(1_000));
    expect(total(orphans, 1_000)).to.equal(10);
  });

  it("never rise and never go below 0, for any samples", () => {
    const samples = fc.array(fc.tuple(fc.nat(100), fc.nat(100)), { minLength: 1 });
    fc.assert(
      fc.property(samples, (all) => {
        const orphans = new Orphans();
        let before = Number.POSITIVE_INFINITY;
        all.forEach(([running, liveLoad], index) => {
          orphans.observe(A, running, liveLoad, monotonicMs(index * 1_000));
          const now = total(orphans, index * 1_000);
          expect(now).to.be.within(0, Math.min(before, Math.max(0, running - liveLoad)));
          before = now;
        });
      }),
    );
  });
});

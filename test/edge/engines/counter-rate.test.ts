import { expect } from "chai";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import {
  CounterRate,
  RATE_GAP_MAX_MS,
  RATE_GAP_MIN_MS,
} from "../../../extproc/edge/engines/counter-rate.js";

/** The rates of scrapes given as (ms, counters of series a and b). */
function rates(...scrapes: (readonly [number, Record<string, number>])[]): unknown[] {
  const rate = new CounterRate();
  return scrapes.map(([at, counters]) =>
    rate.observe(new Map(Object.entries(counters)), monotonicMs(at)),
  );
}

describe("CounterRate", () => {
  it("gives the growth of all series by the time between, from the second scrape on", () => {
    expect(
      rates([0, { a: 100, b: 0 }], [10_000, { a: 600, b: 500 }], [12_000, { a: 600, b: 600 }]),
    ).to.deep.equal([undefined, 100, 50]);
  });

  it("is 0 for counters that stand still", () => {
    expect(rates([0, { a: 5 }], [1000, { a: 5 }])).to.deep.equal([undefined, 0]);
  });

  it("takes a counter that went down for a new start, also when another one grew", () => {
    expect(
      rates([0, { a: 900, b: 10 }], [1000, { a: 30, b: 5000 }], [2000, { a: 130, b: 5000 }]),
    ).to.deep.equal([undefined, undefined, 100]);
  });

  it("takes a series that came or went for a new start", () => {
    expect(rates([0, { a: 1 }], [1000, { a: 2, b: 7 }], [2000, { a: 3 }])).to.deep.equal([
      undefined,
      undefined,
      undefined,
    ]);
    expect(rates([0, { a: 1 }], [1000, { b: 7 }])).to.deep.equal([undefined, undefined]);
  });

  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    it(`does not know the rate of a counter that is ${String(value)}`, () => {
      expect(rates([0, { a: 1 }], [1000, { a: value }])[1]).to.equal(undefined);
      expect(rates([0, { a: value }], [1000, { a: value }])[1]).to.equal(undefined);
    });
  }

  it("keeps the earlier scrape when the next one comes too soon", () => {
    const soon = RATE_GAP_MIN_MS - 1;
    expect(rates([0, { a: 0 }], [soon, { a: 50 }], [1000, { a: 200 }])).to.deep.equal([
      undefined,
      undefined,
      200,
    ]);
    expect(rates([0, { a: 0 }], [RATE_GAP_MIN_MS, { a: 50 }])[1]).to.equal(500);
  });

  it("starts anew after a long gap", () => {
    expect(rates([0, { a: 0 }], [RATE_GAP_MAX_MS, { a: 300 }])[1]).to.equal(1);
    const late = RATE_GAP_MAX_MS + 1;
    expect(rates([0, { a: 0 }], [late, { a: 300 }], [late + 1000, { a: 400 }])).to.deep.equal([
      undefined,
      undefined,
      100,
    ]);
  });
});

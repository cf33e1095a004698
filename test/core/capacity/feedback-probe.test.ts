// How far from the knee the limit is set: the margin, its doubling, the dips. Improvement ratio 0.02,
// so an offer differs from the knee by 5 percent.

import { expect } from "chai";
import {
  LimitProbe,
  probeMargin,
  type ProbeSample,
} from "../../../extproc/core/capacity/feedback-probe.js";

const KNOBS = { marginMin: 2, improvementRatio: 0.02, referenceRule: false };
const AT_KNEE: ProbeSample = {
  verdict: "plateau",
  gain: 0,
  bound: true,
  pressure: "none",
  ceilingKnown: true,
  running: 105,
  kneeBefore: 100,
  knee: 100,
};

function probe(samples: readonly Partial<ProbeSample>[] = [], knobs = KNOBS): LimitProbe {
  const made = new LimitProbe(knobs);
  for (const sample of samples) made.observe({ ...AT_KNEE, ...sample });
  return made;
}

const times = (count: number, sample: Partial<ProbeSample> = {}): Partial<ProbeSample>[] =>
  Array.from({ length: count }, () => sample);
/** A first sample starts the long rest. */
const FIRST = { verdict: "first" } as const;
const RAISED = { verdict: "raised", gain: 1 } as const;

describe("the probe margin", () => {
  for (const [knee, margin] of [
    [1, 2],
    [40, 2],
    // 5 percent of 41 is 2.05.
    [41, 3],
    [140, 7],
    [200, 10],
    [512, 26],
  ] as const) {
    it(`is ${String(margin)} per worker at a knee of ${String(knee)}`, () => {
      expect(probeMargin(KNOBS, knee)).to.equal(margin);
      expect(probe([FIRST]).offset(knee, 3)).to.equal(3 * margin);
    });
  }

  it("stays at the fixed number under the reference rule, whatever is seen", () => {
    const reference = { ...KNOBS, referenceRule: true };
    const made = probe([...times(50), { pressure: "limited" }], reference);
    expect(made.offset(512, 2)).to.equal(4);
  });

  it("doubles with each further raise that earns what it costs, up to the knee itself", () => {
    const offsets = [1, 2, 3, 4, 5, 6].map((raises) =>
      probe([FIRST, ...times(raises, RAISED)]).offset(100, 1),
    );
    expect(offsets).to.deep.equal([5, 10, 20, 40, 80, 80]);
    expect(probe([FIRST, ...times(5, RAISED)]).offset(12, 1)).to.equal(12);
  });

  it("doubles to four times at most without ceilings: a step too far would wait at the engines", () => {
    const raised = { ...RAISED, ceilingKnown: false };
    expect(probe([FIRST, ...times(5, raised)]).offset(100, 1)).to.equal(20);
  });

  it("falls back when a raise earns too little, when raises stop, or for want of demand", () => {
    const offset = (...then: readonly Partial<ProbeSample>[]): number =>
      probe([FIRST, RAISED, RAISED, ...then]).offset(100, 1);
    expect(offset()).to.equal(10);
    expect(offset({ ...RAISED, gain: 0.74 })).to.equal(5);
    expect(offset({ ...RAISED, bound: false })).to.equal(5);
    expect(offset(...times(3))).to.equal(10);
    expect(offset(...times(4))).to.equal(5);
  });

  it("is withheld for 30 samples after pressure under the learned limit, not after any other", () => {
    const after = (count: number): number =>
      probe([{ pressure: "limited" }, ...times(count, { bound: false })]).offset(100, 1);
    expect([after(0), after(29), after(30)]).to.deep.equal([0, 0, 5]);
    expect(probe([{ pressure: "unlimited" }]).offset(100, 1)).to.equal(5);
  });
});

describe("the dip below the knee", () => {
  it("comes after 18 bound samples at a knee that stays, 5 percent of all workers' requests deep", () => {
    expect(probe([FIRST, ...times(17)]).offer).to.equal("beyond");
    const dipping = probe([FIRST, ...times(18)]);
    expect(dipping.offer).to.equal("below");
    expect(dipping.offset(100, 4)).to.equal(-20);
  });

  it("is one request where 5 percent are less, and never more than half", () => {
    const dipping = probe([FIRST, ...times(18)]);
    expect(dipping.offset(8, 1)).to.equal(-1);
    const coarse = { ...KNOBS, improvementRatio: 0.5 };
    expect(probe([FIRST, ...times(18)], coarse).offset(100, 1)).to.equal(-50);
    const none = { ...KNOBS, improvementRatio: 0 };
    expect(probe([FIRST, ...times(18)], none).offset(100, 1)).to.equal(-1);
  });

  it("does not come for want of demand, and comes later when the knee moves", () => {
    expect(probe([FIRST, ...times(40, { bound: false })]).offer).to.equal("beyond");
    const moved = { verdict: "raised", kneeBefore: 100, knee: 103 } as const;
    expect(probe([FIRST, ...times(17), moved, ...times(17)]).offer).to.equal("beyond");
    // A quarter of a request is no move.
    const hardly = { verdict: "raised", kneeBefore: 100, knee: 100.25 } as const;
    expect(probe([FIRST, ...times(17), hardly]).offer).to.equal("below");
  });

  it("comes after 3 samples where the knee is known least: at the start and after pressure", () => {
    expect(probe([{ pressure: "unlimited" }, ...times(3)]).offer).to.equal("below");
    expect(probe(times(3)).offer).to.equal("below");
  });

  const dipping = [FIRST, ...times(18)];

  it("ends with the first sample that shows it and did worse, and rests again", () => {
    const shown = { verdict: "below", running: 95 } as const;
    expect(probe([...dipping, { running: 100 }]).offer).to.equal("below");
    expect(probe([...dipping, shown]).offer).to.equal("beyond");
    expect(probe([...dipping, shown, ...times(17)]).offer).to.equal("beyond");
    expect(probe([...dipping, shown, ...times(18)]).offer).to.equal("below");
  });

  it("says when it has shown that it costs throughput, and only then", () => {
    const told = (sample: Partial<ProbeSample>): boolean =>
      probe(dipping).observe({ ...AT_KNEE, ...sample });
    expect(told({ verdict: "below", running: 95 })).to.equal(true);
    expect(told({ verdict: "below", running: 100 })).to.equal(false);
    expect(told({ verdict: "lowered", running: 95 })).to.equal(false);
    expect(told({ verdict: "unbound", running: 20, bound: false })).to.equal(false);
    expect(told({ verdict: "below", running: 95, pressure: "limited" })).to.equal(false);
  });

  it("goes on as long as fewer requests do as well", () => {
    const lowered = { verdict: "lowered", running: 95, knee: 95 } as const;
    expect(probe([...dipping, ...times(20, lowered)]).offer).to.equal("below");
  });

  it("waits five samples to be shown, then gives up; pressure and want of demand end it", () => {
    expect(probe([...dipping, ...times(4)]).offer).to.equal("below");
    expect(probe([...dipping, ...times(5)]).offer).to.equal("beyond");
    expect(probe([...dipping, { pressure: "limited" }]).offer).to.equal("level");
    expect(probe([...dipping, { bound: false }]).offer).to.equal("beyond");
  });
});

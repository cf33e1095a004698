import { expect } from "chai";
import { planPressure } from "../../../extproc/core/selection/pressure.js";
import { Bench, rank } from "./support.js";

function allowed(...usages: number[]): number[] {
  const bench = new Bench({ workers: usages.length });
  bench.report(...usages);
  const plan = planPressure([...bench.registry.all()], bench.telemetry, bench.now);
  expect(plan).not.to.equal(undefined);
  return (plan?.allowed ?? []).map((worker) => bench.numberOf(worker));
}

describe("the pressure plan", () => {
  it("allows what is within 0.10 of the calmest worker", () => {
    expect(allowed(0.25, 0.35, 0.36)).to.deep.equal([0, 1]);
  });

  it("allows nobody above 0.90, however close to the calmest", () => {
    expect(allowed(0.85, 0.9, 0.91)).to.deep.equal([0, 1]);
  });

  it("allows only the calmest when even that is above 0.90", () => {
    expect(allowed(0.95, 0.91, 0.92)).to.deep.equal([1]);
  });

  it("takes the worse of KV usage and utilization of the worst rank", () => {
    const bench = new Bench({ workers: 3 });
    bench.reportRanks([
      [rank(0.1), rank(0.2, { utilization: 0.8 })],
      [rank(0.7, { utilization: 0.1 }), rank(0.1)],
      [rank(0.5)],
    ]);
    const plan = planPressure([...bench.registry.all()], bench.telemetry, bench.now);
    const pressures = [0, 1, 2].map((index) => plan?.pressure(bench.worker(index)));
    expect(pressures).to.deep.equal([0.8, 0.7, 0.5]);
  });

  it("counts the slots in use now, where every worker's ceiling is known", () => {
    const bench = new Bench({ workers: 2 });
    const worker = (running: number, waiting: number, maxRunning: number | undefined) => [
      rank(0.1, { running, waiting, maxRunning }),
    ];
    const pressures = (): unknown[] => {
      const plan = planPressure([...bench.registry.all()], bench.telemetry, bench.now);
      return [0, 1].map((index) => plan?.pressure(bench.worker(index)));
    };
    bench.load(0, 3);
    bench.reportRanks([worker(8, 4, 20), worker(0, 0, 20)]);
    expect(pressures(), "12 of 20, and the usage of the KV cache").to.deep.equal([0.6, 0.1]);
    bench.load(0, 6);
    bench.load(1, 4);
    expect(pressures(), "six and four were sent since").to.deep.equal([0.9, 0.2]);
    bench.reportRanks([worker(8, 4, undefined), worker(0, 0, 20)]);
    expect(pressures(), "one ceiling is unknown").to.deep.equal([0.1, 0.1]);
  });

  it("does not exist unless every worker has a sample of at most 30 s", () => {
    const bench = new Bench({ workers: 2 });
    const plan = (): unknown => planPressure([...bench.registry.all()], bench.telemetry, bench.now);
    expect(plan(), "nothing reported").to.equal(undefined);
    bench.report(0.5, undefined);
    expect(plan(), "one is missing").to.equal(undefined);
    bench.report(0.5, 0.5);
    bench.passSeconds(30);
    expect(plan(), "30 s").not.to.equal(undefined);
    bench.passSeconds(0.001);
    expect(plan(), "over 30 s").to.equal(undefined);
    expect(planPressure([...bench.registry.all()], undefined, bench.now)).to.equal(undefined);
  });

  it("does not exist when a worker reports no rank or no number", () => {
    const bench = new Bench({ workers: 2 });
    const plan = (): unknown => planPressure([...bench.registry.all()], bench.telemetry, bench.now);
    bench.reportRanks([[], [rank(0.5)]]);
    expect(plan()).to.equal(undefined);
    bench.report(Number.NaN, 0.5);
    expect(plan()).to.equal(undefined);
  });

  it("prefers, among equally loaded workers, the calmer one, then fewer waiting", () => {
    const bench = new Bench({ workers: 3 });
    bench.reportRanks([[rank(0.5)], [rank(0.4, { waiting: 2 })], [rank(0.4, { waiting: 1 })]]);
    const workers = [...bench.registry.all()];
    const plan = planPressure(workers, bench.telemetry, bench.now);
    const order = workers.toSorted((a, b) => plan?.calmer(a, b) ?? 0);
    expect(order.map((worker) => bench.numberOf(worker))).to.deep.equal([2, 1, 0]);
  });

  it("takes a worker outside the plan for full", () => {
    const bench = new Bench({ workers: 2 });
    bench.report(0.5, 0.5);
    const plan = planPressure([bench.worker(0)], bench.telemetry, bench.now);
    expect(plan?.allHot([bench.worker(1)])).to.equal(true);
    expect(plan?.calmer(bench.worker(0), bench.worker(1))).to.equal(0);
  });
});

import { expect } from "chai";
import { createRng } from "../../../extproc/core/model/rng.js";
import { Loads } from "../../../extproc/core/selection/loads.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { Bench, DEMO, POOL, scripted } from "./support.js";

function fleet(workers: number): { bench: Bench; all: readonly Worker[]; loads: Loads } {
  const bench = new Bench({ workers });
  return {
    bench,
    all: [...bench.registry.all()],
    loads: new Loads(bench.selector.bookings, createRng(1)),
  };
}

describe("the least loaded worker", () => {
  it("is found by reserved tokens, then requests, then those processed, then place", () => {
    const { bench, all, loads } = fleet(3);
    const least = (): number => bench.numberOf(loads.least(all));
    expect(least()).to.equal(0);
    bench.worker(0).runtime.holdLoad()();
    expect(least(), "0 has processed one").to.equal(1);
    bench.load(1, 1);
    expect(least(), "1 has one in flight").to.equal(2);
    bench.selector.bookings.reserve(bench.worker(2), 1);
    expect(least(), "2 has a token reserved").to.equal(0);
    bench.load(0, 5);
    expect(least(), "requests weigh less than tokens").to.equal(1);
  });

  it("counts a claim like a request in flight", () => {
    const { bench, all, loads } = fleet(2);
    const claim = bench.selector.bookings.claim(bench.worker(0), POOL, DEMO);
    expect(loads.requests(bench.worker(0))).to.equal(1);
    expect(bench.numberOf(loads.least(all))).to.equal(1);
    claim?.();
    expect(bench.numberOf(loads.least(all))).to.equal(0);
  });

  it("asks the tie break after all counts and before the place in the list", () => {
    const { bench, all, loads } = fleet(3);
    const later = (a: Worker, b: Worker): number => bench.numberOf(b) - bench.numberOf(a);
    expect(bench.numberOf(loads.least(all, later))).to.equal(2);
    bench.load(2, 1);
    expect(bench.numberOf(loads.least(all, later))).to.equal(1);
  });
});

describe("two random choices", () => {
  it("take the smaller reservation, then fewer requests, then the first drawn", () => {
    const { bench, all } = fleet(3);
    const { bookings } = bench.selector;
    const drawn = (...draws: number[]): number =>
      bench.numberOf(new Loads(bookings, scripted(...draws)).ofTwo(all));
    // Draws: first worker 0, then 1 + 0 further: worker 1.
    expect(drawn(0, 0)).to.equal(0);
    // First worker 2, then 1 + 1 further: worker 1.
    expect(drawn(2, 1)).to.equal(2);
    bench.load(2, 1);
    expect(drawn(2, 1)).to.equal(1);
    bookings.reserve(bench.worker(1), 1);
    expect(drawn(2, 1), "one token outweighs a request").to.equal(2);
  });

  it("never compare a worker with itself, so the busier of two is never chosen", () => {
    const { bench, all, loads } = fleet(2);
    bench.load(0, 1);
    for (let draw = 0; draw < 200; draw += 1) {
      expect(bench.numberOf(loads.ofTwo(all))).to.equal(1);
    }
  });

  it("take the only worker there is", () => {
    const { bench, all, loads } = fleet(1);
    expect(bench.numberOf(loads.ofTwo(all))).to.equal(0);
  });
});

import { expect } from "chai";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { Breaker, type BreakerVerdict } from "../../../extproc/core/workers/breaker.js";
import { BREAKER } from "../../support/workers.js";

const at = (ms: number): ReturnType<typeof monotonicMs> => monotonicMs(ms);

function feed(
  breaker: Breaker,
  verdicts: readonly BreakerVerdict[],
  startMs = 0,
  stepMs = 1,
): void {
  verdicts.forEach((verdict, index) => {
    const now = at(startMs + index * stepMs);
    breaker.record(breaker.begin(now), verdict, now);
  });
}

const times = (count: number, verdict: BreakerVerdict): BreakerVerdict[] =>
  Array.from({ length: count }, () => verdict);

describe("Breaker", () => {
  it("stays closed after four failures in a row and opens at the fifth", () => {
    const breaker = new Breaker(BREAKER);
    feed(breaker, times(4, "failure"));
    expect(breaker.state(at(10))).to.equal("closed");
    feed(breaker, ["failure"], 10);
    expect(breaker.state(at(10))).to.equal("open");
    expect(breaker.admits(at(10))).to.equal(false);
  });

  it("takes a failure at any time, also when nothing was seen in the parts of the window before it", () => {
    for (const startMs of [0, 3_000, 7_500, 29_999, 1_000_000]) {
      const breaker = new Breaker(BREAKER);
      feed(breaker, times(4, "failure"), startMs);
      expect(breaker.state(at(startMs + 10))).to.equal("closed");
      feed(breaker, ["failure"], startMs + 10);
      expect(breaker.state(at(startMs + 10))).to.equal("open");
    }
  });

  it("counts failures in a row only: a success between them starts anew, a neutral end does not", () => {
    const broken = new Breaker(BREAKER);
    feed(broken, [...times(4, "failure"), "success", ...times(4, "failure")]);
    expect(broken.state(at(100))).to.equal("closed");
    const unbroken = new Breaker(BREAKER);
    feed(unbroken, [...times(4, "failure"), "neutral", "failure"]);
    expect(unbroken.state(at(100))).to.equal("open");
  });

  it("opens when half of twenty answers within 30 s failed, not at nineteen", () => {
    const mixed = Array.from({ length: 18 }, (_, index): BreakerVerdict =>
      index % 2 === 0 ? "success" : "failure",
    );
    const breaker = new Breaker(BREAKER);
    feed(breaker, mixed);
    feed(breaker, ["success"], 20);
    expect(breaker.state(at(20))).to.equal("closed");
    feed(breaker, ["failure"], 21);
    expect(breaker.state(at(21))).to.equal("open");
  });

  it("stays closed at nine failures of twenty", () => {
    const breaker = new Breaker(BREAKER);
    const verdicts = Array.from({ length: 18 }, (_, index): BreakerVerdict =>
      index % 2 === 0 ? "success" : "failure",
    );
    feed(breaker, [...verdicts, "success", "success"]);
    expect(breaker.state(at(50))).to.equal("closed");
  });

  it("forgets answers older than the window", () => {
    const breaker = new Breaker(BREAKER);
    const mixed = Array.from({ length: 18 }, (_, index): BreakerVerdict =>
      index % 2 === 0 ? "success" : "failure",
    );
    feed(breaker, mixed, 0);
    feed(breaker, ["success", "failure"], 34_000);
    expect(breaker.state(at(34_001))).to.equal("closed");
  });

  it("lets exactly one probe through after 10 s, and closes when it succeeds", () => {
    const breaker = new Breaker(BREAKER);
    feed(breaker, times(5, "failure"));
    expect(breaker.admits(at(10_003))).to.equal(false);
    expect(breaker.admits(at(10_004))).to.equal(true);
    const probe = breaker.begin(at(10_004));
    expect(probe.probe).to.equal(true);
    expect(breaker.admits(at(10_005))).to.equal(false);
    breaker.record(probe, "success", at(10_100));
    expect(breaker.state(at(10_100))).to.equal("closed");
    expect(breaker.admits(at(10_100))).to.equal(true);
  });

  it("opens for another 10 s when the probe fails", () => {
    const breaker = new Breaker(BREAKER);
    feed(breaker, times(5, "failure"));
    breaker.record(breaker.begin(at(11_000)), "failure", at(11_500));
    expect(breaker.admits(at(21_499))).to.equal(false);
    expect(breaker.admits(at(21_500))).to.equal(true);
  });

  it("allows the next probe when the first one said nothing about the worker", () => {
    const breaker = new Breaker(BREAKER);
    feed(breaker, times(5, "failure"));
    breaker.record(breaker.begin(at(11_000)), "neutral", at(11_500));
    expect(breaker.state(at(11_500))).to.equal("half_open");
    expect(breaker.admits(at(11_500))).to.equal(true);
  });

  it("ignores verdicts of requests sent before it opened", () => {
    const breaker = new Breaker(BREAKER);
    const early = breaker.begin(at(0));
    feed(breaker, times(5, "failure"), 1);
    breaker.record(early, "success", at(10));
    expect(breaker.state(at(10))).to.equal("open");
  });
});

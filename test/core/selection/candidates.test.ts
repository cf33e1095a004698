import { expect } from "chai";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { workerConfig } from "../../support/workers.js";
import { Bench, DEMO, POOL, url } from "./support.js";

const where = (bench: Bench, over = {}): string => bench.where(over).split(" ")[0] ?? "";

describe("the candidates of a request", () => {
  it("are workers of the model and of the admitted partition", () => {
    const other = { url: url(0), models: ["other"] };
    const elsewhere = { url: url(0), partition: "private" };
    for (const first of [other, elsewhere]) {
      const bench = new Bench({ workers: [first, { url: url(1) }] });
      for (let draw = 0; draw < 20; draw += 1) expect(where(bench)).to.equal("w1");
      const alone = new Bench({ workers: [first] });
      expect(where(alone)).to.equal("model_not_found");
    }
  });

  it("are usable: healthy, checked, and with a breaker that lets a request through", () => {
    const bench = new Bench({ workers: 3 });
    bench.registry.recordHealth(url(0), false);
    bench.registry.put(workerConfig({ url: url(3) }));
    const { breaker } = bench.worker(1).runtime;
    for (let failure = 0; failure < 5; failure += 1) {
      breaker.record(breaker.begin(bench.now), "failure", bench.now);
    }
    for (let draw = 0; draw < 30; draw += 1) expect(where(bench)).to.equal("w2");
    bench.registry.recordHealth(url(2), false);
    const selection = bench.select();
    expect(selection).to.have.nested.property("rejection.code", "no_worker");
    expect(selection).to.have.nested.property("rejection.status", 503);
    expect(selection).to.have.nested.property("rejection.retryAfterS", 1);
    expect(selection.decision).to.equal(undefined);
  });

  it("L-4 are nobody for an unknown target, the target, and all but the excluded one", () => {
    const bench = new Bench({ workers: 2 });
    expect(where(bench, { targetWorkerUrl: "http://unknown" })).to.equal("no_worker");
    const target = { targetWorkerUrl: url(1), excludedWorkerUrls: [url(1)] };
    for (let draw = 0; draw < 20; draw += 1) {
      expect(where(bench, { targetWorkerUrl: url(1) })).to.equal("w1");
      expect(where(bench, target), "the target wins over exclusions").to.equal("w1");
      expect(where(bench, { excludedWorkerUrls: [url(1)] })).to.equal("w0");
    }
    expect(where(bench, { excludedWorkerUrls: [url(0), url(1)] })).to.equal("no_worker");
  });

  it("tell whether the partition serves the model at all", () => {
    const bench = new Bench({ workers: [{ url: url(0), partition: "private" }] });
    bench.registry.recordHealth(url(0), false);
    const { selector } = bench;
    expect(selector.isServed(DEMO, partitionName("private")), "usable or not").to.equal(true);
    expect(selector.isServed(DEMO, POOL)).to.equal(false);
    expect(selector.isServed(modelId("other"), POOL)).to.equal(false);
  });
});

describe("a request that names no model", () => {
  it("goes to any usable worker, whatever its model, and books nothing", () => {
    const bench = new Bench({ workers: [{ url: url(0), models: ["other"] }] });
    const selection = bench.selector.selectAny(bench.now);
    expect(selection).to.have.nested.property("worker.identity.url", url(0));
    expect(bench.selector.bookings.size).to.equal(0);
    bench.registry.recordHealth(url(0), false);
    expect(bench.selector.selectAny(bench.now)).to.have.nested.property(
      "rejection.code",
      "no_worker",
    );
  });
});

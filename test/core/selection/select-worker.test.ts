import { expect } from "chai";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { createRng, type Rng } from "../../../extproc/core/model/rng.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import {
  selectAnyWorker,
  selectWorker,
  type SelectionContext,
  type SelectionRequest,
} from "../../../extproc/core/selection/select-worker.js";
import type { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import { healthyRegistry, workerConfig, type WorkerSketch } from "../../support/workers.js";

const NOW = monotonicMs(0);
const POOL = partitionName("pool");
const url = (index: number): string => `http://127.0.0.1:${String(index)}`;

function context(registry: WorkerRegistry, rng: Rng = createRng(1)): SelectionContext {
  return {
    registry,
    partitionOf: (worker) => worker.labels.admission_partition ?? POOL,
    rng,
  };
}

function request(over: Partial<SelectionRequest> = {}): SelectionRequest {
  return {
    model: modelId("demo"),
    partition: POOL,
    targetWorkerUrl: undefined,
    excludedWorkerUrls: [],
    ...over,
  };
}

function chosen(
  sketches: readonly WorkerSketch[],
  over: Partial<SelectionRequest> = {},
): string | undefined {
  const selection = selectWorker(context(healthyRegistry(sketches)), request(over), NOW);
  return selection.ok ? selection.worker.identity.url : selection.rejection.code;
}

/** An Rng that gives out these draws, each taken modulo its bound. */
function scripted(...draws: number[]): Rng {
  const next = (): number => draws.shift() ?? 0;
  return { uint32: next, below: (bound) => next() % bound };
}

describe("selectWorker", () => {
  it("takes the less loaded of two different draws, and the first one on a tie", () => {
    const registry = healthyRegistry([{ url: url(1) }, { url: url(2) }, { url: url(3) }]);
    registry.get(url(1))?.runtime.holdLoad();
    // Draws: first worker 0, then offset 1 + 0: worker 1, which is idle.
    const loaded = selectWorker(context(registry, scripted(0, 0)), request(), NOW);
    expect(loaded.ok && loaded.worker.identity.url).to.equal(url(2));
    // First worker 2, then offset 1 + 1: worker 1. Both idle: the first drawn wins.
    const tied = selectWorker(context(registry, scripted(2, 1)), request(), NOW);
    expect(tied.ok && tied.worker.identity.url).to.equal(url(3));
  });

  it("never compares a worker with itself, so the busier of two workers is never chosen", () => {
    const registry = healthyRegistry([{ url: url(1) }, { url: url(2) }]);
    registry.get(url(1))?.runtime.holdLoad();
    const drawing = context(registry, createRng(5));
    for (let draw = 0; draw < 200; draw += 1) {
      const selection = selectWorker(drawing, request(), NOW);
      expect(selection.ok && selection.worker.identity.url).to.equal(url(2));
    }
  });

  it("spreads simultaneous arrivals at equal load instead of sending all to the first worker", () => {
    const sketches = [1, 2, 3, 4].map((index) => ({ url: url(index) }));
    const registry = healthyRegistry(sketches);
    const drawing = context(registry, createRng(3));
    for (let arrival = 0; arrival < 80; arrival += 1) {
      const selection = selectWorker(drawing, request(), NOW);
      if (selection.ok) selection.worker.runtime.holdLoad();
    }
    const loads = sketches.map((sketch) => registry.get(sketch.url)?.runtime.liveLoad ?? 0);
    // Two choices keep 80 balls in 4 bins within a few of the mean of 20.
    for (const load of loads) expect(load).to.be.within(16, 24);
  });

  it("considers only workers of the model and of the admitted partition", () => {
    expect(chosen([{ url: url(1), models: ["x"] }, { url: url(2) }])).to.equal(url(2));
    expect(chosen([{ url: url(1), partition: "private" }, { url: url(2) }])).to.equal(url(2));
    expect(chosen([{ url: url(1), models: ["x"] }])).to.equal("model_not_found");
    expect(chosen([{ url: url(1), partition: "private" }])).to.equal("model_not_found");
  });

  it("answers no_worker when the model's workers are known but none is usable", () => {
    const registry = healthyRegistry([{ url: url(1) }]);
    registry.recordHealth(url(1), false);
    registry.recordHealth(url(1), false);
    const selection = selectWorker(context(registry), request(), NOW);
    expect(selection).to.have.nested.property("rejection.code", "no_worker");
    expect(selection).to.have.nested.property("rejection.status", 503);
    expect(selection).to.have.nested.property("rejection.retryAfterS", 1);
  });

  it("skips workers whose breaker is open and workers not yet checked", () => {
    const registry = healthyRegistry([{ url: url(1) }, { url: url(2) }]);
    registry.put(workerConfig({ url: url(3) }));
    const breaker = registry.get(url(1))?.runtime.breaker;
    for (let failure = 0; failure < 5; failure += 1) {
      if (breaker !== undefined) breaker.record(breaker.begin(NOW), "failure", NOW);
    }
    const drawing = context(registry);
    for (let draw = 0; draw < 50; draw += 1) {
      const selection = selectWorker(drawing, request(), NOW);
      expect(selection.ok && selection.worker.identity.url).to.equal(url(2));
    }
  });

  it("restricts to the target worker, which wins over exclusions; an unknown target leaves nobody", () => {
    const two = [{ url: url(1) }, { url: url(2) }];
    expect(chosen(two, { targetWorkerUrl: url(2), excludedWorkerUrls: [url(2)] })).to.equal(url(2));
    expect(chosen(two, { targetWorkerUrl: url(9) })).to.equal("no_worker");
  });

  it("leaves out excluded workers, down to nobody", () => {
    const two = [{ url: url(1) }, { url: url(2) }];
    expect(chosen(two, { excludedWorkerUrls: [url(1)] })).to.equal(url(2));
    expect(chosen(two, { excludedWorkerUrls: [url(1), url(2)] })).to.equal("no_worker");
  });
});

describe("selectAnyWorker", () => {
  it("takes any usable worker, whatever its model", () => {
    const registry = healthyRegistry([{ url: url(1), models: ["x"] }]);
    const selection = selectAnyWorker(context(registry), NOW);
    expect(selection.ok && selection.worker.identity.url).to.equal(url(1));
  });

  it("answers no_worker without one", () => {
    expect(selectAnyWorker(context(healthyRegistry([])), NOW)).to.have.nested.property(
      "rejection.code",
      "no_worker",
    );
  });
});

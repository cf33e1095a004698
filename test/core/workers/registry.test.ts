import { expect } from "chai";
import fc from "fast-check";
import { modelId } from "../../../extproc/core/model/ids.js";
import { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { BREAKER, HEALTH, workerConfig } from "../../support/workers.js";

const A = "http://127.0.0.1:1";

function registry(onChange: () => void = () => undefined): WorkerRegistry {
  return new WorkerRegistry({ health: HEALTH, breaker: BREAKER, onChange });
}

describe("WorkerRegistry", () => {
  it("lists the workers of a model, usable or not", () => {
    const workers = registry();
    workers.put(workerConfig({ url: A, models: ["m", "n"] }));
    workers.put(workerConfig({ url: "http://127.0.0.1:2", models: ["n"] }));
    expect(workers.serving(modelId("m")).map((worker) => worker.identity.url)).to.deep.equal([A]);
    expect(workers.serving(modelId("n"))).to.have.length(2);
    expect(workers.serving(modelId("unknown"))).to.deep.equal([]);
  });

  it("keeps generation and runtime of a replaced worker and raises its revision", () => {
    const workers = registry();
    const first = workers.put(workerConfig({ url: A }));
    const release = first.runtime.holdLoad();
    const second = workers.put(workerConfig({ url: A, models: ["other"] }));
    expect(second.identity).to.deep.equal({ ...first.identity, revision: 2 });
    expect(second.runtime.liveLoad).to.equal(1);
    release();
    expect(second.runtime.liveLoad).to.equal(0);
  });

  it("gives a removed and registered worker a new generation that gets none of the old decrements", () => {
    const workers = registry();
    const first = workers.put(workerConfig({ url: A }));
    const release = first.runtime.holdLoad();
    expect(workers.remove(A)).to.equal(true);
    expect(workers.remove(A)).to.equal(false);
    const second = workers.put(workerConfig({ url: A }));
    expect(second.identity.generation).to.not.equal(first.identity.generation);
    const held = second.runtime.holdLoad();
    release();
    expect(second.runtime.liveLoad).to.equal(1);
    held();
    expect(second.runtime.liveLoad).to.equal(0);
  });

  it("tells its listener of membership and health changes, and of nothing else", () => {
    let changes = 0;
    const workers = registry(() => {
      changes += 1;
    });
    workers.put(workerConfig({ url: A }));
    expect(changes).to.equal(1);
    workers.recordHealth(A, true);
    expect(changes).to.equal(2);
    workers.recordHealth(A, true);
    workers.recordHealth(A, false);
    expect(changes).to.equal(2);
    workers.recordHealth(A, false);
    expect(changes).to.equal(3);
    workers.recordHealth("http://127.0.0.1:9", true);
    expect(changes).to.equal(3);
  });
});

describe("Health", () => {
  it("is unknown before the first check, which decides alone", () => {
    const workers = registry();
    const worker = workers.put(workerConfig({ url: A }));
    expect(worker.runtime.health.status).to.equal("unknown");
    expect(worker.healthy).to.equal(false);
    workers.recordHealth(A, false);
    expect(worker.runtime.health.status).to.equal("unhealthy");
    workers.recordHealth(A, true);
    expect(worker.healthy).to.equal(true);
  });

  it("leaves at the second failed check in a row, not at the first, nor at two that are apart", () => {
    const workers = registry();
    const worker = workers.put(workerConfig({ url: A }));
    for (const passed of [true, false, true, false]) workers.recordHealth(A, passed);
    expect(worker.healthy).to.equal(true);
    workers.recordHealth(A, false);
    expect(worker.healthy).to.equal(false);
  });
});

describe("live load", () => {
  it("equals the number of holders under any order of hold, release, double release and replacement", () => {
    const step = fc.record({
      kind: fc.constantFrom("hold", "release", "replace", "readd"),
      at: fc.nat(40),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 150 }), (steps) => {
        const workers = registry();
        let current: Worker = workers.put(workerConfig({ url: A }));
        const holds: { release: () => void; generation: number; open: boolean }[] = [];
        for (const { kind, at } of steps) {
          if (kind === "hold") {
            const generation = current.identity.generation;
            holds.push({ release: current.runtime.holdLoad(), generation, open: true });
          } else if (kind === "release") {
            const hold = holds[at];
            hold?.release();
            if (hold !== undefined) hold.open = false;
          } else {
            if (kind === "readd") workers.remove(A);
            current = workers.put(workerConfig({ url: A }));
          }
          const mine = holds.filter(
            (hold) => hold.open && hold.generation === current.identity.generation,
          );
          expect(current.runtime.liveLoad).to.equal(mine.length);
        }
      }),
    );
  });
});

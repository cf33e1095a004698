import { expect } from "chai";
import { InvariantError } from "../../../extproc/core/model/invariant.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import type { SampleToken, WorkerSample } from "../../../extproc/core/workers/telemetry.js";
import {
  SAMPLE_AGE_MAX_MS,
  TelemetryStore,
  type TelemetryDelivery,
} from "../../../extproc/core/workers/telemetry-store.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { BREAKER, HEALTH, workerConfig } from "../../support/workers.js";

const A = "http://127.0.0.1:1";
const B = "http://127.0.0.1:2";
const C = "http://127.0.0.1:3";
const at = (value: string): SampleToken => ({ kind: "timestamp", value });

function sampleWith(token: SampleToken, running = 1): WorkerSample {
  return {
    source: "sglang_loads",
    token,
    ranks: [
      {
        rank: 0,
        running,
        waiting: 0,
        waitingUncachedTokens: undefined,
        usedTokens: undefined,
        maxTokens: undefined,
        tokenUsage: 0.5,
        utilization: undefined,
        cacheHitRate: undefined,
        tokensPerSecond: undefined,
        maxRunning: undefined,
      },
    ],
    invalidFields: [],
    countedTokensPerSecond: undefined,
  };
}

class Bench {
  published: number[] = [];
  readonly workers: WorkerRegistry = new WorkerRegistry({
    health: { ...HEALTH, failure_threshold: 1 },
    breaker: BREAKER,
    onChange: () => {
      this.store.prune();
    },
  });
  readonly store: TelemetryStore = new TelemetryStore({
    workers: this.workers,
    onPublished: () => {
      this.published.push(this.store.size);
    },
  });

  /** A healthy worker with a ceiling label of 64. */
  add(url: string): Worker {
    const worker = this.workers.put(workerConfig({ url, ceiling: 64 }));
    this.workers.recordHealth(url, true);
    return worker;
  }

  publish(urls: string[], deliveries: TelemetryDelivery[], ms: number): readonly string[] {
    return this.store.publish(urls, deliveries, monotonicMs(ms)).stale.map(({ url }) => url);
  }
}

function delivery(worker: Worker, token: SampleToken, ms: number, running = 1): TelemetryDelivery {
  const sample = sampleWith(token, running);
  return { identity: worker.identity, sample, observedAt: monotonicMs(ms), liveLoad: 3 };
}

describe("TelemetryStore", () => {
  it("publishes a group in one step: the listener sees all of it, once", () => {
    const bench = new Bench();
    const [a, b] = [bench.add(A), bench.add(B)];
    bench.publish([A, B], [delivery(a, at("1"), 10), delivery(b, at("1"), 20)], 30);
    expect(bench.published).to.deep.equal([2]);
    expect(bench.store.get(a.identity)).to.deep.equal({
      identity: a.identity,
      sample: sampleWith(at("1")),
      load: {
        running: 1,
        waiting: 0,
        waitingUncachedTokens: undefined,
        tokenUsage: 0.5,
        throughput: undefined,
        maxRunning: 64,
      },
      observedAt: 10,
      revision: 1,
      liveLoadAtObservation: 3,
    });
  });

  it("removes who failed, and leaves other groups alone", () => {
    const bench = new Bench();
    const [a, b, c] = [bench.add(A), bench.add(B), bench.add(C)];
    bench.publish([A, B], [delivery(a, at("1"), 1), delivery(b, at("1"), 1)], 1);
    bench.publish([C], [delivery(c, at("1"), 2)], 2);
    bench.publish([A, B], [delivery(a, at("2"), 3)], 3);
    expect([...bench.store.all()].map(({ identity }) => identity.url).sort()).to.deep.equal([A, C]);
    bench.publish([A, B], [], 4);
    expect([...bench.store.all()].map(({ identity }) => identity.url)).to.deep.equal([C]);
    // The entry of the other group is the one of its own publication.
    expect(bench.store.get(c.identity)?.revision).to.equal(2);
  });

  it("keeps time and revision of a native sample that is delivered again unchanged", () => {
    const bench = new Bench();
    const a = bench.add(A);
    bench.publish([A], [delivery(a, at("1"), 1_000)], 1_000);
    bench.publish([A], [delivery(a, at("1"), 11_000)], 11_000);
    expect(bench.store.revision).to.equal(2);
    expect(bench.store.get(a.identity)).to.include({ observedAt: 1_000, revision: 1 });
    bench.publish([A], [delivery(a, at("2"), 21_000)], 21_000);
    expect(bench.store.get(a.identity)).to.include({ observedAt: 21_000, revision: 3 });
  });

  it("takes every scrape of an engine without own times for a new sample", () => {
    const bench = new Bench();
    const a = bench.add(A);
    for (const [sequence, ms] of [
      [1, 1_000],
      [2, 11_000],
    ] as const) {
      bench.publish([A], [delivery(a, { kind: "scrape", sequence }, ms)], ms);
      expect(bench.store.get(a.identity)).to.include({ observedAt: ms, revision: sequence });
    }
  });

  it("drops a sample that is repeated for longer than its age, and says so; a new one comes in", () => {
    const bench = new Bench();
    const a = bench.add(A);
    bench.publish([A], [delivery(a, at("1"), 0)], 0);
    const limit = SAMPLE_AGE_MAX_MS;
    expect(bench.publish([A], [delivery(a, at("1"), limit)], limit)).to.deep.equal([]);
    expect(bench.store.size).to.equal(1);
    expect(bench.publish([A], [delivery(a, at("1"), limit + 1)], limit + 1)).to.deep.equal([A]);
    expect(bench.store.get(a.identity)).to.equal(undefined);
    expect(bench.publish([A], [delivery(a, at("2"), limit + 2)], limit + 2)).to.deep.equal([]);
    expect(bench.store.size).to.equal(1);
  });

  it("does not make an old sample young by a failed poll, or an ill moment, in between", () => {
    const bench = new Bench();
    const a = bench.add(A);
    bench.publish([A], [delivery(a, at("1"), 0)], 0);
    bench.publish([A], [], 10_000);
    bench.workers.recordHealth(A, false);
    bench.workers.recordHealth(A, true);
    bench.publish([A], [delivery(a, at("1"), 20_000)], 20_000);
    expect(bench.store.get(a.identity)).to.include({ observedAt: 0, revision: 1 });
  });

  it("loses the entry at once when its worker is removed, replaced or unhealthy", () => {
    for (const leave of [
      (workers: WorkerRegistry) => workers.remove(A),
      (workers: WorkerRegistry) => workers.put(workerConfig({ url: A })),
      (workers: WorkerRegistry) => {
        workers.recordHealth(A, false);
      },
    ]) {
      const bench = new Bench();
      const a = bench.add(A);
      bench.publish([A], [delivery(a, at("1"), 1)], 1);
      leave(bench.workers);
      expect(bench.store.size).to.equal(0);
      expect(bench.store.get(a.identity)).to.equal(undefined);
      expect([...bench.store.all()]).to.deep.equal([]);
    }
  });

  it("never hands an entry to a successor under the same url, pruned or not", () => {
    const workers = new WorkerRegistry({
      health: HEALTH,
      breaker: BREAKER,
      onChange: () => undefined,
    });
    const store = new TelemetryStore({ workers, onPublished: () => undefined });
    const first = workers.put(workerConfig({ url: A }));
    workers.recordHealth(A, true);
    store.publish([A], [delivery(first, at("1"), 1)], monotonicMs(1));
    const second = workers.put(workerConfig({ url: A }));
    expect(store.get(second.identity)).to.equal(undefined);
    expect([...store.all()]).to.deep.equal([]);
    // The same time token of another revision is another sample.
    store.publish([A], [delivery(second, at("1"), 50)], monotonicMs(50));
    expect(store.get(second.identity)?.observedAt).to.equal(50);
  });

  it("drops what was asked of a worker that was replaced, removed or ill before it answered", () => {
    for (const leave of [
      (workers: WorkerRegistry) => workers.remove(A),
      (workers: WorkerRegistry) => workers.put(workerConfig({ url: A })),
      (workers: WorkerRegistry) => {
        workers.recordHealth(A, false);
      },
    ]) {
      const bench = new Bench();
      const a = bench.add(A);
      leave(bench.workers);
      bench.publish([A], [delivery(a, at("1"), 1)], 1);
      expect(bench.store.size).to.equal(0);
      expect(bench.store.revision).to.equal(1);
    }
  });

  it("says whether pruning removed anything", () => {
    const bench = new Bench();
    const a = bench.add(A);
    bench.publish([A], [delivery(a, at("1"), 1)], 1);
    expect(bench.store.prune()).to.equal(false);
    a.runtime.health.record(false);
    expect(bench.store.prune()).to.equal(true);
    expect(bench.store.prune()).to.equal(false);
  });

  it("remembers nothing of workers that are gone or replaced", () => {
    const bench = new Bench();
    const [a, b] = [bench.add(A), bench.add(B)];
    bench.publish([A, B], [delivery(a, at("1"), 0), delivery(b, at("1"), 0)], 0);
    bench.workers.recordHealth(A, false);
    expect(bench.store.remembered).to.equal(2);
    bench.workers.remove(A);
    expect(bench.store.remembered).to.equal(1);
    bench.workers.put(workerConfig({ url: B }));
    expect(bench.store.remembered).to.equal(0);
    const again = bench.add(A);
    bench.publish([A], [delivery(again, at("1"), 5)], 5);
    expect(bench.store.get(again.identity)?.observedAt).to.equal(5);
  });

  it("takes a delivery from outside its group for a bug", () => {
    const bench = new Bench();
    const a = bench.add(A);
    expect(() => bench.publish([B], [delivery(a, at("1"), 1)], 1)).to.throw(InvariantError);
  });
});

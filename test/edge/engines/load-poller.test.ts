// Goal: who is asked when, what is published when, and that one worker's fault stays its own. Method:
// real engines on loopback ports; time and timers belong to the test, so that nothing is waited for but
// answers.
import { expect } from "chai";
import { createRng, type Rng } from "../../../extproc/core/model/rng.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import {
  SAMPLE_AGE_MAX_MS,
  TelemetryStore,
} from "../../../extproc/core/workers/telemetry-store.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import {
  LoadPoller,
  POLL_INTERVAL_DEFAULT_MS,
  type LoadPollerOptions,
  type PollSettings,
} from "../../../extproc/edge/engines/load-poller.js";
import { BREAKER, HEALTH, workerConfig } from "../../support/workers.js";
import { fixture, startEngine, type LoopbackEngine, type Route } from "./support.js";

const VLLM = fixture("vllm-0.29.txt");
const LOADS = fixture("sglang-loads-current.json");

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

class Bench {
  clock = 0;
  readonly timers = new Set<Timer>();
  readonly reports: string[] = [];
  readonly details: string[] = [];
  readonly settings = new Map<string, Partial<PollSettings>>();
  groupOf: (worker: Worker) => string = () => "all";
  publications = 0;
  #onPublication: () => void = () => undefined;
  readonly workers: WorkerRegistry = new WorkerRegistry({
    health: { ...HEALTH, failure_threshold: 1 },
    breaker: BREAKER,
    onChange: () => {
      this.store.prune();
      this.poller.sync();
    },
  });
  readonly store: TelemetryStore = new TelemetryStore({
    workers: this.workers,
    onPublished: () => {
      this.publications += 1;
      this.#onPublication();
      const { fault } = this;
      this.fault = undefined;
      if (fault !== undefined) throw fault;
    },
  });
  readonly poller: LoadPoller;
  readonly faults: unknown[] = [];
  /** Thrown by what follows from the next publication. */
  fault: Error | undefined;

  constructor(over: Partial<LoadPollerOptions> = {}) {
    const middle: Rng = { uint32: () => 0, below: (bound) => Math.floor(bound / 2) };
    this.poller = new LoadPoller({
      workers: () => this.workers.all(),
      settingsOf: (worker) => ({
        baseUrl: worker.identity.url,
        engine: "vllm",
        apiKey: undefined,
        intervalMs: undefined,
        ...this.settings.get(worker.identity.url),
      }),
      groupOf: (worker) => this.groupOf(worker),
      store: this.store,
      now: () => monotonicMs(this.clock),
      rng: middle,
      onReport: ({ worker, reason, detail, sampleKept }) => {
        this.reports.push(`${worker.url} ${reason}${sampleKept ? " (kept)" : ""}`);
        this.details.push(detail);
      },
      onFault: (error) => {
        this.faults.push(error);
      },
      after: (delayMs, run) => {
        const timer = { at: this.clock + delayMs, run };
        this.timers.add(timer);
        return () => this.timers.delete(timer);
      },
      ...over,
    });
  }

  add(url: string): Worker {
    const worker = this.workers.put(workerConfig({ url }));
    this.workers.recordHealth(url, true);
    return worker;
  }

  /** Resolves when so many publications have been made in all, and the rounds are planned. */
  async published(count: number): Promise<void> {
    while (this.publications < count) {
      await new Promise<void>((resolve) => (this.#onPublication = resolve));
    }
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Moves time to the next timer and lets it fire. */
  fire(): number {
    const next = [...this.timers].sort((a, b) => a.at - b.at)[0];
    if (next === undefined) throw new Error("no timer is armed");
    this.timers.delete(next);
    this.clock = next.at;
    next.run();
    return next.at;
  }

  get urls(): readonly string[] {
    return [...this.store.all()].map(({ identity }) => identity.url);
  }
}

describe("LoadPoller", () => {
  let engines: LoopbackEngine[] = [];
  let benches: Bench[] = [];

  afterEach(async () => {
    await Promise.all(benches.map(({ poller }) => poller.stop()));
    await Promise.all(engines.map((engine) => engine.close()));
    benches = [];
    engines = [];
  });

  async function engineWith(metrics: Route = VLLM): Promise<LoopbackEngine> {
    const engine = await startEngine({ "/metrics": metrics });
    engines.push(engine);
    return engine;
  }
  function benchWith(over: Partial<LoadPollerOptions> = {}): Bench {
    const bench = new Bench(over);
    benches.push(bench);
    return bench;
  }

  it("asks a worker as soon as it is healthy, and then at its interval", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.workers.put(workerConfig({ url: engine.url }));
    await bench.published(1);
    expect(engine.requests).to.have.length(0);
    bench.workers.recordHealth(engine.url, true);
    await bench.published(2);
    expect(engine.requests).to.have.length(1);
    expect(bench.timers.size).to.equal(1);
    expect(bench.fire()).to.equal(POLL_INTERVAL_DEFAULT_MS);
    await bench.published(3);
    expect(bench.fire()).to.equal(2 * POLL_INTERVAL_DEFAULT_MS);
    await bench.published(4);
    expect(engine.requests).to.have.length(3);
  });

  it("reports a fault in what follows from a publication, and goes on polling", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    bench.fault = new Error("a bug elsewhere");
    bench.fire();
    await bench.published(3);
    expect(bench.faults).to.have.length(1);
    bench.fire();
    await bench.published(4);
    expect(bench.faults).to.have.length(1);
    expect(engine.requests).to.have.length(3);
  });

  it("takes the smallest interval of a group, and never less than a second", async () => {
    const [a, b] = [await engineWith(), await engineWith()];
    const slow = benchWith({ defaultIntervalMs: 10 });
    slow.add(a.url);
    await slow.published(2);
    expect(slow.fire()).to.equal(1_000);
    const mixed = benchWith({ defaultIntervalMs: 8_000 });
    mixed.settings.set(a.url, { intervalMs: 3_000 });
    mixed.add(a.url);
    mixed.add(b.url);
    await mixed.published(2);
    expect(mixed.fire()).to.equal(3_000);
  });

  it("spreads the rounds by a tenth of the interval, by the given randomness", async () => {
    const engine = await engineWith();
    const delays: number[] = [];
    for (const share of [0, 0.5, 1]) {
      const rng = { uint32: () => 0, below: (bound: number) => Math.round((bound - 1) * share) };
      const bench = benchWith({ rng });
      bench.add(engine.url);
      await bench.published(2);
      delays.push(bench.fire());
    }
    expect(delays).to.deep.equal([9_000, 10_000, 11_000]);
  });

  it("publishes a group once, when its last worker has answered", async () => {
    let answer: () => void = () => undefined;
    const slow = await engineWith((_, response) => {
      answer = () => response.end(VLLM);
      whenAsked();
    });
    let whenAsked: () => void = () => undefined;
    const asked = new Promise<void>((resolve) => (whenAsked = resolve));
    const quick = await engineWith();
    const bench = benchWith();
    for (const { url } of [slow, quick]) bench.workers.put(workerConfig({ url }));
    await bench.published(1);
    for (const { url } of [slow, quick]) {
      bench.workers.get(url)?.runtime.health.record(true);
    }
    bench.poller.sync();
    await asked;
    while (quick.requests.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(bench.urls).to.deep.equal([]);
    answer();
    await bench.published(2);
    expect(bench.urls).to.have.members([slow.url, quick.url]);
    expect(bench.publications).to.equal(2);
  });

  it("keeps half of the fleet when the other half is down, each with its own reason", async () => {
    const hang: Route = () => undefined;
    const good = [await engineWith(), await engineWith(), await engineWith(), await engineWith()];
    const bad = [await engineWith(401), await engineWith(404), await engineWith("<html>")];
    const hanging = await engineWith(hang);
    const bench = benchWith({ timeoutMs: 100 });
    const all = [...good, ...bad, hanging];
    for (const { url } of all) bench.workers.put(workerConfig({ url }));
    for (const { url } of all) bench.workers.get(url)?.runtime.health.record(true);
    bench.poller.sync();
    await bench.published(2);
    expect(bench.urls).to.have.members(good.map(({ url }) => url));
    const reasons = ["status_401", "status_404", "not_text"];
    expect(bench.reports).to.have.members([
      ...bad.map(({ url }, index) => `${url} ${reasons[index] ?? ""}`),
      `${hanging.url} timeout`,
    ]);
  });

  for (const [symptom, route, reason] of [
    ["401", 401, "status_401"],
    ["404", 404, "status_404"],
    ["500", 500, "status_other"],
    ["a page of HTML with 200", "<!doctype html>", "not_text"],
    ["an empty answer", "", "missing_metric"],
    ["renamed metrics", VLLM.replaceAll("vllm:", "vllm2:"), "missing_metric"],
    ["NaN", VLLM.replace(" 0.9375", " NaN"), "invalid_value"],
    ["+Inf", VLLM.replace(" 37.0", " +Inf"), "invalid_value"],
    ["a broken line", VLLM.replace(" 37.0", ""), "malformed"],
    ["10 MB and more", "#\n".repeat(6 * 1024 * 1024), "too_large"],
  ] as const) {
    it(`removes the entry of a worker that answers ${symptom}, and says ${reason}`, async () => {
      const engine = await engineWith();
      const bench = benchWith();
      bench.add(engine.url);
      await bench.published(2);
      expect(bench.urls).to.deep.equal([engine.url]);
      engine.routes.set("/metrics", route);
      bench.fire();
      await bench.published(3);
      expect(bench.urls).to.deep.equal([]);
      expect(bench.reports).to.deep.equal([`${engine.url} ${reason}`]);
    });
  }

  it("removes the entry of a worker that is gone from the network", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    await engine.close();
    bench.fire();
    await bench.published(3);
    expect(bench.urls).to.deep.equal([]);
    expect(bench.reports).to.deep.equal([`${engine.url} connect`]);
  });

  it("keeps a sample with an impossible field, and reports the field", async () => {
    const engine = await startEngine({
      "/v1/loads": LOADS.replace('"gen_throughput": null', '"gen_throughput": -5'),
    });
    engines.push(engine);
    const bench = benchWith();
    bench.settings.set(engine.url, { engine: "sglang" });
    bench.add(engine.url);
    await bench.published(2);
    expect(bench.urls).to.deep.equal([engine.url]);
    expect(bench.reports).to.deep.equal([`${engine.url} invalid_value (kept)`]);
    expect(bench.details).to.deep.equal(["impossible values of tokensPerSecond"]);
  });

  it("says stale when an engine repeats one old sample, and takes the next new one", async () => {
    const engine = await startEngine({ "/v1/loads": LOADS });
    engines.push(engine);
    const bench = benchWith({ defaultIntervalMs: SAMPLE_AGE_MAX_MS });
    bench.settings.set(engine.url, { engine: "sglang" });
    bench.add(engine.url);
    await bench.published(2);
    bench.fire();
    await bench.published(3);
    expect(bench.urls).to.deep.equal([engine.url]);
    bench.fire();
    await bench.published(4);
    expect(bench.urls).to.deep.equal([]);
    expect(bench.reports).to.deep.equal([`${engine.url} stale`]);
    engine.routes.set("/v1/loads", LOADS.replace("2026-06-01", "2026-06-02"));
    bench.fire();
    await bench.published(5);
    expect(bench.urls).to.deep.equal([engine.url]);
  });

  it("does not publish what was asked of a worker that left meanwhile", async () => {
    let answer: () => void = () => undefined;
    let whenAsked: () => void = () => undefined;
    const asked = new Promise<void>((resolve) => (whenAsked = resolve));
    const engine = await engineWith((_, response) => {
      answer = () => response.end(VLLM);
      whenAsked();
    });
    const bench = benchWith();
    bench.groupOf = ({ identity }) => identity.url;
    bench.add(engine.url);
    await asked;
    bench.workers.recordHealth(engine.url, false);
    answer();
    await bench.published(2);
    expect(bench.urls).to.deep.equal([]);
    expect(bench.reports).to.deep.equal([]);
  });

  it("asks no worker that is not healthy", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    bench.workers.recordHealth(engine.url, false);
    expect(bench.urls).to.deep.equal([]);
    bench.fire();
    await bench.published(3);
    expect(engine.requests).to.have.length(1);
  });

  it("asks again when a worker comes back or was replaced, a second after it asked last", async () => {
    const [a, b] = [await engineWith(), await engineWith()];
    const bench = benchWith();
    bench.add(a.url);
    await bench.published(2);
    bench.clock = 400;
    bench.add(b.url);
    expect(bench.timers.size).to.equal(1);
    expect(bench.fire()).to.equal(1_000);
    await bench.published(3);
    expect([a.requests.length, b.requests.length]).to.deep.equal([2, 1]);
    bench.clock = 5_000;
    bench.workers.recordHealth(a.url, false);
    bench.workers.recordHealth(b.url, true);
    expect(bench.publications).to.equal(3);
    bench.fire();
    await bench.published(4);
    bench.clock = 15_000;
    bench.workers.recordHealth(a.url, true);
    await bench.published(5);
    expect(a.requests).to.have.length(3);
    bench.clock = 16_000;
    const replaced = bench.workers.put(workerConfig({ url: a.url }));
    await bench.published(6);
    expect(a.requests).to.have.length(4);
    expect(bench.store.get(replaced.identity)).to.not.equal(undefined);
    expect(bench.reports).to.deep.equal([]);
  });

  it("asks itself not to death when a fleet comes up one by one", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    for (let index = 0; index < 50; index += 1) {
      bench.workers.recordHealth(engine.url, false);
      bench.workers.recordHealth(engine.url, true);
      bench.add(engine.url);
    }
    expect(engine.requests).to.have.length(1);
    expect(bench.timers.size).to.equal(1);
    expect(bench.fire()).to.equal(1_000);
    await bench.published(3);
    expect(engine.requests).to.have.length(2);
  });

  it("asks a worker again that was ill for a moment between two rounds", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    bench.clock = 5_000;
    bench.workers.recordHealth(engine.url, false);
    bench.workers.recordHealth(engine.url, true);
    await bench.published(3);
    expect(bench.urls).to.deep.equal([engine.url]);
    expect(engine.requests).to.have.length(2);
  });

  it("asks at once at a new interval, and goes on at that", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    bench.clock = 6_000;
    bench.settings.set(engine.url, { intervalMs: 2_000 });
    bench.poller.sync();
    await bench.published(3);
    expect(bench.timers.size).to.equal(1);
    expect(bench.fire()).to.equal(8_000);
  });

  it("forgets a group whose workers are gone", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    bench.add(engine.url);
    await bench.published(2);
    bench.workers.remove(engine.url);
    expect(bench.timers.size).to.equal(0);
    expect(bench.urls).to.deep.equal([]);
  });

  it("publishes nothing of a group that ended, when its workers came back in a new one", async () => {
    const answers: (() => void)[] = [];
    const engine = await engineWith((_, response) => {
      answers.push(() => response.end(VLLM));
    });
    const untilAsked = async (count: number): Promise<void> => {
      while (answers.length < count) await new Promise((resolve) => setImmediate(resolve));
    };
    const bench = benchWith();
    bench.add(engine.url);
    await untilAsked(1);
    const before = bench.publications;
    bench.workers.remove(engine.url);
    const again = bench.add(engine.url);
    await untilAsked(2);
    answers[1]?.();
    await bench.published(before + 2);
    expect(bench.store.get(again.identity)).to.not.equal(undefined);
    answers[0]?.();
    bench.clock = 20_000;
    bench.fire();
    await untilAsked(3);
    expect(bench.store.get(again.identity)).to.not.equal(undefined);
    expect(bench.publications).to.equal(before + 2);
    answers[2]?.();
    await bench.published(before + 3);
  });

  it("notes Weir's own load of the worker when the answer came", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    const worker = bench.workers.put(workerConfig({ url: engine.url }));
    worker.runtime.holdLoad();
    worker.runtime.holdLoad();
    bench.workers.recordHealth(engine.url, true);
    await bench.published(2);
    expect(bench.store.get(worker.identity)?.liveLoadAtObservation).to.equal(2);
  });

  it("asks at another address, with a key, where the settings say so", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    process.env["WEIR_TEST_ENGINE_KEY"] = "sk-1";
    const url = "http://127.0.0.1:1";
    const apiKey = { kind: "env", name: "WEIR_TEST_ENGINE_KEY" } as const;
    bench.settings.set(url, { baseUrl: engine.url, apiKey });
    bench.add(url);
    await bench.published(2);
    expect(bench.urls).to.deep.equal([url]);
    expect(engine.requests[0]?.headers.authorization).to.equal("Bearer sk-1");
    delete process.env["WEIR_TEST_ENGINE_KEY"];
    engine.routes.set("/metrics", 401);
    bench.fire();
    await bench.published(3);
    expect(bench.details).to.deep.equal([
      "/metrics: status 401; the API key in environment variable WEIR_TEST_ENGINE_KEY is not set",
    ]);
  });

  it("takes an address that is none for one worker's fault", async () => {
    const engine = await engineWith();
    const bench = benchWith();
    const url = "http://127.0.0.1:1";
    bench.settings.set(url, { baseUrl: "not an address" });
    bench.add(engine.url);
    bench.add(url);
    await bench.published(2);
    expect(bench.urls).to.deep.equal([engine.url]);
    expect(bench.reports).to.deep.equal([`${url} malformed`]);
  });

  it("leaves nothing running after it was stopped, also with polls under way", async () => {
    const engine = await engineWith(() => undefined);
    const bench = benchWith();
    bench.add(engine.url);
    while (engine.requests.length === 0) await new Promise((resolve) => setImmediate(resolve));
    const gone = new Promise((resolve) => engine.requests[0]?.once("close", resolve));
    const before = bench.publications;
    await bench.poller.stop();
    await gone;
    expect(bench.timers.size).to.equal(0);
    expect(bench.reports).to.deep.equal([]);
    expect(bench.publications).to.equal(before);
    bench.poller.sync();
    bench.add("http://127.0.0.1:1");
    expect(bench.timers.size).to.equal(0);
    expect(engine.requests).to.have.length(1);
  });

  it("polls with the system's own timers by default", async () => {
    const engine = await engineWith();
    const workers = new WorkerRegistry({
      health: HEALTH,
      breaker: BREAKER,
      onChange: () => undefined,
    });
    workers.put(workerConfig({ url: engine.url }));
    workers.recordHealth(engine.url, true);
    let second: () => void = () => undefined;
    const done = new Promise<void>((resolve) => (second = resolve));
    const store = new TelemetryStore({
      workers,
      onPublished: () => {
        if (store.revision === 2) second();
      },
    });
    const poller = new LoadPoller({
      workers: () => workers.all(),
      settingsOf: () => ({
        baseUrl: engine.url,
        engine: undefined,
        apiKey: undefined,
        intervalMs: 1_000,
      }),
      groupOf: () => "all",
      store,
      now: () => monotonicMs(performance.now()),
      rng: createRng(1),
      onReport: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    poller.sync();
    await done;
    expect(store.size).to.equal(1);
    await poller.stop();
  });
});

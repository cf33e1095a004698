// What engines report of themselves, on a core whose engines report by hand.

import { expect } from "chai";
import { Registry } from "prom-client";
import { observeEngines } from "../../../extproc/edge/telemetry/engine-metrics.js";
import { FeedbackDesk, URLS } from "../../support/feedback-desk.js";

async function series(registry: Registry, name: string): Promise<Record<string, number>> {
  const found = (await registry.getMetricsAsJSON()).find((one) => one.name === name);
  return Object.fromEntries(
    (found?.values ?? []).map(({ labels, value }) => [Object.values(labels).join(" "), value]),
  );
}

describe("what engines report", () => {
  const [first, second] = URLS;

  it("is asked for and shown in mode off, without a series for what was not reported or heard", async () => {
    const bench = new FeedbackDesk({ mode: "off", engine_metrics: true });
    const { telemetry, workers } = bench.core;
    if (telemetry === undefined) throw new Error("nothing is asked of the engines");
    const registry = new Registry();
    observeEngines(registry, { workers, telemetry });
    bench.report({ running: 3, waiting: 2, tokenUsage: 0.25 }, { running: 0 });
    expect(await series(registry, "weir_engine_running_requests")).to.deep.equal({
      [`${first} demo 0`]: 3,
      [`${second} demo 0`]: 0,
    });
    expect((await series(registry, "weir_engine_waiting_requests"))[`${first} demo 0`]).to.equal(2);
    expect((await series(registry, "weir_engine_token_usage"))[`${first} demo 0`]).to.equal(0.25);
    expect(await series(registry, "weir_engine_cache_hit_rate")).to.deep.equal({});
    bench.report({ running: 3 }, undefined);
    expect(Object.keys(await series(registry, "weir_engine_running_requests"))).to.deep.equal([
      `${first} demo 0`,
    ]);
    workers.remove(first);
    expect(await series(registry, "weir_engine_running_requests")).to.deep.equal({});
  });

  it("shows each rank, the throughput of counters for the only one, and no model of several", async () => {
    const url = "http://127.0.0.1:9";
    const bench = new FeedbackDesk(
      { mode: "off", engine_metrics: true },
      { workers: [{ url, cluster: "worker_9", models: ["a", "b"] }], models: {} },
    );
    const { telemetry, workers } = bench.core;
    const worker = workers.get(url);
    if (telemetry === undefined || worker === undefined) throw new Error("no worker is asked");
    const registry = new Registry();
    observeEngines(registry, { workers, telemetry });
    bench.report({ running: 3 });
    const entry = telemetry.get(worker.identity);
    if (entry === undefined) throw new Error("the report is not there");
    const publish = (ranks: number, counted: number | undefined): void => {
      const [rank] = entry.sample.ranks;
      if (rank === undefined) throw new Error("a report has a rank");
      const sample = {
        ...entry.sample,
        token: { kind: "timestamp", value: `${String(ranks)} ${String(counted)}` } as const,
        ranks: Array.from({ length: ranks }, (_, index) => ({
          ...rank,
          rank: index,
          running: index,
        })),
        countedTokensPerSecond: counted,
      };
      const delivery = { identity: worker.identity, sample, observedAt: bench.now, liveLoad: 0 };
      telemetry.publish([url], [delivery], bench.now);
    };
    publish(1, 120);
    expect(await series(registry, "weir_engine_gen_throughput")).to.deep.equal({
      [`${url} * 0`]: 120,
    });
    publish(2, 120);
    expect(await series(registry, "weir_engine_gen_throughput")).to.deep.equal({});
    expect(await series(registry, "weir_engine_running_requests")).to.deep.equal({
      [`${url} * 0`]: 0,
      [`${url} * 1`]: 1,
    });
  });

  it("is not asked for unless somebody wants it", () => {
    expect(new FeedbackDesk({ mode: "off" }).core.telemetry).to.equal(undefined);
  });
});

// The figures of engine feedback, on a core whose engines report by hand.

import { expect } from "chai";
import { Registry } from "prom-client";
import { FeedbackMetrics } from "../../../extproc/edge/telemetry/feedback-metrics.js";
import { FeedbackDesk, URLS } from "../../support/feedback-desk.js";

describe("FeedbackMetrics", () => {
  let registry: Registry;
  let metrics: FeedbackMetrics;
  beforeEach(() => {
    registry = new Registry();
    metrics = new FeedbackMetrics(registry, "shadow");
  });

  /** Value by the labels' values. */
  async function series(name: string): Promise<Record<string, number>> {
    const found = (await registry.getMetricsAsJSON()).find((one) => one.name === name);
    return Object.fromEntries(
      (found?.values ?? []).map(({ labels, value }) => [Object.values(labels).join(" "), value]),
    );
  }

  it("counts decisions and failed polls by their reason", async () => {
    const decision = { retryAfterS: 1, projected: 9, reject: false } as const;
    const partition = "p" as never;
    metrics.decided({ ...decision, partition, reason: "running_limit", outcome: "would_reject" });
    metrics.pollFailed("timeout");
    metrics.pollFailed("timeout");
    expect(await series("weir_adaptive_admission_decisions_total")).to.deep.equal({
      "p shadow engine_feedback running_limit would_reject": 1,
    });
    expect(await series("weir_worker_telemetry_failures_total")).to.deep.equal({ timeout: 2 });
  });

  it("shows what the engines report, the limits and the slots, and drops a partition that is gone", async () => {
    const bench = new FeedbackDesk({ mode: "shadow" });
    const { feedback, slots, planner } = bench.core;
    if (feedback === undefined) throw new Error("there is no feedback");
    metrics.observe({
      controller: feedback,
      slots,
      workerUrls: () => URLS,
      orphansAt: (url) => planner.orphansAt(url, bench.now),
      now: () => bench.now,
    });
    bench.report({ running: 4, waiting: 1, tokenUsage: 0.25 }, { running: 2, tokenUsage: 0.75 });
    const figures = {
      load_coverage: 1,
      engine_running_requests: 6,
      engine_waiting_requests: 1,
      engine_mean_token_usage: 0.5,
      engine_max_token_usage: 0.75,
      engine_max_running_requests: 128,
      engine_max_running_requests_coverage: 1,
      feedback_running_limit: 128,
      feedback_knee_requests_per_replica: 0,
      router_outstanding_requests: 0,
    };
    for (const [name, value] of Object.entries(figures)) {
      const found = await series(`weir_adaptive_admission_${name}`);
      expect(found, name).to.deep.equal({ global: value });
    }
    expect(await series("weir_scheduler_partition_static_capacity")).to.deep.equal({ global: 100 });
    expect(await series("weir_worker_orphan_requests")).to.deep.equal({
      [URLS[0]]: 4,
      [URLS[1]]: 2,
    });
    for (const url of URLS) bench.registry.remove(url);
    expect(await series("weir_adaptive_admission_load_coverage")).to.deep.equal({});
  });
});

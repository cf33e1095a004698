// The page of engine feedback: everything that a decision goes by.

import { expect } from "chai";
import { admissionPage } from "../../../extproc/edge/admin/admission-page.js";
import { FeedbackDesk, URLS } from "../../support/feedback-desk.js";

function page(bench: FeedbackDesk, mode: "off" | "shadow" | "enforce"): Record<string, unknown> {
  const { feedback, telemetry, slots } = bench.core;
  const sources = { mode, adaptiveCapacity: false, feedback, telemetry, slots };
  return admissionPage(sources, bench.now) as Record<string, unknown>;
}

describe("admissionPage", () => {
  it("says so when nothing is asked of the engines", () => {
    expect(page(new FeedbackDesk({ mode: "off" }), "off")).to.deep.equal({
      mode: "off",
      adaptive_capacity: false,
    });
  });

  it("shows the inputs, what was learned, the limits, the decisions and the slots of a partition", () => {
    const bench = new FeedbackDesk({ mode: "enforce" });
    bench.report({ running: 3, tokenUsage: 0.4 }, undefined);
    bench.report({ running: 4, tokenUsage: 0.2 }, { running: 2, waiting: 9, tokenUsage: 0.6 });
    bench.advance(1_500);
    bench.drive();
    const shown = page(bench, "enforce");
    expect(shown).to.deep.include({ mode: "enforce", adaptive_capacity: false });
    const [partition] = shown["partitions"] as [Record<string, unknown>];
    expect(partition).to.deep.include({
      partition: "global",
      slots: { static: 100, adaptive: 100, orphans: 5, granted: 95 },
      outstanding: 0,
      last_reason: "engine_waiting",
      decisions: {
        telemetry_fallback: 0,
        token_pressure: 0,
        engine_waiting: 1,
        running_limit: 0,
        within_feedback_limit: 0,
      },
    });
    expect(partition["engines"]).to.deep.include({
      healthy: 2,
      observed: 2,
      running: 6,
      waiting: 9,
      mean_token_usage: 0.4,
      max_token_usage: 0.6,
      tokens_per_second: 0,
      max_running: 128,
    });
    expect(partition["learned"]).to.deep.include({ knee_per_replica: null, pressure_seen: false });
    expect(partition["limits"]).to.deep.include({
      coverage: 1,
      usable: true,
      engine: 128,
      learned: null,
      running: 128,
      pressure: "engine_waiting",
    });
    expect(shown["workers"]).to.deep.include({
      url: URLS[0],
      source: "vllm_metrics",
      age_ms: 1_500,
      running: 4,
      waiting: 0,
      token_usage: 0.2,
      tokens_per_second: null,
      max_running: 64,
      unreadable_fields: [],
    });
  });
});

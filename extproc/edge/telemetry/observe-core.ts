// Connects the gauges with the parts of the core that they read.

import type { WeirConfig } from "../../core/model/config.js";
import type { Core } from "../../core/request/assembly.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { observeEngines } from "./engine-metrics.js";
import type { Metrics } from "./metrics.js";

/** To be called once, when the core exists. */
export function observeCore(
  metrics: Metrics,
  core: Core,
  { adaptive_admission }: Pick<WeirConfig, "adaptive_admission">,
  now: () => MonotonicMs,
): void {
  const { desk, workers, telemetry, feedback, planner, selector, seeder, slots } = core;
  metrics.observe({
    partitions: () => desk.partitions(now()),
    capacity: () => slots().fleet,
    workers,
    ledger: core.ledger,
    counts: () => desk.counts,
    now,
  });
  metrics.selection.observe({ selector, workers });
  metrics.credits.observe(core.credits, () => desk.partitions(now()));
  metrics.seeding.observe({ seeder, protections: selector.protections, now });
  if (adaptive_admission.engine_metrics && telemetry !== undefined) {
    observeEngines(metrics.registry, { workers, telemetry });
  }
  if (feedback === undefined) return;
  metrics.feedback.observe({
    controller: feedback,
    slots,
    workerUrls: () => Array.from(workers.all(), ({ identity }) => identity.url),
    orphansAt: (url) => planner.orphansAt(url, now()),
    now,
  });
}

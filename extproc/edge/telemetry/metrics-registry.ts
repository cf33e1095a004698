// The registry all metrics of one process live in, and the page it renders.

import { collectDefaultMetrics, Registry } from "prom-client";

/** @param processMetrics also export the runtime's own metrics (heap, event loop, garbage collector) */
export function createMetricsRegistry(processMetrics: boolean): Registry {
  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  return registry;
}

export async function metricsPage(
  registry: Registry,
): Promise<{ readonly contentType: string; readonly text: string }> {
  return { contentType: registry.contentType, text: await registry.metrics() };
}

// Builds the parts of the core that tests need again and again.

import type { BreakerConfig, HealthConfig, WorkerConfig } from "../../extproc/core/model/config.js";
import { clusterName, modelId, partitionName } from "../../extproc/core/model/ids.js";
import { WorkerRegistry } from "../../extproc/core/workers/registry.js";

export const HEALTH: HealthConfig = {
  path: "/health",
  interval_secs: 5,
  timeout_secs: 2,
  failure_threshold: 2,
  success_threshold: 1,
};

export const BREAKER: BreakerConfig = {
  consecutive_failures: 5,
  failure_ratio: 0.5,
  window_requests: 20,
  window_secs: 30,
  open_secs: 10,
};

export interface WorkerSketch {
  readonly url: string;
  readonly models?: readonly string[];
  readonly partition?: string;
  readonly ceiling?: number;
}

export function workerConfig(sketch: WorkerSketch): WorkerConfig {
  const cluster = sketch.url.replace(/[^a-z0-9]+/gi, "_");
  return {
    id: cluster,
    url: sketch.url,
    cluster: clusterName(cluster),
    engine: "vllm",
    models: (sketch.models ?? ["demo"]).map(modelId),
    labels: {
      max_running_requests: sketch.ceiling,
      admission_partition:
        sketch.partition === undefined ? undefined : partitionName(sketch.partition),
    },
    load_monitor_interval_secs: 10,
    telemetry_url: sketch.url,
    api_key: undefined,
    kv_events: undefined,
  };
}

/** A registry whose workers have all passed their first health check. */
export function healthyRegistry(
  sketches: readonly WorkerSketch[],
  onChange: () => void = () => undefined,
): WorkerRegistry {
  const registry = new WorkerRegistry({ health: HEALTH, breaker: BREAKER, onChange });
  for (const sketch of sketches) {
    registry.put(workerConfig(sketch));
    registry.recordHealth(sketch.url, true);
  }
  return registry;
}

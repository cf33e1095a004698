// Weir with all it can do switched on, as far as it can be at once: fair shares of eight tenants,
// classes and a partition of its own, workers chosen by what they hold (learned from answers), engine
// feedback in force, metrics and the log. Slots follow the engines, therefore no seeds. There are more
// slots than any load here needs: what deciding costs is measured, not waiting.

import type { ConfigSketch } from "../support/config.js";

const SLOTS = 512;
const QUEUE = 1_024;

export function fullConfig(workerUrls: readonly string[]): ConfigSketch {
  return {
    workers: workerUrls.map((url, index) => ({
      url,
      cluster: `worker_${String(index + 1)}`,
      engine: "vllm",
      models: ["demo"],
    })),
    models: { demo: { policy: "cache_aware", ownership: "committed" } },
    trust: { tenant_id: true, peers: ["127.0.0.1"] },
    fair_share: { enabled: true },
    scheduler: {
      classes: {},
      max_concurrent_requests: SLOTS,
      queue_size: QUEUE,
      admission_partitions: { demo: { max_concurrent_requests: SLOTS, queue_size: QUEUE } },
      default_admission_partition: "demo",
    },
    adaptive_admission: { mode: "enforce" },
  };
}

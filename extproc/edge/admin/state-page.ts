// What `GET /state` shows: the workers, the partitions and how many requests are where, as they are
// at this moment. It names no tenant and no request.

import type { MonotonicMs } from "../../core/model/time.js";
import type { RequestDesk } from "../../core/request/request-desk.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";

export function statePage(
  desk: RequestDesk,
  registry: WorkerRegistry,
  ready: boolean,
  now: MonotonicMs,
): object {
  const { live, queued } = desk.counts;
  return {
    ready,
    draining: desk.draining,
    requests: { live, queued },
    partitions: desk.partitions(),
    workers: Array.from(registry.all(), (worker) => ({
      ...worker.identity,
      cluster: worker.cluster,
      engine: worker.engine,
      models: [...worker.models],
      labels: worker.labels,
      health: worker.runtime.health.status,
      breaker: worker.runtime.breaker.state(now),
      live_load: worker.runtime.liveLoad,
    })),
  };
}

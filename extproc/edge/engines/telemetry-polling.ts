// Asks the engines of the configured workers for their load, and says what cannot be read: each failure
// is counted, and the log has one line per worker and reason at most every ten seconds.

import type { WorkerConfig } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { createRng } from "../../core/model/rng.js";
import type { TelemetryStore } from "../../core/workers/telemetry-store.js";
import type { Worker } from "../../core/workers/worker.js";
import type { FeedbackMetrics } from "../telemetry/feedback-metrics.js";
import type { Log, RateLimitedLog } from "../telemetry/log.js";
import { LoadPoller } from "./load-poller.js";

export interface TelemetryPollingOptions {
  readonly configured: readonly WorkerConfig[];
  readonly workers: () => Iterable<Worker>;
  /** Workers of one group are asked together and published in one step. */
  readonly groupOf: (worker: Worker) => string;
  readonly store: TelemetryStore;
  readonly metrics: FeedbackMetrics;
  readonly log: Log;
  readonly complaints: RateLimitedLog;
  /** Hears of a fault in what follows from a publication. */
  readonly onFault: (error: unknown) => void;
  /** Seed of the jitter between polls; any number. */
  readonly seed: number;
  readonly now: () => MonotonicMs;
}

export function createTelemetryPolling(options: TelemetryPollingOptions): LoadPoller {
  const byUrl = new Map(options.configured.map((worker) => [worker.url, worker]));
  return new LoadPoller({
    workers: options.workers,
    settingsOf: ({ identity, engine }) => {
      const config = byUrl.get(identity.url);
      return {
        baseUrl: config?.telemetry_url ?? identity.url,
        engine,
        apiKey: config?.api_key,
        intervalMs: config === undefined ? undefined : config.load_monitor_interval_secs * 1_000,
      };
    },
    groupOf: options.groupOf,
    store: options.store,
    now: options.now,
    rng: createRng(options.seed),
    onFault: options.onFault,
    onReport: ({ worker, reason, detail, sampleKept }) => {
      options.metrics.pollFailed(reason);
      options.complaints.once(`telemetry ${worker.url} ${reason}`, (swallowed) => {
        const facts = { worker: worker.id, worker_url: worker.url, reason, detail, swallowed };
        const what = sampleKept
          ? "a worker reports what cannot be"
          : "the load of a worker is unknown";
        options.log.warn(facts, what);
      });
    },
  });
}

// Follows the KV events of every worker that publishes them for a model whose owners come from events,
// and counts what happens to it.

import type { ModelConfig } from "../../core/model/config.js";
import type { ModelId } from "../../core/model/ids.js";
import type { Worker } from "../../core/workers/worker.js";
import type { Log, RateLimitedLog } from "../telemetry/log.js";
import type { SelectionMetrics } from "../telemetry/selection-metrics.js";
import type { KvSink } from "./kv-feed-view.js";
import { KvFeeds } from "./kv-feeds.js";

export interface KvFollowingOptions {
  readonly models: ReadonlyMap<ModelId, ModelConfig>;
  readonly workers: () => Iterable<Worker>;
  readonly sink: KvSink;
  readonly metrics: SelectionMetrics;
  readonly log: Log;
  readonly complaints: RateLimitedLog;
}

export function createKvFollowing(options: KvFollowingOptions): KvFeeds {
  const { models, workers, sink, metrics, log, complaints } = options;
  return new KvFeeds({
    workers,
    configOf: ({ models: served, kvEvents }) => {
      const [base] = served;
      const read = base !== undefined && models.get(base)?.ownership === "events";
      return read ? kvEvents : undefined;
    },
    sink,
    listener: {
      recovered: (url) => {
        metrics.recovered(url);
      },
      failed: (url, reason) => {
        metrics.followingFailed(url, reason);
      },
      received: (url, events) => {
        metrics.eventsRead(url, events);
      },
    },
    log,
    complaints,
  });
}

// Whose KV events are followed? One feed for each rank of each worker that has a place where its engine
// publishes; every feed runs by itself, so that a slow or silent engine holds up no other. What a feed
// learns belongs to the worker's first configured model: an engine's cache is that of its base model. A
// worker that is removed or replaced ends its feeds at once and for good, and what they told is cleared;
// the replacement begins with an empty view. Failures are told to the listener, and the log has one line
// per worker and reason at a time. State: the feeds that run.

import type { KvView } from "../../core/prefixes/event-index.js";
import type { KvEventsConfig } from "../../core/model/selection-config.js";
import type { Worker } from "../../core/workers/worker.js";
import type { Log, RateLimitedLog } from "../telemetry/log.js";
import { KvFeed, type KvFailure, type KvFeedOptions } from "./kv-feed.js";
import { KvFeedView, type KvSink } from "./kv-feed-view.js";
import { endpointOf } from "./kv-wire.js";
import { SlicedWork } from "../runtime/sliced-work.js";

interface KvFeedsListener {
  /** A view was cleared because batches are missing for good. */
  recovered(workerUrl: string): void;
  failed(workerUrl: string, reason: KvFailure): void;
  /** So many events of one batch were read. */
  received(workerUrl: string, events: number): void;
}

export interface KvFeedsOptions {
  readonly workers: () => Iterable<Worker>;
  /** Where a worker's engine publishes; undefined = nowhere. */
  readonly configOf: (worker: Worker) => KvEventsConfig | undefined;
  readonly sink: KvSink;
  readonly listener: KvFeedsListener;
  readonly log: Pick<Log, "warn">;
  readonly complaints: RateLimitedLog;
  readonly replayWaitMs?: number;
}

interface Running {
  readonly view: KvView;
  readonly feed: KvFeed;
}

export class KvFeeds {
  readonly #options: KvFeedsOptions;
  readonly #running = new Map<string, Running>();
  /** Feeds that have been told to end and have not ended yet. */
  readonly #ending = new Set<Promise<void>>();
  readonly #work = new SlicedWork();
  #isStopped = false;

  constructor(options: KvFeedsOptions) {
    this.#options = options;
  }

  /** Follows the workers there are now: to be called at the start and on every change of the registry. */
  sync(): void {
    if (this.#isStopped) return;
    const wanted = new Map<string, () => Running>();
    for (const worker of this.#options.workers()) {
      const config = this.#options.configOf(worker);
      const [model] = worker.models;
      if (config === undefined || model === undefined) continue;
      const { url, generation, revision } = worker.identity;
      for (let rank = 0; rank < config.ranks; rank += 1) {
        const view = { generation, rank, model };
        const key = JSON.stringify([url, generation, revision, rank]);
        wanted.set(key, () => this.#start(worker, config, view));
      }
    }
    // The old feed of a replaced worker ends before the new one begins: they share a view in the sink.
    for (const [key, running] of this.#running) {
      if (wanted.has(key)) continue;
      this.#running.delete(key);
      this.#end(running);
      this.#options.sink.cleared(running.view);
    }
    for (const [key, start] of wanted) {
      if (!this.#running.has(key)) this.#running.set(key, start());
    }
  }

  /** Ends every feed for good; resolves when their sockets are closed. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const running of this.#running.values()) this.#end(running);
    this.#running.clear();
    await Promise.all(this.#ending);
  }

  #end({ feed }: Running): void {
    const ended = feed.stop().finally(() => this.#ending.delete(ended));
    this.#ending.add(ended);
  }

  #start(worker: Worker, config: KvEventsConfig, view: KvView): Running {
    const { sink, replayWaitMs } = this.#options;
    const { endpoint, replay_endpoint: replay, topic } = config;
    const options: KvFeedOptions = {
      endpoint: endpointOf(endpoint, view.rank),
      replayEndpoint: replay === undefined ? undefined : endpointOf(replay, view.rank),
      topic,
      view: new KvFeedView(view, sink),
      work: this.#work,
      listener: this.#listenerOf(worker, view.rank),
      ...(replayWaitMs === undefined ? {} : { replayWaitMs }),
    };
    return { view, feed: new KvFeed(options) };
  }

  #listenerOf({ identity }: Worker, rank: number): KvFeedOptions["listener"] {
    const { listener, log, complaints } = this.#options;
    const { id, url } = identity;
    const complain = (reason: string, detail: string, what: string): void => {
      complaints.once(`kv events ${url} ${reason}`, (swallowed) => {
        log.warn({ worker: id, worker_url: url, rank, reason, detail, swallowed }, what);
      });
    };
    return {
      recovered: (detail) => {
        listener.recovered(url);
        complain("gap", detail, "KV events are missing; what was known of the cache is cleared");
      },
      failed: (reason, detail) => {
        listener.failed(url, reason);
        complain(reason, detail, "a worker's KV events cannot be followed");
      },
      received: (events) => {
        listener.received(url, events);
      },
    };
  }
}

// One engine endpoint. What describes it (url, cluster, models, labels) is immutable and carries a
// revision; what it does (live load, health, breaker) is its runtime and carries a generation. A
// replacement under the same url makes a new Worker with the next revision over the same runtime; a
// removal followed by a new registration makes a new runtime with a new generation. A late release
// therefore always reaches the counter that it was taken from, and never a successor's.

import type { EngineKind, WorkerConfig, WorkerLabels } from "../model/config.js";
import type { ClusterName, ModelId } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { KvEventsConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { Breaker } from "./breaker.js";
import type { Health } from "./health.js";

/** Names one worker beyond doubt, also after it was replaced or registered anew. */
export interface WorkerIdentity {
  readonly url: string;
  readonly id: string;
  readonly generation: number;
  readonly revision: number;
}

/** Ends what it stands for; a second call does nothing. */
export type Disposer = () => void;

/** The part of a worker that a replacement under the same url inherits. */
export class WorkerRuntime {
  readonly generation: number;
  readonly health: Health;
  readonly breaker: Breaker;
  #liveLoad = 0;
  #processed = 0;

  constructor(generation: number, health: Health, breaker: Breaker) {
    this.generation = generation;
    this.health = health;
    this.breaker = breaker;
  }

  /** Weir's own count of requests in flight to the worker. */
  get liveLoad(): number {
    return this.#liveLoad;
  }

  /** Requests sent to the worker so far, those in flight included. */
  get processed(): number {
    return this.#processed;
  }

  /** Counts one request in flight until the returned disposer is called. */
  holdLoad(): Disposer {
    this.#liveLoad += 1;
    this.#processed += 1;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#liveLoad -= 1;
      invariant(this.#liveLoad >= 0, "live load of a worker went below zero");
    };
  }
}

export class Worker {
  readonly identity: WorkerIdentity;
  readonly cluster: ClusterName;
  readonly engine: EngineKind | undefined;
  readonly models: ReadonlySet<ModelId>;
  readonly labels: WorkerLabels;
  /** Where its engine publishes what its cache holds; undefined = nowhere. */
  readonly kvEvents: KvEventsConfig | undefined;
  readonly runtime: WorkerRuntime;

  constructor(config: WorkerConfig, revision: number, runtime: WorkerRuntime) {
    this.identity = { url: config.url, id: config.id, generation: runtime.generation, revision };
    this.cluster = config.cluster;
    this.engine = config.engine;
    this.models = new Set(config.models);
    this.labels = config.labels;
    this.kvEvents = config.kv_events;
    this.runtime = runtime;
  }

  get healthy(): boolean {
    return this.runtime.health.status === "healthy";
  }

  /** Healthy, and its breaker lets a request through now. */
  usable(now: MonotonicMs): boolean {
    return this.healthy && this.runtime.breaker.admits(now);
  }
}

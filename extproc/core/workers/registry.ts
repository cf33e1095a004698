// The workers Weir knows, by url and by model. Owns identity: which revision and generation a worker
// has. Tells its listener when membership or health changed, so that capacity follows by event and
// nobody polls.

import type { BreakerConfig, HealthConfig, WorkerConfig } from "../model/config.js";
import type { ModelId } from "../model/ids.js";
import { Breaker } from "./breaker.js";
import { Health } from "./health.js";
import { Worker, WorkerRuntime } from "./worker.js";

export interface RegistryOptions {
  readonly health: HealthConfig;
  readonly breaker: BreakerConfig;
  /** Called after every change of membership or of a health status. */
  readonly onChange: () => void;
}

const NO_WORKERS: readonly Worker[] = [];

export class WorkerRegistry {
  readonly #options: RegistryOptions;
  readonly #byUrl = new Map<string, Worker>();
  #byModel = new Map<ModelId, Worker[]>();
  #nextGeneration = 1;

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  /** Every worker, in the order of registration. */
  all(): IterableIterator<Worker> {
    return this.#byUrl.values();
  }

  get size(): number {
    return this.#byUrl.size;
  }

  get(url: string): Worker | undefined {
    return this.#byUrl.get(url);
  }

  /** The workers configured for a model, usable or not. */
  serving(model: ModelId): readonly Worker[] {
    return this.#byModel.get(model) ?? NO_WORKERS;
  }

  /** Registers a worker; under a url already known it replaces that worker and keeps its runtime. */
  put(config: WorkerConfig): Worker {
    const old = this.#byUrl.get(config.url);
    const runtime = old?.runtime ?? this.#newRuntime();
    const worker = new Worker(config, old === undefined ? 1 : old.identity.revision + 1, runtime);
    this.#byUrl.set(config.url, worker);
    this.#changed();
    return worker;
  }

  /** Forgets a worker; false when the url is unknown. Requests in flight keep its old runtime. */
  remove(url: string): boolean {
    if (!this.#byUrl.delete(url)) return false;
    this.#changed();
    return true;
  }

  /** Takes the result of one health check of the worker registered under `url`. */
  recordHealth(url: string, passed: boolean): void {
    const worker = this.#byUrl.get(url);
    if (worker?.runtime.health.record(passed) === true) this.#options.onChange();
  }

  #newRuntime(): WorkerRuntime {
    const generation = this.#nextGeneration;
    this.#nextGeneration += 1;
    return new WorkerRuntime(
      generation,
      new Health(this.#options.health),
      new Breaker(this.#options.breaker),
    );
  }

  #changed(): void {
    this.#byModel = new Map();
    for (const worker of this.#byUrl.values()) {
      for (const model of worker.models) {
        const list = this.#byModel.get(model);
        if (list === undefined) this.#byModel.set(model, [worker]);
        else list.push(worker);
      }
    }
    this.#options.onChange();
  }
}

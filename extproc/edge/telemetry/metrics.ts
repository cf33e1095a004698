// What is counted when. Counters and histograms are fed by the settlement record of each request;
// gauges read the core when they are scraped, so each has one
// writer. Labels taken from requests are capped.

import { Gauge, type Registry } from "prom-client";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import type { PartitionView } from "../../core/scheduler/scheduler.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { OTHER, type LabelCap } from "./label-cap.js";
import { createFamilies, type MetricFamilies } from "./metric-families.js";

export interface MetricsSources {
  readonly partitions: () => readonly PartitionView[];
  readonly workers: WorkerRegistry;
  readonly counts: () => { readonly live: number; readonly queued: number };
  readonly now: () => MonotonicMs;
}

export interface MetricsOptions {
  readonly registry: Registry;
  readonly models: LabelCap;
  readonly tenants: LabelCap;
  readonly startTimeSeconds: number;
}

export class Metrics {
  readonly registry: Registry;
  readonly #models: LabelCap;
  readonly #tenants: LabelCap;
  readonly #families: MetricFamilies;

  constructor(options: MetricsOptions) {
    this.registry = options.registry;
    this.#models = options.models;
    this.#tenants = options.tenants;
    this.#families = createFamilies(options.registry, options.startTimeSeconds);
  }

  received(): void {
    this.#families.received.inc();
  }

  admitted(): void {
    this.#families.admitted.inc();
  }

  fault(): void {
    this.#families.faults.inc();
  }

  settled(record: SettlementRecord): void {
    if (record.rejection !== undefined) this.#families.rejections.inc({ code: record.rejection });
    if (record.endpoint === undefined || record.endpoint === "pass_through") return;
    if (record.outcome === "rejected") this.#families.rejected.inc();
    this.#families.byOutcome[record.outcome]?.inc();
    if (record.waited || record.admitted) {
      this.#families.queueWait.observe(
        { partition: record.partition ?? OTHER },
        record.queuedMs / 1_000,
      );
    }
    if (record.refusedValues.length > 0) {
      for (const { reason } of record.refusedValues) this.#families.refusedValues.inc({ reason });
    }
    if (record.unknownPartitionHeader) this.#families.unknownPartition.inc();
    if (record.cutHold) this.#families.cutHolds.inc();
    if (record.estimateFallback !== undefined) {
      this.#families.fallbacks.inc({ reason: record.estimateFallback });
    }
    if (record.admitted) this.#settledByWorker(record);
  }

  #settledByWorker(record: SettlementRecord): void {
    const model = this.#models.value(record.model);
    this.#families.selections.inc({ model, policy: "power_of_two" });
    if (record.timeToFirstByteMs !== undefined) {
      this.#families.firstByte.observe({ model }, record.timeToFirstByteMs / 1_000);
    }
    const { charge } = record;
    if (charge === undefined) return;
    this.#families.settlements.inc({ kind: charge.kind });
    if (charge.tokens > 0) {
      this.#families.charged.inc({ tenant: this.#tenants.value(record.tenant) }, charge.tokens);
    }
    if (charge.kind === "missing_usage" || charge.kind === "interrupted") {
      this.#families.fallbacks.inc({ reason: charge.kind });
    }
  }

  /** Adds the gauges, once the parts they read exist. */
  observe(sources: MetricsSources): void {
    const { registry } = this;
    const partitionGauge = (
      name: string,
      help: string,
      read: (view: PartitionView) => number,
    ): void => {
      gauge(registry, name, help, "partition", (set) => {
        for (const view of sources.partitions()) set(view.name, read(view));
      });
    };
    partitionGauge("scheduler_partition_capacity", "Slots now.", (view) => view.capacity);
    partitionGauge("scheduler_partition_inflight", "Slots in use.", (view) => view.in_flight);
    partitionGauge("scheduler_partition_queue_depth", "Waiting requests.", (view) => view.queued);
    partitionGauge(
      "scheduler_partition_queue_size_limit",
      "Waiting requests at most.",
      (view) => view.queue_size,
    );
    const sum = (read: (view: PartitionView) => number) => (): number =>
      sources.partitions().reduce((total, view) => total + read(view), 0);
    single(
      registry,
      "http_admission_active",
      "Requests that hold a slot.",
      sum((view) => view.in_flight),
    );
    single(registry, "http_admission_queued", "Requests that wait.", () => sources.counts().queued);
    single(
      registry,
      "http_admission_limit",
      "Slots of all partitions.",
      sum((view) => view.capacity),
    );
    single(
      registry,
      "http_admission_queue_capacity",
      "Waiters of all partitions at most.",
      sum((view) => view.queue_size),
    );
    single(registry, "requests_live", "Requests that have not ended.", () => sources.counts().live);
    this.#observeWorkers(sources);
  }

  #observeWorkers(sources: MetricsSources): void {
    const workerGauge = (
      name: string,
      help: string,
      read: (worker: ReturnType<WorkerRegistry["get"]> & object) => number,
    ): void => {
      gauge(this.registry, name, help, "worker", (set) => {
        for (const worker of sources.workers.all()) set(worker.identity.url, read(worker));
      });
    };
    workerGauge("worker_requests_active", "Live load.", (worker) => worker.runtime.liveLoad);
    workerGauge("worker_healthy", "1 = the health checks pass.", (worker) =>
      worker.healthy ? 1 : 0,
    );
    workerGauge("worker_breaker_open", "1 = no request may be sent.", (worker) =>
      worker.runtime.breaker.state(sources.now()) === "closed" ? 0 : 1,
    );
  }
}

/** A gauge whose series are read anew at each scrape, so that nothing stale stays. */
function gauge(
  registry: Registry,
  name: string,
  help: string,
  label: string,
  collect: (set: (value: string, amount: number) => void) => void,
): void {
  new Gauge({
    name: `weir_${name}`,
    help,
    labelNames: [label],
    registers: [registry],
    collect() {
      this.reset();
      collect((value, amount) => {
        this.set({ [label]: value }, amount);
      });
    },
  });
}

function single(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name: `weir_${name}`,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

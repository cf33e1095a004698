// What is counted when. Counters and histograms are fed by the settlement record of each request;
// gauges read the core when they are scraped, so each has one
// writer. Labels taken from requests are capped.

import type { Registry } from "prom-client";
import type { AdaptiveAdmissionMode } from "../../core/model/config.js";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import type { FleetCapacity } from "../../core/capacity/partition-capacity.js";
import type { Ledger } from "../../core/fairshare/ledger.js";
import type { PartitionView } from "../../core/scheduler/admission.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { CreditMetrics } from "./credit-metrics.js";
import { FeedbackMetrics } from "./feedback-metrics.js";
import { FairShareMetrics } from "./fair-share-metrics.js";
import { gauge, single } from "./gauges.js";
import type { LabelCap } from "./label-cap.js";
import { createFamilies, type MetricFamilies } from "./metric-families.js";
import { observeScheduler } from "./scheduler-gauges.js";
import { SeedingMetrics } from "./seeding-metrics.js";
import { SelectionMetrics } from "./selection-metrics.js";

export interface MetricsSources {
  readonly partitions: () => readonly PartitionView[];
  readonly capacity: () => FleetCapacity;
  readonly workers: WorkerRegistry;
  /** Undefined without fair sharing. */
  readonly ledger: Ledger | undefined;
  readonly counts: () => { readonly live: number; readonly queued: number };
  readonly now: () => MonotonicMs;
}

export interface MetricsOptions {
  readonly registry: Registry;
  readonly feedbackMode: AdaptiveAdmissionMode;
  readonly models: LabelCap;
  readonly tenants: LabelCap;
  readonly startTimeSeconds: number;
}

export class Metrics {
  readonly registry: Registry;
  readonly feedback: FeedbackMetrics;
  readonly selection: SelectionMetrics;
  readonly credits: CreditMetrics;
  readonly seeding: SeedingMetrics;
  readonly #models: LabelCap;
  readonly #tenants: LabelCap;
  readonly #families: MetricFamilies;
  readonly #fairShare: FairShareMetrics;
  /** Inference requests that are neither admitted nor ended: their body is on the way, or they wait. */
  #undecided = 0;

  constructor(options: MetricsOptions) {
    this.registry = options.registry;
    this.feedback = new FeedbackMetrics(options.registry, options.feedbackMode);
    this.selection = new SelectionMetrics(options.registry, options.models);
    this.credits = new CreditMetrics(options.registry);
    this.seeding = new SeedingMetrics(options.registry);
    this.#models = options.models;
    this.#tenants = options.tenants;
    this.#families = createFamilies(options.registry, options.startTimeSeconds);
    this.#fairShare = new FairShareMetrics(options.registry, options.tenants);
  }

  received(): void {
    this.#undecided += 1;
    this.#families.received.inc();
  }

  admitted(): void {
    this.#undecided -= 1;
    this.#families.admitted.inc();
  }

  rateChecked(allowed: boolean): void {
    this.#families.rateChecks.inc({ result: allowed ? "allowed" : "rejected" });
  }

  fault(): void {
    this.#families.faults.inc();
  }

  settled(record: SettlementRecord): void {
    if (record.rejection !== undefined) this.#families.rejections.inc({ code: record.rejection });
    if (record.endpoint === undefined || record.endpoint === "pass_through") return;
    if (!record.admitted) this.#undecided -= 1;
    if (record.outcome === "rejected") this.#families.rejected.inc();
    this.#families.byOutcome[record.outcome]?.inc();
    this.#scheduled(record);
    if (record.refusedValues.length > 0) {
      for (const { reason } of record.refusedValues) this.#families.refusedValues.inc({ reason });
    }
    if (record.unknownPartitionHeader) this.#families.unknownPartition.inc();
    if (record.cutHold) this.#families.cutHolds.inc();
    this.#fairShare.settled(record);
    this.selection.settled(record);
    this.seeding.settled(record);
    if (record.admitted) this.#settledByWorker(record);
  }

  #scheduled(record: SettlementRecord): void {
    const families = this.#families;
    const tenant = this.#tenants.value(record.tenant);
    const { requestedClass, partition } = record;
    if (record.class !== requestedClass) {
      const effective_class = record.class;
      families.clamps.inc({ tenant, requested_class: requestedClass, effective_class });
    }
    if (record.unknownPriorityValue) families.unknownPriorities.inc({ tenant });
    if (record.waited || record.admitted) {
      families.queueWait.observe({ class: record.class }, record.queuedMs / 1_000);
    }
    if (record.promoted) families.promotions.inc({ class: record.class });
    if (record.preemptedBy !== undefined) {
      families.preemptions.inc({ victim_class: record.class, by_class: record.preemptedBy });
    }
    const outcome = admitOutcome(record);
    if (outcome === undefined || partition === undefined) return;
    families.admits.inc({ class: record.class, outcome });
    families.partitionAdmits.inc({ partition, class: record.class, outcome });
  }

  #settledByWorker(record: SettlementRecord): void {
    const model = this.#models.value(record.model);
    if (record.selection !== undefined) {
      this.#families.selections.inc({ model, policy: record.selection.policy });
    }
    if (record.timeToFirstByteMs !== undefined) {
      this.#families.firstByte.observe({ model }, record.timeToFirstByteMs / 1_000);
    }
    if (record.charge !== undefined) {
      this.#families.settlements.inc({ kind: record.charge.kind });
    }
  }

  /** Adds the gauges, once the parts they read exist. */
  observe(sources: MetricsSources): void {
    observeScheduler(this.registry, sources);
    if (sources.ledger !== undefined) this.#fairShare.observe(sources.ledger);
    single(
      this.registry,
      "http_admission_undecided",
      "Requests neither admitted nor ended: their body is on the way, or they wait.",
      () => this.#undecided,
    );
    single(
      this.registry,
      "requests_live",
      "Requests that have not ended.",
      () => sources.counts().live,
    );
    this.#observeWorkers(sources);
  }

  #observeWorkers(sources: MetricsSources): void {
    const workerGauge = (
      name: string,
      help: string,
      read: (worker: ReturnType<WorkerRegistry["get"]> & object) => number,
    ): void => {
      gauge(this.registry, name, help, ["worker"], (set) => {
        for (const worker of sources.workers.all())
          set({ worker: worker.identity.url }, read(worker));
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

/** How the scheduler was done with a request; undefined for one it never saw. */
function admitOutcome(record: SettlementRecord): string | undefined {
  if (record.preemptedBy !== undefined) return "preempted";
  if (record.admitted) return "admitted";
  if (record.rejection === "scheduler_queue_full") return "rejected_queue_full";
  if (record.rejection === "scheduler_queue_timeout") return "rejected_queue_timeout";
  return record.waited && record.rejection === undefined ? "client_cancelled" : undefined;
}

// How many slots has each partition now? The one place where the configuration, the healthy workers,
// what their engines report and what the last process left running at them come together:
//
//   static    what configuration and healthy workers give the partition
//   adaptive  the same, held to what the engines can take, where slots follow their feedback
//   slots     adaptive, less the requests of the last process that still run at its workers
//
// It is asked again by event only: when a worker changes, and when telemetry was published.

import { partitionOfWorker, type PartitionRules } from "../identity/partition.js";
import type { SchedulerConfig } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import type { WorkerRegistry } from "../workers/registry.js";
import {
  SAMPLE_AGE_MAX_MS,
  type TelemetryEntry,
  type TelemetryStore,
} from "../workers/telemetry-store.js";
import type { Worker } from "../workers/worker.js";
import type { FeedbackController, PartitionReadings } from "./feedback-controller.js";
import type { ObservedWorker, WorkerReading } from "./feedback-inputs.js";
import { Orphans } from "./orphans.js";
import { fleetCapacity, type FleetCapacity } from "./partition-capacity.js";

/** Two samples further apart than this do not belong together: a poll between them was lost twice. */
const PAIR_AGE_MAX_MS = 2 * SAMPLE_AGE_MAX_MS;

export interface SlotPlan {
  readonly fleet: FleetCapacity;
  readonly adaptive: ReadonlyMap<PartitionName, number>;
  /** Requests of the last process at the workers of each partition; none listed means 0. */
  readonly orphans: ReadonlyMap<PartitionName, number>;
  readonly slots: ReadonlyMap<PartitionName, number>;
}

export interface SlotPlannerOptions {
  readonly scheduler: SchedulerConfig;
  readonly rules: PartitionRules;
  readonly workers: Pick<WorkerRegistry, "all">;
  /** Undefined while nothing is asked of the engines. */
  readonly feedback: FeedbackController | undefined;
  readonly telemetry: TelemetryStore | undefined;
}

export class SlotPlanner {
  readonly #options: SlotPlannerOptions;
  readonly #orphans = new Orphans();
  /** What was made of the last sample of each worker: the same sample stays the same object. */
  readonly #readings = new Map<string, { entry: TelemetryEntry; reading: WorkerReading }>();

  constructor(options: SlotPlannerOptions) {
    this.#options = options;
  }

  /** In `shadow` nothing that engines report changes what is admitted. */
  get #enforced(): boolean {
    return this.#options.feedback?.mode === "enforce";
  }

  /** The partition a worker counts in: that of its first model. */
  partitionOf({ labels, models }: Worker): PartitionName | undefined {
    const [model] = models;
    return model === undefined ? undefined : partitionOfWorker(this.#options.rules, labels, model);
  }

  /** Takes what the engines report now, after a publication or a change of the workers. */
  observe(now: MonotonicMs): void {
    const { feedback, telemetry, workers } = this.#options;
    if (feedback === undefined || telemetry === undefined) return;
    const byPartition = new Map<PartitionName, ObservedWorker[]>();
    const known = new Set<string>();
    for (const worker of workers.all()) {
      const { url } = worker.identity;
      known.add(url);
      const partition = this.partitionOf(worker);
      if (!worker.healthy || partition === undefined) continue;
      const observed = { url, reading: this.#readingOf(worker, telemetry, now) };
      const list = byPartition.get(partition);
      if (list === undefined) byPartition.set(partition, [observed]);
      else list.push(observed);
    }
    for (const url of this.#readings.keys()) {
      if (known.has(url)) continue;
      this.#readings.delete(url);
      this.#orphans.forget(url);
    }
    const readings = Array.from(byPartition, ([partition, list]): PartitionReadings => ({
      partition,
      workers: list,
    }));
    feedback.publish(readings, now);
  }

  plan(now: MonotonicMs): SlotPlan {
    const { scheduler, rules, workers, feedback } = this.#options;
    const fleet = fleetCapacity(scheduler, rules, workers.all());
    const orphans = this.#orphansByPartition(fleet, now);
    const adaptive = new Map<PartitionName, number>();
    const slots = new Map<PartitionName, number>();
    for (const [name, fixed] of fleet.partitions) {
      const held = scheduler.adaptive_capacity ? feedback?.effectiveCapacity(name, fixed) : fixed;
      const ceiling = held ?? fixed;
      adaptive.set(name, ceiling);
      const kept = this.#enforced ? (orphans.get(name) ?? 0) : 0;
      slots.set(name, Math.max(0, ceiling - kept));
    }
    return { fleet, adaptive, orphans, slots };
  }

  /** Requests of the last process that still run at a worker. */
  orphansAt(url: string, now: MonotonicMs): number {
    return this.#orphans.total([url], now);
  }

  /**
   * What counts of them: those of healthy workers, since a lost one takes its slots with it, and of each
   * worker no more than its part of the partition. An engine that others use too, or that reports
   * nonsense, must not close a partition.
   */
  #orphansByPartition(
    { partitions, healthyReplicas }: FleetCapacity,
    now: MonotonicMs,
  ): ReadonlyMap<PartitionName, number> {
    const sums = new Map<PartitionName, number>();
    for (const worker of this.#options.workers.all()) {
      const partition = this.partitionOf(worker);
      const count = this.#orphans.total([worker.identity.url], now);
      if (partition === undefined || count === 0 || !worker.healthy) continue;
      const part = Math.ceil(
        (partitions.get(partition) ?? 0) / (healthyReplicas.get(partition) ?? 1),
      );
      sums.set(partition, (sums.get(partition) ?? 0) + Math.min(count, part));
    }
    return sums;
  }

  #readingOf(
    { identity }: Worker,
    telemetry: TelemetryStore,
    now: MonotonicMs,
  ): WorkerReading | undefined {
    const entry = telemetry.get(identity);
    if (entry === undefined) return undefined;
    const last = this.#readings.get(identity.url);
    if (last?.entry === entry) return last.reading;
    const reading = readingOf(
      entry,
      last !== undefined && belong(last.entry, entry) ? last.reading : undefined,
    );
    this.#readings.set(identity.url, { entry, reading });
    this.#orphans.observe(identity.url, reading.running, entry.liveLoadAtObservation, now);
    return reading;
  }
}

/** Two samples of one worker, the later one not long after the other. */
function belong(last: TelemetryEntry, next: TelemetryEntry): boolean {
  return (
    last.identity.generation === next.identity.generation &&
    next.observedAt - last.observedAt <= PAIR_AGE_MAX_MS
  );
}

/**
 * A rate covers the time since the last sample, or a second of its own, and belongs to the larger running
 * count of the two samples: a raised limit fills at once, a lowered one drains slowly, and a slot that is
 * empty for a moment is no lower limit.
 */
function readingOf({ load }: TelemetryEntry, last: WorkerReading | undefined): WorkerReading {
  const { running, waiting, waitingUncachedTokens, tokenUsage, throughput, maxRunning } = load;
  return {
    running,
    waiting,
    waitingUncachedTokens: waitingUncachedTokens ?? 0,
    tokenUsage,
    throughput,
    runningWhileMeasured: Math.max(running, last?.running ?? 0),
    maxRunning,
  };
}

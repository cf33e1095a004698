// Gauges of slots and queues, per class and per partition, read from the scheduler at each scrape.

import type { Registry } from "prom-client";
import type { FleetCapacity } from "../../core/capacity/partition-capacity.js";
import { className, RANKS, type ClassRank, type PerClass } from "../../core/model/priority.js";
import { sumOf, type PartitionView } from "../../core/scheduler/admission.js";
import { classPressure } from "../../core/scheduler/pressure.js";
import { gauge, single } from "./gauges.js";

interface SchedulerSources {
  readonly partitions: () => readonly PartitionView[];
  readonly capacity: () => FleetCapacity;
  readonly counts: () => { readonly queued: number };
}

export function observeScheduler(registry: Registry, sources: SchedulerSources): void {
  observeClasses(registry, sources);
  observePartitions(registry, sources);
  const sum = (read: (view: PartitionView) => number) => (): number =>
    sources.partitions().reduce((total, view) => total + read(view), 0);
  const inFlight = sum((view) => sumOf(view.in_flight));
  const capacity = sum((view) => view.capacity ?? 0);
  single(registry, "scheduler_utilization", "Slots in use by slots there are.", () =>
    ratio(inFlight(), capacity()),
  );
  single(registry, "http_admission_active", "Requests that hold a slot.", inFlight);
  single(registry, "http_admission_queued", "Requests that wait.", () => sources.counts().queued);
  single(registry, "http_admission_limit", "Slots of all partitions, -1 = unbounded.", () =>
    sources.partitions().some((view) => view.capacity === undefined) ? -1 : capacity(),
  );
  single(
    registry,
    "http_admission_queue_capacity",
    "Waiters of all partitions at most.",
    sum((view) => view.queue_size),
  );
}

/** Figures per class, summed or maximal over the partitions. */
function observeClasses(registry: Registry, sources: SchedulerSources): void {
  const perClass = (
    name: string,
    help: string,
    combine: (values: readonly number[]) => number,
    read: (view: PartitionView, rank: ClassRank) => number,
  ): void => {
    gauge(registry, `scheduler_${name}`, help, ["class"], (set) => {
      const views = sources.partitions();
      for (const rank of RANKS) {
        set({ class: className(rank) }, combine(views.map((view) => read(view, rank))));
      }
    });
  };
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  const max = (values: readonly number[]): number => Math.max(0, ...values);
  perClass("inflight", "Slots in use.", sum, (view, rank) => view.in_flight[rank]);
  perClass("queue_depth", "Waiting requests.", sum, (view, rank) => view.queued[rank]);
  perClass(
    "queue_size_limit",
    "Soft share of the queues.",
    sum,
    (view, rank) => view.queue_share[rank],
  );
  perClass(
    "retry_after_seconds",
    "Retry-After now.",
    max,
    (view, rank) => view.retry_after_secs[rank],
  );
  perClass("class_capacity_pressure", "0 (idle) to 1 (full).", max, classPressure);
}

function observePartitions(registry: Registry, sources: SchedulerSources): void {
  const perPartition = (
    name: string,
    help: string,
    read: (view: PartitionView) => number,
  ): void => {
    gauge(registry, `scheduler_partition_${name}`, help, ["partition"], (set) => {
      for (const view of sources.partitions()) set({ partition: view.name }, read(view));
    });
  };
  const perLane = (
    name: string,
    help: string,
    read: (view: PartitionView) => PerClass<number>,
  ): void => {
    gauge(registry, `scheduler_partition_${name}`, help, ["partition", "class"], (set) => {
      for (const view of sources.partitions()) {
        for (const rank of RANKS) {
          set({ partition: view.name, class: className(rank) }, read(view)[rank]);
        }
      }
    });
  };
  perPartition("capacity", "Slots now.", (view) => view.capacity ?? -1);
  perPartition("utilization", "Slots in use by slots there are.", (view) =>
    ratio(sumOf(view.in_flight), view.capacity ?? 0),
  );
  perLane("inflight", "Slots in use.", (view) => view.in_flight);
  perLane("queue_depth", "Waiting requests.", (view) => view.queued);
  perLane("queue_size_limit", "Soft share of the queue.", (view) => view.queue_share);
  gauge(
    registry,
    "scheduler_partition_healthy_replicas",
    "Healthy workers.",
    ["partition"],
    (set) => {
      const { healthyReplicas } = sources.capacity();
      for (const { name } of sources.partitions()) {
        set({ partition: name }, healthyReplicas.get(name) ?? 0);
      }
    },
  );
}

function ratio(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}

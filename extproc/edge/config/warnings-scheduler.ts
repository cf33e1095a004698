// Warnings about slots: labels and models that put a worker's slots where nobody looks for them,
// reservations that leave a class without a slot, and keys without effect. A warning names a state that
// no recovery ends: every configured worker counts as healthy.

import { partitionOfWorker, partitionRules } from "../../core/identity/partition.js";
import type { SchedulerConfig, WeirConfig, WorkerConfig } from "../../core/model/config.js";
import type { PartitionName } from "../../core/model/ids.js";
import { className, RANKS } from "../../core/model/priority.js";
import { idleSlots, keptFor, reachableSlots, type IdleSlots } from "./idle-slots.js";
import type { FileConfig } from "./schema.js";

/** Warnings of the section `scheduler` and of the workers' place in it. */
export function schedulerWarnings(config: WeirConfig, section: FileConfig["scheduler"]): string[] {
  const { scheduler, workers } = config;
  return [
    ...workers.flatMap((worker, index) => workerWarnings(worker, index, scheduler)),
    ...(scheduler.enabled ? slotWarnings(config) : limiterWarnings(section)),
  ];
}

function workerWarnings(
  { labels, models }: WorkerConfig,
  index: number,
  scheduler: SchedulerConfig,
): string[] {
  const known = scheduler.admission_partitions;
  const label = labels.admission_partition;
  const where = `workers[${String(index)}]`;
  if (label !== undefined) {
    if (known.has(label)) return [];
    const what = !scheduler.enabled
      ? "scheduler.enabled is false, so the label has no effect"
      : known.size === 0
        ? "scheduler.admission_partitions is empty, so the label has no effect"
        : "it is not in scheduler.admission_partitions, so the worker counts for " +
          scheduler.default_admission_partition;
    return [`${where}.labels.admission_partition ${JSON.stringify(label)}: ${what}`];
  }
  const rules = partitionRules(scheduler);
  const partitions = new Map<PartitionName, string>();
  for (const model of models) {
    const partition = partitionOfWorker(rules, labels, model);
    if (!partitions.has(partition)) partitions.set(partition, model);
  }
  if (partitions.size <= 1) return [];
  const places = Array.from(partitions, ([partition, model]) => `${model} to ${partition}`);
  const [first = ""] = partitions.keys();
  return [
    `${where}.models: they belong to different partitions (${places.join(", ")}); the slots of ` +
      `the worker count for ${first}, the partition of its first model, unless ` +
      "labels.admission_partition says otherwise",
  ];
}

function slotWarnings(config: WeirConfig): string[] {
  return idleSlots(config).flatMap((slots) =>
    slots.capacity === 0
      ? [`partition ${slots.partition}: no class has a slot (capacity 0 with every worker healthy)`]
      : classesWithoutSlot(slots),
  );
}

/** One warning per class to which an idle partition gives no slot. */
function classesWithoutSlot(slots: IdleSlots): string[] {
  const { partition, capacity, reserved } = slots;
  return RANKS.flatMap((rank): string[] => {
    if (reachableSlots(slots, rank) > 0) return [];
    const figures = keptFor(slots, rank).map(
      (other) => `${className(other)} ${String(reserved[other])}`,
    );
    return [
      `partition ${partition}: class ${className(rank)} has no slot when idle ` +
        `(capacity ${String(capacity)}, reserved ${figures.join(", ")})`,
    ];
  });
}

function limiterWarnings(section: FileConfig["scheduler"]): string[] {
  const idle = (["classes", "tenant_policies", "admission_partitions"] as const)
    .filter((key) => Object.keys(section[key]).length > 0)
    .map((key) => `scheduler.${key}`);
  const warnings: string[] = [];
  if (idle.length > 0) {
    warnings.push(`${idle.join(", ")}: without effect while scheduler.enabled is false`);
  }
  if (section.max_concurrent_requests === -1) {
    warnings.push(
      "scheduler.max_concurrent_requests: -1 while scheduler.enabled is false, so nothing limits " +
        "the requests in flight",
    );
  }
  return warnings;
}

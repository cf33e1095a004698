// Which pool a request takes its slot from, and which pool a worker belongs to. Both follow the same
// order, so that a request is only ever admitted where workers of its model count: an explicit name,
// else the partition named like the canonical model, else the default. Names are compared exactly,
// case included. A name nobody configured never creates a partition. Without configured partitions
// the one pool `global` serves everything.

import { GLOBAL_PARTITION, type SchedulerConfig, type WorkerLabels } from "../model/config.js";
import type { ModelId, PartitionName } from "../model/ids.js";

export interface PartitionRules {
  readonly known: ReadonlySet<string>;
  readonly fallback: PartitionName;
}

export interface PartitionChoice {
  readonly partition: PartitionName;
  /** A trusted hint named a partition that does not exist; worth counting. */
  readonly unknownHeader: boolean;
}

/** The partitions there are and the one that takes the rest. */
export function partitionRules(
  scheduler: Pick<SchedulerConfig, "admission_partitions" | "default_admission_partition">,
): PartitionRules {
  const names = scheduler.admission_partitions;
  return names.size === 0
    ? { known: new Set([GLOBAL_PARTITION]), fallback: GLOBAL_PARTITION }
    : { known: new Set(names.keys()), fallback: scheduler.default_admission_partition };
}

/**
 * The partition of a request. `hint` is the trusted header's trimmed value, undefined when absent,
 * refused or untrusted; `model` is the canonical model of the body, undefined when there is none.
 */
export function choosePartition(
  rules: PartitionRules,
  hint: string | undefined,
  model: ModelId | undefined,
): PartitionChoice {
  const hinted = hint === undefined ? undefined : findPartition(rules, hint);
  if (hinted !== undefined) return { partition: hinted, unknownHeader: false };
  return { partition: partitionOfModel(rules, model), unknownHeader: hint !== undefined };
}

/**
 * The partition of a worker for one of its models. A label that names no partition puts the worker
 * into the default one: its operator meant to set it apart, so it does not join the model's own.
 */
export function partitionOfWorker(
  rules: PartitionRules,
  labels: Pick<WorkerLabels, "admission_partition">,
  model: ModelId,
): PartitionName {
  const label = labels.admission_partition?.trim() ?? "";
  return label === ""
    ? partitionOfModel(rules, model)
    : (findPartition(rules, label) ?? rules.fallback);
}

function partitionOfModel(rules: PartitionRules, model: ModelId | undefined): PartitionName {
  return (model === undefined ? undefined : findPartition(rules, model)) ?? rules.fallback;
}

/** The partition of exactly this name, without a fallback; undefined = there is none. */
export function findPartition(rules: PartitionRules, name: string): PartitionName | undefined {
  return rules.known.has(name) ? (name as PartitionName) : undefined;
}

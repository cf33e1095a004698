// Warnings about seeding: keys that nothing reads, and what can never be part of a seed although seeding
// is on: a partition nobody is in, a model with nobody to spread to, a worker whose room can never be
// known, owners that nothing can prove, a prefix that may get no more owners.

import { partitionOfWorker, partitionRules } from "../../core/identity/partition.js";
import type { EngineKind, WeirConfig, WorkerConfig } from "../../core/model/config.js";
import type { ModelId, PartitionName } from "../../core/model/ids.js";
import { DEFAULTS } from "./defaults.js";
import { feeds } from "./warnings-selection.js";
import { listWorkers } from "./worker-list.js";

/** Most workers one warning lists. */
const LISTED_WORKERS_MAX = 5;

/** Kinds of engines that never report how many requests they run at once. */
const WITHOUT_CEILING: readonly EngineKind[] = ["vllm", "trtllm"];

/** Workers of one model in one partition that seeds, with their places in the file. */
interface Group {
  readonly partition: PartitionName;
  readonly model: ModelId;
  readonly workers: readonly (readonly [index: number, worker: WorkerConfig])[];
}

/** Warnings of the section `seeding` and of what it finds in the other sections. */
export function seedingWarnings(config: WeirConfig): string[] {
  const { seeding } = config;
  if (seeding.seed_cap === 0) return idleKeys(seeding);
  const groups = seeding.partitions.flatMap((partition) => groupsOf(config, partition));
  return [
    ...emptyPartitions(config, groups),
    ...groups.flatMap((group) => groupWarnings(group, config)),
    ...unknownWorkers(groups),
    ...ownerBudget(config),
  ];
}

function idleKeys(seeding: WeirConfig["seeding"]): string[] {
  const idle: string[] = [];
  if (seeding.partitions.length > 0) idle.push("seeding.partitions");
  for (const key of ["proof_source", "seed_response_max_bytes"] as const) {
    if (seeding[key] !== DEFAULTS.seeding[key]) idle.push(`seeding.${key}`);
  }
  return idle.length === 0
    ? []
    : [`${idle.join(", ")}: without effect while seeding.seed_cap is 0`];
}

function groupsOf({ scheduler, workers }: WeirConfig, partition: PartitionName): Group[] {
  const rules = partitionRules(scheduler);
  const byModel = new Map<ModelId, [number, WorkerConfig][]>();
  for (const [index, worker] of workers.entries()) {
    for (const model of worker.models) {
      if (partitionOfWorker(rules, worker.labels, model) !== partition) continue;
      const members = byModel.get(model) ?? [];
      members.push([index, worker]);
      byModel.set(model, members);
    }
  }
  return Array.from(byModel, ([model, members]) => ({ partition, model, workers: members }));
}

function emptyPartitions({ seeding }: WeirConfig, groups: readonly Group[]): string[] {
  return seeding.partitions
    .filter((name) => !groups.some(({ partition }) => partition === name))
    .map(
      (name) =>
        `seeding.partitions: no worker is in ${JSON.stringify(name)}, so nothing seeds there`,
    );
}

function groupWarnings({ partition, model, workers }: Group, { models }: WeirConfig): string[] {
  const warnings: string[] = [];
  const where = `of model ${model} in the partition ${JSON.stringify(partition)}`;
  const [[only] = [0], ...others] = workers;
  if (others.length === 0) {
    warnings.push(
      `seeding.partitions: workers[${String(only)}] is the only worker ${where}, so there is nobody ` +
        "else to seed",
    );
  }
  const byEvents = models.get(model)?.ownership === "events";
  if (byEvents && !workers.some(([, worker]) => feeds(worker, model))) {
    warnings.push(
      `models.${model}.ownership: events, but no worker ${where} has kv_events that tell of it, so ` +
        "no owner can be proven and nothing seeds there",
    );
  }
  return warnings;
}

/** A worker whose room is unknown is no target, and an owner whose room is unknown is never full. */
function unknownWorkers(groups: readonly Group[]): string[] {
  const workers = new Map(groups.flatMap((group) => group.workers));
  const indexes = (lacks: (worker: WorkerConfig) => boolean): number[] =>
    [...workers]
      .filter(([, { engine }]) => engine !== undefined && WITHOUT_CEILING.includes(engine))
      .filter(([, worker]) => lacks(worker))
      .map(([index]) => index)
      .sort((one, other) => one - other);
  const never =
    "so it is not known when they are full, and neither they nor what they hold is ever seeded";
  const warnings: string[] = [];
  const bare = indexes((worker) => !hasRanks(worker) && !worker.labels.max_running_requests);
  if (bare.length > 0) {
    warnings.push(
      `labels.max_running_requests: missing at ${listWorkers(bare, LISTED_WORKERS_MAX)}, whose engines ` +
        `report no ceiling of running requests, ${never}`,
    );
  }
  const ranked = indexes(hasRanks);
  if (ranked.length > 0) {
    warnings.push(
      `kv_events.ranks: more than one at ${listWorkers(ranked, LISTED_WORKERS_MAX)}, whose engines report ` +
        `no ceiling for each rank, ${never}`,
    );
  }
  return warnings;
}

function hasRanks({ kv_events }: WorkerConfig): boolean {
  return kv_events !== undefined && kv_events.ranks > 1;
}

function ownerBudget({ selection }: WeirConfig): string[] {
  const { max_cached_owners_per_prefix: owners, cache_owner_spill_cooldown_secs: cooldown } =
    selection;
  const only =
    "so no prefix gets a new owner by a seed; refused requests only go to owners that have room after all";
  if (owners <= 1) {
    return [
      `selection.max_cached_owners_per_prefix: ${String(owners)} while seeding.seed_cap is 1, ${only}`,
    ];
  }
  return cooldown > 0
    ? []
    : [`selection.cache_owner_spill_cooldown_secs: 0 while seeding.seed_cap is 1, ${only}`];
}

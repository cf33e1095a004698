// Warnings about seeding: keys that nothing reads, and what can never be part of a seed although seeding
// is on: a partition nobody is in, a model with nobody to spread to, a worker whose room can never be
// known, owners that nothing can prove, a prefix that may get no more owners, slots so few that nobody
// ever waits in an engine. What is sure never to seed is said as such, what may not with its condition.

import { partitionOfWorker, partitionRules } from "../../core/identity/partition.js";
import type { EngineKind, WeirConfig, WorkerConfig } from "../../core/model/config.js";
import type { ModelId, PartitionName } from "../../core/model/ids.js";
import { rankOf } from "../../core/model/priority.js";
import { DEFAULTS } from "./defaults.js";
import { idleSlots, reachableSlots } from "./idle-slots.js";
import { feeds } from "./warnings-selection.js";
import { listWorkers } from "./worker-list.js";

/** Most workers one warning lists. */
const LISTED_WORKERS_MAX = 5;

/** Kinds of engines that never report how many requests they run at once. */
const WITHOUT_CEILING: readonly EngineKind[] = ["vllm", "trtllm"];

/** Longest cooldown without a warning: a hot prompt that must wait longer for its next try drowns meanwhile. */
const COOLDOWN_SECS_MAX = 60;

/** What one block of a prompt takes in the index of a worker, 52 bytes without events and 72 with them. */
const BLOCK_BYTES_MAX = 72;

/** Least memory for a worker's prefixes without a warning: a few prompts of the default length. */
const TREE_BYTES_MIN = 65_536;

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
    ...seeding.partitions.flatMap((partition) => fewSlots(config, partition)),
    ...unknownWorkers(groups),
    ...ownerBudget(config),
    ...forgottenOwners(groups, config),
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

/**
 * A partition whose slots are used up before the feedback of the engines refuses: requests wait in Weir,
 * and none comes as far as to seed. Only the workers whose ceiling the file tells are judged, by the
 * largest; the feedback counts a worker where its first model belongs.
 */
function fewSlots(config: WeirConfig, partition: PartitionName): string[] {
  const { scheduler, workers, adaptive_admission } = config;
  const rules = partitionRules(scheduler);
  const members = [...workers.entries()].filter(
    ([
      ,
      {
        labels,
        models: [first],
      },
    ]) => {
      return first !== undefined && partitionOfWorker(rules, labels, first) === partition;
    },
  );
  let largest: { readonly index: number; readonly ceiling: number } | undefined;
  for (const [index, worker] of members) {
    const ceiling = hasRanks(worker) ? undefined : worker.labels.max_running_requests;
    if (ceiling !== undefined && ceiling > (largest?.ceiling ?? 0)) largest = { index, ceiling };
  }
  const slots = idleSlots(config).find(({ partition: name }) => name === partition);
  if (largest === undefined || slots === undefined) return [];
  const { index, ceiling } = largest;
  const each = adaptive_admission.feedback_max_waiting_requests_per_healthy_replica;
  const waiting = each * members.length;
  const reachable = reachableSlots(slots, rankOf("default"));
  if (reachable > ceiling + waiting) return [];
  return [
    `seeding.partitions: class default reaches ${String(reachable)} of the ${String(slots.capacity)} slots ` +
      `of the partition ${JSON.stringify(partition)}, but workers[${String(index)}] runs ` +
      `${String(ceiling)} and ${String(waiting)} may wait (${String(each)} for each of ` +
      `${String(members.length)} workers) before engine_waiting refuses anybody, so with fewer than ` +
      `${String(ceiling + waiting + 1)} slots nothing that it holds alone is ever seeded for that reason`,
  ];
}

/** What leaves a worker's room unknown where its engine reports no ceiling. */
const ROOM_FAULTS = [
  {
    key: "labels.max_running_requests: missing",
    report: "report no ceiling of running requests",
    isMeant: (worker: WorkerConfig) =>
      !hasRanks(worker) && worker.labels.max_running_requests === undefined,
  },
  {
    key: "kv_events.ranks: more than one",
    report: "report no ceiling for each rank",
    isMeant: hasRanks,
  },
] as const;

/** A worker whose room is unknown is no target, and an owner whose room is unknown is never full. */
function unknownWorkers(groups: readonly Group[]): string[] {
  const workers = [...new Map(groups.flatMap((group) => group.workers))];
  const never = "neither they nor what they hold is ever seeded";
  const listed = (
    isMeant: (worker: WorkerConfig) => boolean,
    isOf: (engine: EngineKind | undefined) => boolean,
  ): string | undefined => {
    const indexes = workers
      .filter(([, worker]) => isMeant(worker) && isOf(worker.engine))
      .map(([index]) => index)
      .sort((one, other) => one - other);
    return indexes.length === 0 ? undefined : listWorkers(indexes, LISTED_WORKERS_MAX);
  };
  const sure = ROOM_FAULTS.flatMap(({ key, report, isMeant }) => {
    const where = listed(isMeant, (engine) => engine !== undefined && isSilent(engine));
    if (where === undefined) return [];
    return [
      `${key} at ${where}, whose engines ${report}, so it is not known when they are full, and ${never}`,
    ];
  });
  // Which kind it is, is found out by asking.
  const perhaps = ROOM_FAULTS.flatMap(({ key, report, isMeant }) => {
    const where = listed(isMeant, (engine) => engine === undefined);
    if (where === undefined) return [];
    const kinds = WITHOUT_CEILING.join(" or ");
    return [`${key} at ${where}, without engine; if that is ${kinds}, which ${report}, ${never}`];
  });
  return [...sure, ...perhaps];
}

function isSilent(engine: EngineKind): boolean {
  return WITHOUT_CEILING.includes(engine);
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
  if (cooldown === 0) {
    return [`selection.cache_owner_spill_cooldown_secs: 0 while seeding.seed_cap is 1, ${only}`];
  }
  if (cooldown <= COOLDOWN_SECS_MAX) return [];
  return [
    `selection.cache_owner_spill_cooldown_secs: ${String(cooldown)} while seeding.seed_cap is 1, so one ` +
      `seed that fails keeps its prompt from new owners for ${String(cooldown)} s; above ` +
      `${String(COOLDOWN_SECS_MAX)} that is long for a prompt whose owner drowns`,
  ];
}

/** Owners that are never known, or not for long. */
function forgottenOwners(groups: readonly Group[], { models, selection }: WeirConfig): string[] {
  const { cache_threshold, max_tree_size, max_prefix_blocks } = selection;
  const warnings: string[] = [];
  const committed = new Set(
    groups.map(({ model }) => model).filter((model) => models.get(model)?.ownership !== "events"),
  );
  if (cache_threshold >= 1 && committed.size > 0) {
    const [first = "", ...others] = committed;
    const more = others.length === 0 ? "" : ` and ${String(others.length)} more`;
    warnings.push(
      "selection.cache_threshold: 1 must be exceeded, and nobody holds more of a prompt than all of it, " +
        `so with models.${first}.ownership committed${more} no worker is ever an owner and nothing seeds`,
    );
  }
  const prompt = max_prefix_blocks * BLOCK_BYTES_MAX;
  const least = Math.max(TREE_BYTES_MIN, prompt);
  if (max_tree_size < least && groups.length > 0) {
    warnings.push(
      `selection.max_tree_size: ${String(max_tree_size)} bytes for the prefixes of one worker, while one ` +
        `prompt takes up to ${String(prompt)} (selection.max_prefix_blocks ${String(max_prefix_blocks)}, ` +
        `${String(BLOCK_BYTES_MAX)} bytes each), so owners are forgotten at once and little or nothing ` +
        `seeds; below ${String(least)} it is too small`,
    );
  }
  return warnings;
}

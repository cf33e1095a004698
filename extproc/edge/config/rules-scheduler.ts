// Rules of the section `scheduler`: partitions that fit together and into the fleet, keys that belong
// to the other mode, and Envoy timeouts that let a request be held as long as its class may wait.
// Each rule looks at sound values only, and says which partition or class it speaks of.

import { HOLD_MARGIN_SECS, STREAM_IDLE_MARGIN_SECS } from "../../core/model/hold-budget.js";
import { PRIORITY_CLASSES } from "../../core/model/priority.js";
import { readDurationMs } from "./addresses.js";
import { CLASS_DEFAULTS, LIMITER_QUEUE_TIMEOUT_SECS } from "./defaults.js";
import type { Draft } from "./draft.js";
import type { ConfigPath, Finding } from "./problem.js";

type SchedulerDraft = NonNullable<Draft["scheduler"]>;
type PartitionDraft = NonNullable<NonNullable<SchedulerDraft["admission_partitions"]>[string]>;

const PARTITIONS: ConfigPath = ["scheduler", "admission_partitions"];

/** Every broken rule of the section. */
export function checkScheduler(draft: Draft): Finding[] {
  const { scheduler } = draft;
  if (scheduler === undefined) return [];
  return [
    ...checkLimiterKeys(scheduler),
    ...checkFloors(scheduler),
    ...checkPartitions(scheduler),
    ...checkHold(scheduler, draft.envoy),
  ];
}

function checkLimiterKeys(scheduler: SchedulerDraft): Finding[] {
  const { enabled, fallback_to_limiter, queue_timeout_secs } = scheduler;
  // With the fallback on, the limiter may run after all, and then the key has a meaning.
  if (enabled !== true || fallback_to_limiter !== false || queue_timeout_secs === undefined) {
    return [];
  }
  const message =
    "belongs to the limiter (scheduler.enabled: false); with the scheduler on, each class has its " +
    "own: scheduler.classes.*.queue_timeout_secs";
  return [{ path: ["scheduler", "queue_timeout_secs"], message }];
}

/**
 * A floor that somebody wrote must fit into the slots there are. The shipped floors are made for large
 * fleets and are cut in small ones, so a class that is not listed is not looked at.
 */
function checkFloors(scheduler: SchedulerDraft): Finding[] {
  const slots = scheduler.max_concurrent_requests;
  if (scheduler.enabled !== true || slots === undefined || slots === -1) return [];
  const problems: Finding[] = [];
  for (const name of PRIORITY_CLASSES) {
    const floor = scheduler.classes?.[name]?.reserved_floor;
    if (floor === undefined || floor <= slots) continue;
    const message =
      `must be at most scheduler.max_concurrent_requests = ${String(slots)}, ` +
      `got ${String(floor)}`;
    problems.push({ path: ["scheduler", "classes", name, "reserved_floor"], message });
  }
  return problems;
}

function checkPartitions(scheduler: SchedulerDraft): Finding[] {
  const partitions = new Map<string, PartitionDraft>();
  for (const [name, partition] of Object.entries(scheduler.admission_partitions ?? {})) {
    if (partition !== undefined) partitions.set(name, partition);
  }
  if (partitions.size === 0) return [];
  return [
    ...checkDefaultPartition(scheduler, [...partitions.keys()]),
    ...checkModes(partitions),
    ...checkSum(scheduler, partitions, "max_concurrent_requests"),
    ...checkSum(scheduler, partitions, "queue_size"),
  ];
}

function checkDefaultPartition(scheduler: SchedulerDraft, names: readonly string[]): Finding[] {
  const fallback = scheduler.default_admission_partition;
  if (fallback === undefined || names.includes(fallback)) return [];
  const message =
    `must be one of the names in scheduler.admission_partitions (${names.join(", ")}), ` +
    `got ${JSON.stringify(fallback)}`;
  return [{ path: ["scheduler", "default_admission_partition"], message }];
}

/** A partition counts slots itself or follows its replicas, and all do the same. */
function checkModes(partitions: ReadonlyMap<string, PartitionDraft>): Finding[] {
  const problems: Finding[] = [];
  const modes = new Map<string, boolean>();
  for (const [name, partition] of partitions) {
    // Absent means false; present without a value means that it was refused.
    const follows = valueOr(partition, "capacity_from_healthy_replicas", false);
    if (follows === undefined) continue;
    modes.set(name, follows);
    const add = (key: string, message: string): unknown =>
      problems.push({ path: [...PARTITIONS, name, key], message });
    const slots = "max_concurrent_requests";
    const perReplica = "max_concurrent_requests_per_healthy_replica";
    if (follows && partition[slots] !== undefined) {
      add(slots, `must be absent while capacity_from_healthy_replicas is true; use ${perReplica}`);
    }
    if (!follows && !(slots in partition)) {
      const need = "must be a whole number from 1 to 65535";
      add(slots, `is missing; it ${need}, or set capacity_from_healthy_replicas: true`);
    }
    if (!follows && partition[perReplica] !== undefined) {
      add(perReplica, `must be absent unless capacity_from_healthy_replicas is true; use ${slots}`);
    }
  }
  return [...problems, ...checkOneMode(modes)];
}

function checkOneMode(modes: ReadonlyMap<string, boolean>): Finding[] {
  const [first] = modes;
  if (first === undefined) return [];
  const [firstName, firstMode] = first;
  return [...modes]
    .filter(([, mode]) => mode !== firstMode)
    .map(([name, mode]) => ({
      path: [...PARTITIONS, name, "capacity_from_healthy_replicas"],
      message:
        "must be the same for all partitions, " +
        `got ${String(mode)} while ${firstName} has ${String(firstMode)}`,
    }));
}

function checkSum(
  scheduler: SchedulerDraft,
  partitions: ReadonlyMap<string, PartitionDraft>,
  key: "max_concurrent_requests" | "queue_size",
): Finding[] {
  const most = scheduler[key];
  const parts = [...partitions].map(([name, partition]) => [name, partition[key]] as const);
  // -1 leaves the ceiling to the workers: nothing to compare with before they report. An absent or
  // refused part has its own problem, or follows its replicas.
  if (most === undefined || most === -1 || parts.some(([, part]) => part === undefined)) return [];
  const sum = parts.reduce((total, [, part]) => total + (part ?? 0), 0);
  if (sum <= most) return [];
  const terms = parts.map(([name, part]) => `${name} ${String(part)}`).join(", ");
  const message =
    `${key} of all partitions must add up to at most scheduler.${key} = ${String(most)}, ` +
    `got ${String(sum)} (${terms})`;
  return [{ path: PARTITIONS, message }];
}

/**
 * Weir asks Envoy for the queue timeout + 5 s. A smaller allowance would cut a held request from
 * outside, and the client would get Envoy's answer instead of Weir's.
 */
function checkHold(scheduler: SchedulerDraft, envoy: Draft["envoy"]): Finding[] {
  const longest = longestQueueTimeout(scheduler);
  if (longest === undefined) return [];
  const problems: Finding[] = [];
  const atLeast = (
    key: "max_message_timeout" | "stream_idle_timeout",
    marginSecs: number,
  ): void => {
    const given = envoy?.[key];
    const needSecs = longest.secs + marginSecs;
    if (given === undefined || (readDurationMs(given) ?? 0) >= needSecs * 1000) return;
    const figures = `${String(longest.secs)} s (${longest.key}) + ${String(marginSecs)} s`;
    const message =
      `must be at least ${String(needSecs)}s, the longest queue timeout ${figures}, ` +
      `got ${JSON.stringify(given)}`;
    problems.push({ path: ["envoy", key], message });
  };
  atLeast("max_message_timeout", HOLD_MARGIN_SECS);
  atLeast("stream_idle_timeout", HOLD_MARGIN_SECS + STREAM_IDLE_MARGIN_SECS);
  return problems;
}

interface QueueTimeout {
  readonly secs: number;
  /** The key that decides it. */
  readonly key: string;
}

/** Undefined while a value it depends on is not sound. */
function longestQueueTimeout(scheduler: SchedulerDraft): QueueTimeout | undefined {
  if (scheduler.enabled === undefined) return undefined;
  if (!scheduler.enabled) {
    const secs = valueOr(scheduler, "queue_timeout_secs", LIMITER_QUEUE_TIMEOUT_SECS);
    return secs === undefined ? undefined : { secs, key: "scheduler.queue_timeout_secs" };
  }
  const { classes } = scheduler;
  if (classes === undefined) return undefined;
  let longest: QueueTimeout = { secs: 0, key: "" };
  for (const name of PRIORITY_CLASSES) {
    const secs = valueOr(classes, name, CLASS_DEFAULTS[name])?.queue_timeout_secs;
    if (secs === undefined) return undefined;
    const key = `scheduler.classes.${name}.queue_timeout_secs`;
    if (secs > longest.secs) longest = { secs, key };
  }
  return longest;
}

/** The default when the key is absent; undefined when its value was refused. */
function valueOr<Source extends object, Key extends keyof Source>(
  source: Source,
  key: Key,
  absent: NonNullable<Source[Key]>,
): Source[Key] | undefined {
  return key in source ? source[key] : absent;
}

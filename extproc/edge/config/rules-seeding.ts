// What guarded seeding needs from the rest of the file. A seed is a request that the engines' feedback
// refused, in a partition that exists, for a model whose owners are known, with a proof that somebody
// hands out. Without one of these the section could never do anything, or would refuse ordinary requests
// for nothing, so each is an error at the place a person would change, and all are shown at once. A list
// of partitions while the cap is 0 is allowed: nothing reads it. A value that was refused by itself is
// not asked for again.

import { partitionOfWorker, type PartitionRules } from "../../core/identity/partition.js";
import { GLOBAL_PARTITION } from "../../core/model/config.js";
import { modelId, partitionName, type PartitionName } from "../../core/model/ids.js";
import { SEED_CAP } from "../../core/seeding/rules.js";
import { DEFAULTS } from "./defaults.js";
import type { Draft } from "./draft.js";
import type { ConfigPath, Finding } from "./problem.js";
import { wantsCredits } from "./rules-credits.js";
import { aliasOwners } from "./rules-workers.js";
import { readAdmissionMode } from "./schema-adaptive-admission.js";

type WorkerDraft = NonNullable<NonNullable<Draft["workers"]>[number]>;

const PARTITIONS: ConfigPath = ["seeding", "partitions"];
const WHILE = `while seeding.seed_cap is ${String(SEED_CAP)}`;

/** True when the file asks for seeds. */
export function wantsSeeding({ seeding }: Draft): boolean {
  return seeding?.seed_cap === SEED_CAP;
}

/** Every broken rule of the section. */
export function checkSeeding(draft: Draft): Finding[] {
  const duplicates = checkDuplicates(draft);
  if (!wantsSeeding(draft)) return duplicates;
  return [
    ...duplicates,
    ...checkMode(draft),
    ...checkCapacity(draft),
    ...checkPartitions(draft),
    ...checkPolicies(draft),
    ...checkProofs(draft),
  ];
}

function checkDuplicates({ seeding }: Draft): Finding[] {
  const names = seeding?.partitions ?? [];
  return [...names.entries()].flatMap(([index, name]): Finding[] => {
    const first = name === undefined ? index : names.indexOf(name);
    if (first === index) return [];
    const other = `seeding.partitions[${String(first)}]`;
    const message = `must be unique, but ${JSON.stringify(name)} is also ${other}`;
    return [{ path: [...PARTITIONS, index], message }];
  });
}

/** Only where the feedback refuses requests is there one to seed with. */
function checkMode({ adaptive_admission }: Draft): Finding[] {
  const mode = adaptive_admission?.mode;
  if (mode === undefined || readAdmissionMode(mode) === "enforce") return [];
  const message = `must be enforce ${WHILE}, got ${JSON.stringify(mode)}`;
  return [{ path: ["adaptive_admission", "mode"], message }];
}

/** Slots that follow full engines fall to 0, and then no request comes as far as to be refused. */
function checkCapacity({ scheduler }: Draft): Finding[] {
  if (scheduler?.adaptive_capacity !== true) return [];
  const message =
    `must be auto or false ${WHILE}, because slots that follow full engines leave nobody to seed ` +
    "with, got true";
  return [{ path: ["scheduler", "adaptive_capacity"], message }];
}

function checkPartitions(draft: Draft): Finding[] {
  const names = draft.seeding?.partitions;
  if (names === undefined) return [];
  if (names.length === 0) {
    const message = `must hold at least one name ${WHILE}, got none`;
    return [{ path: PARTITIONS, message }];
  }
  const rules = partitionsOf(draft);
  if (rules === undefined) return [];
  return [...names.entries()].flatMap(([index, name]): Finding[] => {
    if (name === undefined || rules.known.has(name)) return [];
    const message = `must be ${knownNames(draft, rules)} ${WHILE}, got ${JSON.stringify(name)}`;
    return [{ path: [...PARTITIONS, index], message }];
  });
}

function knownNames({ scheduler }: Draft, { known }: PartitionRules): string {
  if (scheduler?.enabled === false) {
    return `${GLOBAL_PARTITION}, the only partition when scheduler.enabled is false,`;
  }
  return Object.keys(scheduler?.admission_partitions ?? {}).length === 0
    ? `${GLOBAL_PARTITION}, the only partition when scheduler.admission_partitions is empty,`
    : `one of the names in scheduler.admission_partitions (${[...known].join(", ")})`;
}

/** The partitions there will be, those included whose settings were refused; undefined = unknown. */
function partitionsOf({ scheduler }: Draft): PartitionRules | undefined {
  if (scheduler?.enabled === undefined) return undefined;
  const only = { known: new Set([GLOBAL_PARTITION]), fallback: GLOBAL_PARTITION };
  if (!scheduler.enabled) return only;
  const { admission_partitions, default_admission_partition: fallback } = scheduler;
  if (admission_partitions === undefined) return undefined;
  const known = new Set(Object.keys(admission_partitions));
  if (known.size === 0) return only;
  return fallback === undefined ? undefined : { known, fallback: partitionName(fallback) };
}

/** Without a policy that knows of owners there is nobody to show full, and nothing to guard. */
function checkPolicies(draft: Draft): Finding[] {
  const rules = partitionsOf(draft);
  const { models, seeding, workers } = draft;
  if (rules === undefined || models === undefined) return [];
  const seeds = new Set(seeding?.partitions);
  const aliases = aliasOwners(draft);
  const problems = new Map<string, Finding>();
  for (const worker of workers ?? []) {
    for (const name of worker?.models ?? []) {
      if (worker === undefined || name === undefined) continue;
      const model = aliases.get(name) ?? name;
      const partition = partitionOf(rules, worker, model);
      const policy = policyOf(models, model);
      if (partition === undefined || !seeds.has(partition)) continue;
      if (policy === undefined || policy === "cache_aware") continue;
      const message =
        `must be cache_aware ${WHILE} and workers of the model are in the partition ` +
        `${JSON.stringify(partition)} of seeding.partitions, got ${JSON.stringify(policy)}`;
      problems.set(model, { path: ["models", model, "policy"], message });
    }
  }
  return [...problems.values()];
}

/** Undefined when the label that would decide it was refused. */
function partitionOf(
  rules: PartitionRules,
  worker: WorkerDraft,
  model: string,
): PartitionName | undefined {
  const { labels } = worker;
  if (labels === undefined && "labels" in worker) return undefined;
  const label = labels?.admission_partition;
  if (label === undefined && labels !== undefined && "admission_partition" in labels) {
    return undefined;
  }
  const admission_partition = label === undefined ? undefined : partitionName(label);
  return partitionOfWorker(rules, { admission_partition }, modelId(model));
}

/** What applies to a model; undefined when what was written was refused. */
function policyOf(models: NonNullable<Draft["models"]>, model: string): string | undefined {
  if (!Object.hasOwn(models, model)) return DEFAULTS.model.policy;
  const settings = models[model];
  if (settings === undefined) return undefined;
  return "policy" in settings ? settings.policy : DEFAULTS.model.policy;
}

function checkProofs(draft: Draft): Finding[] {
  const source = draft.seeding?.proof_source;
  if (source === undefined) return [];
  const path = ["seeding", "proof_source"];
  if (source === "credits") {
    if (wantsCredits(draft)) return [];
    const message = "credits needs credits.generation, which is not set; set it, or take scheduler";
    return [{ path, message }];
  }
  const needs: string[] = [];
  const { scheduler, fair_share } = draft;
  if (scheduler?.enabled === false) needs.push("scheduler.enabled: true (it is false)");
  if (fair_share?.enabled === false) needs.push("fair_share.enabled: true (it is false)");
  if (needs.length === 0) return [];
  const message = `scheduler needs ${needs.join(" and ")}; set what is missing, or take credits`;
  return [{ path, message }];
}

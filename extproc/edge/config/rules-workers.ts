// Rules of workers and models: one worker per url, cluster and id, one place for its API key, and one
// meaning per model name.
// Two entries for one engine would count its load twice; an alias that is also a canonical name
// would make the model of a request depend on the order of look-ups.

import { EXT_PROC_CLUSTER } from "../../core/model/config.js";
import { readWorkerUrl } from "./addresses.js";
import type { Draft } from "./draft.js";
import type { ConfigPath, Finding } from "./problem.js";

type WorkerKey = "url" | "cluster" | "id";

/** Uniqueness of workers, and their models being canonical names. */
export function checkWorkers(draft: Draft): Finding[] {
  const problems: Finding[] = [];
  const seen = new Map<string, string>();
  const once = (index: number, key: WorkerKey, what: string, value: string | undefined): void => {
    if (value === undefined) return;
    const first = seen.get(`${what} ${value}`);
    if (first === undefined) seen.set(`${what} ${value}`, `workers[${String(index)}]`);
    else {
      const message = `must be unique, but ${JSON.stringify(value)} is also the ${what} of ${first}`;
      problems.push({ path: ["workers", index, key], message });
    }
  };
  const aliases = aliasOwners(draft);
  for (const [index, worker] of (draft.workers ?? []).entries()) {
    if (worker === undefined) continue;
    once(index, "url", "url", worker.url === undefined ? undefined : readWorkerUrl(worker.url));
    const twice = seen.has(`cluster ${worker.cluster ?? ""}`);
    once(index, "cluster", "cluster", worker.cluster);
    if (worker.id !== undefined) once(index, "id", "id", worker.id);
    // Without an id of its own a worker is called like its cluster.
    else if (!twice) once(index, "cluster", "id", worker.cluster);
    if (worker.cluster === EXT_PROC_CLUSTER) {
      const message = `must not be ${EXT_PROC_CLUSTER}, the cluster of Weir itself`;
      problems.push({ path: ["workers", index, "cluster"], message });
    }
    if (worker.api_key_env !== undefined && worker.api_key_file !== undefined) {
      const message = "must be absent while api_key_env is set; keep one of the two";
      problems.push({ path: ["workers", index, "api_key_file"], message });
    }
    problems.push(...checkWorkerModels(["workers", index, "models"], worker.models ?? [], aliases));
  }
  return problems;
}

function checkWorkerModels(
  path: ConfigPath,
  models: readonly (string | undefined)[],
  aliases: ReadonlyMap<string, string>,
): Finding[] {
  const problems: Finding[] = [];
  for (const [place, model] of models.entries()) {
    if (model === undefined) continue;
    const canonical = aliases.get(model);
    if (canonical !== undefined) {
      const message = `must be a canonical name, but ${JSON.stringify(model)} is an alias of ${canonical}`;
      problems.push({ path: [...path, place], message });
    }
    if (models.indexOf(model) !== place) {
      problems.push({ path: [...path, place], message: `names ${JSON.stringify(model)} twice` });
    }
  }
  return problems;
}

/** Each alias belongs to one model and is the canonical name of none. */
export function checkModels({ models }: Draft): Finding[] {
  const problems: Finding[] = [];
  const owners = new Map<string, string>();
  for (const [model, settings] of Object.entries(models ?? {})) {
    for (const [place, alias] of (settings?.aliases ?? []).entries()) {
      if (alias === undefined) continue;
      const path = ["models", model, "aliases", place];
      const owner = owners.get(alias);
      if (Object.hasOwn(models ?? {}, alias)) {
        const message = `must not be the canonical name of a model, got ${JSON.stringify(alias)}`;
        problems.push({ path, message });
      } else if (owner !== undefined) {
        const message = `must be unique, but ${JSON.stringify(alias)} is also an alias of ${owner}`;
        problems.push({ path, message });
      }
      owners.set(alias, owner ?? model);
    }
  }
  return problems;
}

/** From alias to canonical name; a name that is canonical itself is left to checkModels. */
export function aliasOwners({ models }: Draft): ReadonlyMap<string, string> {
  const owners = new Map<string, string>();
  for (const [model, settings] of Object.entries(models ?? {})) {
    for (const alias of settings?.aliases ?? []) {
      if (alias !== undefined && !Object.hasOwn(models ?? {}, alias)) owners.set(alias, model);
    }
  }
  return owners;
}

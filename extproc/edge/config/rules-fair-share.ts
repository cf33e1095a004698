// Rules of the section `fair_share`: model profiles must be reachable. A profile is chosen by the
// model that a trusted header names, its aliases resolved, so a profile under an alias, under a
// mistyped name, or without trust in that header would silently share nothing.

import type { Draft } from "./draft.js";
import { nearestKey } from "./known-keys.js";
import type { ConfigPath, Finding } from "./problem.js";
import { aliasOwners } from "./rules-workers.js";

const PROFILES: ConfigPath = ["fair_share", "model_profiles"];

/** Most models a message lists when none is close to what was written. */
const LISTED_MODELS_MAX = 8;

/** Every broken rule of the section. */
export function checkFairShare(draft: Draft): Finding[] {
  const models = Object.entries(draft.fair_share?.model_profiles ?? {})
    .filter(([, profile]) => profile !== undefined)
    .map(([model]) => model);
  if (models.length === 0) return [];
  return [...checkTrustedModel(draft), ...checkProfileModels(draft, models)];
}

function checkTrustedModel({ trust }: Draft): Finding[] {
  if (trust?.request_model !== false) return [];
  const message =
    "needs trust.request_model: true, because the header x-weir-request-model chooses the profile; " +
    "turn trust.request_model on, or leave model_profiles out";
  return [{ path: PROFILES, message }];
}

function checkProfileModels(draft: Draft, models: readonly string[]): Finding[] {
  const aliases = aliasOwners(draft);
  const known = knownModels(draft);
  const problems: Finding[] = [];
  for (const model of models) {
    const path = [...PROFILES, model];
    const written = JSON.stringify(model);
    const canonical = aliases.get(model);
    if (canonical !== undefined) {
      const message = `must be a canonical name, but ${written} is an alias of ${canonical}`;
      problems.push({ path, message });
    } else if (known !== undefined && !known.has(model)) {
      const message = `must be a model of workers or models, got ${written}; ${hint(model, known)}`;
      problems.push({ path, message });
    }
  }
  return problems;
}

/** Undefined while a name may be missing because its value was refused. */
function knownModels({ workers, models }: Draft): ReadonlySet<string> | undefined {
  if (workers === undefined || models === undefined) return undefined;
  if (Object.values(models).includes(undefined)) return undefined;
  const known = new Set(Object.keys(models));
  for (const worker of workers) {
    if (worker?.models === undefined) return undefined;
    for (const model of worker.models) {
      if (model === undefined) return undefined;
      known.add(model);
    }
  }
  return known;
}

function hint(model: string, known: ReadonlySet<string>): string {
  const nearest = nearestKey(model, [...known]);
  if (nearest !== undefined) return `did you mean ${nearest}?`;
  const listed = [...known].slice(0, LISTED_MODELS_MAX).join(", ");
  return `known are ${listed}${known.size > LISTED_MODELS_MAX ? ", …" : ""}`;
}

// What is allowed but probably not meant. Warnings never stop a start; each is one sentence that
// names the key and what follows from it.

import type { WeirConfig } from "../../core/model/config.js";
import type { FileConfig } from "./schema.js";
import { adaptiveAdmissionWarnings } from "./warnings-adaptive-admission.js";
import { fairShareWarnings } from "./warnings-fair-share.js";
import { schedulerWarnings } from "./warnings-scheduler.js";
import { seedingWarnings } from "./warnings-seeding.js";
import { selectionWarnings } from "./warnings-selection.js";

const SWITCHES = [
  "tenant_id",
  "request_model",
  "output_token_estimate",
  "admission_partition",
  "target_worker_url",
  "excluded_worker_urls",
  "routing_key",
] as const;

/** Warnings about a sound configuration; `file` tells which keys were written. */
export function configWarnings(config: WeirConfig, file: FileConfig): string[] {
  return [
    ...modelWarnings(config),
    ...trustWarnings(config),
    ...schedulerWarnings(config, file.scheduler),
    ...fairShareWarnings(config),
    ...adaptiveAdmissionWarnings(config, file.adaptive_admission),
    ...selectionWarnings(config),
    ...seedingWarnings(config),
  ];
}

function modelWarnings({ models, workers }: WeirConfig): string[] {
  const served = new Set(workers.flatMap((worker) => worker.models));
  return [...models.keys()]
    .filter((model) => !served.has(model))
    .map((model) => `models.${model}: no worker serves this model; requests for it get 404`);
}

function trustWarnings({ trust, credits }: WeirConfig): string[] {
  const on = SWITCHES.filter((name) => trust[name]).map((name) => `trust.${name}`);
  if (credits.generation !== undefined) on.push("credits.generation");
  if (on.length === 0 || trust.peers.length > 0) return [];
  return [
    `${on.join(", ")}: on while trust.peers is empty, ` +
      "so every client that reaches Envoy may send these headers",
  ];
}

// What is allowed but probably not meant. Warnings never stop a start; each is one sentence that
// names the key and what follows from it.

import type { WeirConfig } from "../../core/model/config.js";

const SWITCHES = [
  "tenant_id",
  "request_model",
  "output_token_estimate",
  "admission_partition",
  "target_worker_url",
  "excluded_worker_urls",
] as const;

/** Warnings about a sound configuration, in the order of the file. */
export function configWarnings(config: WeirConfig): string[] {
  return [...modelWarnings(config), ...trustWarnings(config), ...partitionWarnings(config)];
}

function modelWarnings({ models, workers }: WeirConfig): string[] {
  const served = new Set(workers.flatMap((worker) => worker.models));
  return [...models.keys()]
    .filter((model) => !served.has(model))
    .map((model) => `models.${model}: no worker serves this model; requests for it get 404`);
}

function trustWarnings({ trust }: WeirConfig): string[] {
  const on = SWITCHES.filter((name) => trust[name]).map((name) => `trust.${name}`);
  if (on.length === 0 || trust.peers.length > 0) return [];
  return [
    `${on.join(", ")}: on while trust.peers is empty, ` +
      "so every client that reaches Envoy may send these headers",
  ];
}

function partitionWarnings({ workers, scheduler }: WeirConfig): string[] {
  const known = scheduler.admission_partitions;
  return workers.flatMap((worker, index) => {
    const label = worker.labels.admission_partition;
    if (label === undefined || known.has(label)) return [];
    const what =
      known.size === 0
        ? "scheduler.admission_partitions is empty, so the label has no effect"
        : `it is not in scheduler.admission_partitions, so the worker counts for ` +
          scheduler.default_admission_partition;
    return [
      `workers[${String(index)}].labels.admission_partition ${JSON.stringify(label)}: ${what}`,
    ];
  });
}

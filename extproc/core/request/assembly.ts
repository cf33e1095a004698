// Builds the core from a configuration: the registry of workers, the rules, the scheduler and the desk
// in front of them, connected so that capacity follows the workers by event. The process and the
// tests build it the same way.

import { partitionCapacities } from "../capacity/partition-capacity.js";
import { identityRules } from "../identity/caller.js";
import { ModelNames } from "../identity/model-names.js";
import { partitionOfWorker, partitionRules } from "../identity/partition.js";
import { GLOBAL_PARTITION, type WeirConfig } from "../model/config.js";
import { overrideBudgetSecs } from "../model/hold-budget.js";
import { createRng } from "../model/rng.js";
import type { MonotonicMs } from "../model/time.js";
import type { PartitionOptions } from "../scheduler/partition.js";
import { WorkerRegistry } from "../workers/registry.js";
import type { AdmissionRules } from "./admission-plan.js";
import { RequestDesk, type DeskOptions } from "./request-desk.js";

export interface CoreOptions extends Pick<DeskOptions, "observer" | "onDeadline" | "onMoreWork"> {
  readonly config: WeirConfig;
  /** Seed of the choice between workers; any number. */
  readonly seed: number;
  /** The moment of an event that comes from outside the desk. */
  readonly now: () => MonotonicMs;
}

export interface Core {
  readonly desk: RequestDesk;
  readonly workers: WorkerRegistry;
}

/** Builds the core. Its workers are registered and count as unchecked. */
export function assembleCore(options: CoreOptions): Core {
  const { config, now } = options;
  const workers = new WorkerRegistry({
    health: config.health,
    breaker: config.breaker,
    onChange: () => {
      desk.setCapacities(partitionCapacities(config.scheduler, workers.all()), now());
    },
  });
  const desk = new RequestDesk(
    {
      identity: identityRules(config),
      rules: admissionRules(config, workers, options.seed),
      partitions: partitionOptions(config),
      holdBudgetMs: overrideBudgetSecs(config) * 1_000,
      messageTimeoutMs: config.envoy.message_timeout_ms,
      queueTimeoutStatus: config.scheduler.queue_timeout_status,
      observer: options.observer,
      onDeadline: options.onDeadline,
      onMoreWork: options.onMoreWork,
    },
    now(),
  );
  for (const worker of config.workers) workers.put(worker);
  return { desk, workers };
}

function admissionRules(
  config: WeirConfig,
  registry: WorkerRegistry,
  seed: number,
): AdmissionRules {
  const partitions = partitionRules(config.scheduler);
  const models = new Set(config.workers.flatMap((worker) => worker.models));
  const [first] = models;
  return {
    names: new ModelNames(config),
    onlyModel: models.size === 1 ? first : undefined,
    partitions,
    selection: {
      registry,
      partitionOf: (worker, model) => partitionOfWorker(partitions, worker.labels, model),
      rng: createRng(seed),
    },
    bodyLimitBytes: config.limits.body_limit_bytes,
  };
}

function partitionOptions({ scheduler }: WeirConfig): PartitionOptions[] {
  const capacities = partitionCapacities(scheduler, []);
  const sizes =
    scheduler.admission_partitions.size === 0
      ? new Map([[GLOBAL_PARTITION, { queue_size: scheduler.queue_size }]])
      : scheduler.admission_partitions;
  return Array.from(sizes, ([name, { queue_size }]) => ({
    name,
    capacity: capacities.get(name) ?? 0,
    queueSize: queue_size,
    queueTimeoutSecs: scheduler.queue_timeout_secs,
  }));
}

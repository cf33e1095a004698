// Builds the core from a configuration: the registry of workers, the rules, the scheduler and the desk
// in front of them, connected so that capacity follows the workers by event. The process and the
// tests build it the same way.

import {
  createFeedbackController,
  type FeedbackController,
} from "../capacity/feedback-controller.js";
import { wholeFleet, type FleetCapacity } from "../capacity/partition-capacity.js";
import { SlotPlanner, type SlotPlan } from "../capacity/slot-plan.js";
import { Ledger } from "../fairshare/ledger.js";
import { identityRules } from "../identity/caller.js";
import { ModelNames } from "../identity/model-names.js";
import { partitionOfWorker, partitionRules, type PartitionRules } from "../identity/partition.js";
import type { WeirConfig } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import { holdBudgetSecs } from "../model/hold-budget.js";
import { invariant } from "../model/invariant.js";
import { createRng } from "../model/rng.js";
import type { MonotonicMs } from "../model/time.js";
import type { AdmissionControl, AdmissionListener } from "../scheduler/admission.js";
import type { CreditRegistry } from "../scheduler/credit-registry.js";
import { Limiter } from "../scheduler/limiter.js";
import { partitionSettings } from "../scheduler/partition-settings.js";
import { RateCheck } from "../scheduler/rate-check.js";
import { Scheduler } from "../scheduler/scheduler.js";
import { PrefixHasher, type PrefixCipher } from "../prefixes/block-keys.js";
import { Seeder } from "../seeding/seeder.js";
import type { Fleet } from "../selection/candidates.js";
import { WorkerSelector } from "../selection/selector.js";
import { TelemetryStore } from "../workers/telemetry-store.js";
import { WorkerRegistry } from "../workers/registry.js";
import type { AdmissionRules } from "./admission-plan.js";
import { RequestDesk, type CreditOptions, type DeskOptions } from "./request-desk.js";
import type { RequestLife } from "./request-life.js";
import type { SeedDesk } from "./seed-attempt.js";

export interface CoreOptions extends Pick<DeskOptions, "observer" | "onDeadline" | "onMoreWork"> {
  readonly config: WeirConfig;
  /** Seed of the choice between workers; any number. */
  readonly seed: number;
  /** Under whose secret key prompts are remembered. */
  readonly prefixCipher: PrefixCipher;
  /** Workers came, went, or changed their health. */
  readonly onWorkersChanged?: () => void;
  /** Needed when credits are on. */
  readonly credits?: CreditPorts;
  /** The moment of an event that comes from outside the desk. */
  readonly now: () => MonotonicMs;
}

/** What capacity credits need of the world. */
export type CreditPorts = Pick<CreditOptions, "secureRandom" | "onOperation">;

export interface Core {
  readonly desk: RequestDesk;
  readonly workers: WorkerRegistry;
  /** The slots of the fleet and of each partition now. */
  readonly slots: () => SlotPlan;
  readonly planner: SlotPlanner;
  /** Chooses workers, and owns what is known of their caches. */
  readonly selector: WorkerSelector;
  /** Makes clean workers owners of prefixes; it does nothing where seeding is off. */
  readonly seeder: Seeder;
  /** What the engines report, and what is made of it; undefined when nothing is asked of them. */
  readonly telemetry: TelemetryStore | undefined;
  readonly feedback: FeedbackController | undefined;
  /** Accounts of the tenants; undefined without fair sharing. */
  readonly ledger: Ledger | undefined;
  /** Credits and the slots they hold; undefined while credits are off. */
  readonly credits: CreditRegistry | undefined;
}

/** Builds the core. Its workers are registered and count as unchecked. */
export function assembleCore(options: CoreOptions): Core {
  const { config, now } = options;
  const partitions = partitionRules(config.scheduler);
  const fleet = wholeFleet(config, partitions);
  const ledger =
    config.scheduler.enabled && config.fair_share.enabled
      ? new Ledger(config.fair_share, now())
      : undefined;
  const feedback = createFeedbackController({
    config: config.adaptive_admission,
    adaptiveCapacity: config.scheduler.adaptive_capacity,
  });
  const follow = (): void => {
    planner.observe(now());
    desk.setCapacities(slots().slots, now());
  };
  const workers = new WorkerRegistry({
    health: config.health,
    breaker: config.breaker,
    onChange: () => {
      telemetry?.prune();
      selector.workersChanged();
      follow();
      options.onWorkersChanged?.();
    },
  });
  const telemetry =
    feedback === undefined && !wantsEngineLoad(config)
      ? undefined
      : new TelemetryStore({ workers, onPublished: follow });
  const planner = new SlotPlanner({
    scheduler: config.scheduler,
    rules: partitions,
    workers,
    feedback,
    telemetry,
  });
  const { selector, seeder } = createSelection(options, partitions, workers, telemetry);
  const slots = (): SlotPlan => planner.plan(now());
  const desk = new RequestDesk(
    {
      identity: identityRules(config),
      rules: admissionRules(config, partitions, selector),
      createAdmission: (listener, at) =>
        createAdmission(config, ledger, fleet, slots().slots, listener, at),
      ledger,
      feedback,
      credits: creditOptions(config, options.credits),
      seeding: seedDesk(config, seeder),
      rateCheck: createRateCheck(config, fleet, now()),
      holdBudgetMs: (rank) => holdBudgetSecs(config, rank) * 1_000,
      messageTimeoutMs: config.envoy.message_timeout_ms,
      queueTimeoutStatus: config.scheduler.queue_timeout_status,
      observer: options.observer,
      onDeadline: options.onDeadline,
      onMoreWork: options.onMoreWork,
    },
    now(),
  );
  for (const worker of config.workers) workers.put(worker);
  const { credits } = desk;
  const knowledge = { planner, selector, seeder, telemetry, feedback };
  return { desk, workers, slots, ledger, credits, ...knowledge };
}

/** `capacities` are those of this moment, in which no worker has been checked yet. */
function createAdmission(
  { scheduler, fair_share }: WeirConfig,
  ledger: Ledger | undefined,
  fleet: FleetCapacity,
  capacities: ReadonlyMap<PartitionName, number>,
  listener: AdmissionListener<RequestLife>,
  now: MonotonicMs,
): AdmissionControl<RequestLife> {
  if (!scheduler.enabled) {
    return new Limiter(
      {
        maxConcurrent: scheduler.max_concurrent_requests,
        tokensPerSecond: scheduler.rate_limit_tokens_per_second,
        queueSize: scheduler.queue_size,
        queueTimeoutSecs: scheduler.queue_timeout_secs,
      },
      listener,
      now,
    );
  }
  const settings = partitionSettings(scheduler, fleet.partitions, fleet.total);
  const fair =
    ledger === undefined
      ? undefined
      : {
          ledger,
          maxQueuedPerTenant: fair_share.max_queued_requests_per_tenant,
          catchUpTokensPerSlot: fair_share.default_output_tokens,
        };
  return new Scheduler(settings, capacities, fair, listener, now);
}

function creditOptions(
  { credits }: WeirConfig,
  ports: CreditPorts | undefined,
): CreditOptions | undefined {
  if (credits.generation === undefined) return undefined;
  invariant(ports !== undefined, "credits need a source of random bytes and a listener");
  return {
    ...ports,
    generation: credits.generation,
    ttlMs: credits.ttl_ms,
    retentionMs: credits.terminal_retention_secs * 1_000,
    required: credits.required,
  };
}

/** With the scheduler on, a rate above 0 is a check of its own; the limiter has it inside. */
function createRateCheck(
  { scheduler }: WeirConfig,
  fleet: FleetCapacity,
  now: MonotonicMs,
): RateCheck | undefined {
  const perSecond = scheduler.rate_limit_tokens_per_second ?? 0;
  if (!scheduler.enabled || perSecond <= 0) return undefined;
  return new RateCheck(perSecond, scheduler.max_concurrent_requests ?? fleet.total, now);
}

/** Choosing workers, or an onlooker, goes by what the engines report, whatever admission does with it. */
function wantsEngineLoad({ models, selection, adaptive_admission }: WeirConfig): boolean {
  const { engine_load, balance_token_usage_threshold, overload_token_usage_threshold } = selection;
  const byUsage = Math.min(balance_token_usage_threshold, overload_token_usage_threshold) < 1;
  const cacheAware = [...models.values()].some(({ policy }) => policy === "cache_aware");
  return adaptive_admission.engine_metrics || (cacheAware && (engine_load || byUsage));
}

function createSelection(
  { config, seed, prefixCipher }: CoreOptions,
  partitions: PartitionRules,
  registry: WorkerRegistry,
  telemetry: TelemetryStore | undefined,
): Pick<Core, "selector" | "seeder"> {
  const { adaptive_admission, models, seeding, selection } = config;
  // One function for scheduler, telemetry, selection and seeding.
  const partitionOf: Fleet["partitionOf"] = (worker, model) =>
    partitionOfWorker(partitions, worker.labels, model);
  const rng = createRng(seed);
  const hasher = new PrefixHasher(prefixCipher);
  const fleet = { registry, partitionOf };
  const selector = new WorkerSelector({ ...fleet, rng, models, selection, telemetry, hasher });
  const rules = {
    mode: adaptive_admission.mode,
    partitions: new Set(seeding.partitions),
    seedCap: seeding.seed_cap,
    maxTokenUsage: adaptive_admission.feedback_max_token_usage,
  };
  return { selector, seeder: new Seeder({ rules, fleet, models, selection, telemetry, selector }) };
}

function seedDesk({ seeding }: WeirConfig, seeder: Seeder): SeedDesk {
  const { proof_source: proofSource, seed_response_max_bytes: responseMaxBytes } = seeding;
  return { seeder, proofSource, responseMaxBytes };
}

function admissionRules(
  config: WeirConfig,
  partitions: PartitionRules,
  selector: WorkerSelector,
): AdmissionRules {
  const models = new Set(config.workers.flatMap((worker) => worker.models));
  const [first] = models;
  return {
    names: new ModelNames(config),
    onlyModel: models.size === 1 ? first : undefined,
    partitions,
    selector,
    bodyLimitBytes: config.limits.body_limit_bytes,
  };
}

// What `GET /state/admission` shows: per partition what its engines report, what was learned from it, the
// limits that follow, what was decided, and how many slots that leaves.

import type {
  FeedbackController,
  FeedbackExplanation,
} from "../../core/capacity/feedback-controller.js";
import type { SlotPlan } from "../../core/capacity/slot-plan.js";
import type { AdaptiveAdmissionMode } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { TelemetryStore } from "../../core/workers/telemetry-store.js";

export interface AdmissionSources {
  readonly mode: AdaptiveAdmissionMode;
  /** The slots follow the limits; decisions are then only counted. */
  readonly adaptiveCapacity: boolean;
  /** Undefined in mode `off`. */
  readonly feedback: FeedbackController | undefined;
  readonly telemetry: TelemetryStore | undefined;
  readonly slots: () => SlotPlan;
}

export function admissionPage(sources: AdmissionSources, now: MonotonicMs): object {
  const { mode, adaptiveCapacity, feedback, telemetry } = sources;
  const head = { mode, adaptive_capacity: adaptiveCapacity };
  if (feedback === undefined || telemetry === undefined) return head;
  const plan = sources.slots();
  return {
    ...head,
    revision: feedback.revision,
    partitions: feedback.explain(now).map((one) => partitionState(one, plan)),
    workers: Array.from(telemetry.all(), ({ identity, sample, load, observedAt }) => ({
      url: identity.url,
      source: sample.source,
      age_ms: Math.round(now - observedAt),
      running: load.running,
      waiting: load.waiting,
      token_usage: load.tokenUsage,
      tokens_per_second: load.throughput ?? null,
      max_running: load.maxRunning ?? null,
      unreadable_fields: sample.invalidFields,
    })),
  };
}

function partitionState(explanation: FeedbackExplanation, plan: SlotPlan): object {
  const { partition, outstanding, decisions, lastReason, learned } = explanation;
  const state = {
    partition,
    slots: {
      static: plan.fleet.partitions.get(partition) ?? null,
      adaptive: plan.adaptive.get(partition) ?? null,
      orphans: plan.orphans.get(partition) ?? 0,
      granted: plan.slots.get(partition) ?? null,
    },
    outstanding,
    decisions,
    last_reason: lastReason ?? null,
  };
  return learned === undefined ? state : { ...state, ...learnedState(learned) };
}

function learnedState(learned: NonNullable<FeedbackExplanation["learned"]>): object {
  const { inputs, limits } = learned;
  return {
    engines: {
      healthy: inputs.healthy,
      observed: inputs.observed,
      held_readings: learned.heldReadings,
      running: inputs.running,
      waiting: inputs.waiting,
      waiting_uncached_tokens: inputs.waitingUncachedTokens,
      mean_token_usage: inputs.meanTokenUsage,
      max_token_usage: inputs.maxTokenUsage,
      tokens_per_second: inputs.throughput,
      max_running: inputs.maxReporting === 0 ? null : inputs.maxRunning,
    },
    learned: {
      knee_per_replica: learned.knee ?? null,
      knee_tokens_per_second: learned.kneeThroughput,
      capacity_tokens_per_second: learned.learnedCapacity,
      pressure_seen: learned.pressureSeen,
      offset: learned.offset,
      last_sample: learned.lastVerdict ?? null,
    },
    limits: {
      coverage: limits.coverage,
      max_running_coverage: limits.maxRunningCoverage,
      usable: limits.usable,
      engine: limits.engineLimit ?? null,
      learned: limits.learnedLimit ?? null,
      running: limits.runningLimit ?? null,
      pressure: limits.pressure ?? null,
    },
  };
}

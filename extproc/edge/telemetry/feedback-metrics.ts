// What the engines report and what is made of it: decisions and failed polls as they happen, and per
// partition and worker what the controller and the plan of slots know when they are scraped.

import { Counter, type Registry } from "prom-client";
import type {
  FeedbackController,
  FeedbackExplanation,
} from "../../core/capacity/feedback-controller.js";
import type { FeedbackDecision } from "../../core/capacity/feedback-decision.js";
import type { SlotPlan } from "../../core/capacity/slot-plan.js";
import type { AdaptiveAdmissionMode } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { gauge } from "./gauges.js";

/** The one strategy there is; a label, so that dashboards can tell a later one from it. */
const STRATEGY = "engine_feedback";

export interface FeedbackSources {
  readonly controller: FeedbackController;
  readonly slots: () => SlotPlan;
  readonly workerUrls: () => Iterable<string>;
  readonly orphansAt: (url: string) => number;
  readonly now: () => MonotonicMs;
}

type Learned = NonNullable<FeedbackExplanation["learned"]>;

/** Gauges per partition, read from what the controller has learned. */
const FIGURES: readonly (readonly [string, string, (learned: Learned) => number])[] = [
  ["load_coverage", "Share of the healthy workers that report.", ({ limits }) => limits.coverage],
  [
    "engine_max_running_requests_coverage",
    "Share of the healthy workers with a known ceiling.",
    ({ limits }) => limits.maxRunningCoverage,
  ],
  [
    "generation_tokens_per_second",
    "Output tokens per second of the reporting workers.",
    ({ inputs }) => inputs.throughput,
  ],
  [
    "learned_capacity_tokens_per_second",
    "Best output per second seen, decayed, for all healthy workers.",
    ({ learnedCapacity }) => learnedCapacity,
  ],
  ["engine_running_requests", "Requests the engines run.", ({ inputs }) => inputs.running],
  [
    "engine_waiting_requests",
    "Requests in the engines' own queues.",
    ({ inputs }) => inputs.waiting,
  ],
  [
    "engine_waiting_uncached_tokens",
    "Prompt tokens in the engines' own queues that no cache holds.",
    ({ inputs }) => inputs.waitingUncachedTokens,
  ],
  [
    "engine_mean_token_usage",
    "KV usage, mean of the reporting workers, 0 to 1.",
    ({ inputs }) => inputs.meanTokenUsage,
  ],
  [
    "engine_max_token_usage",
    "KV usage of the fullest worker, 0 to 1.",
    ({ inputs }) => inputs.maxTokenUsage,
  ],
  [
    "engine_max_running_requests",
    "Sum of the known ceilings of running requests.",
    ({ inputs }) => inputs.maxRunning,
  ],
  [
    "feedback_running_limit",
    "Requests the partition may have at its engines, 0 = no limit.",
    ({ limits }) => limits.runningLimit ?? 0,
  ],
  [
    "feedback_knee_requests_per_replica",
    "Running requests per worker beyond which throughput grows no more, 0 = not learned.",
    ({ knee }) => knee ?? 0,
  ],
];

export class FeedbackMetrics {
  readonly #registry: Registry;
  readonly #mode: AdaptiveAdmissionMode;
  readonly #decisions: Counter<"partition" | "mode" | "strategy" | "reason" | "outcome">;
  readonly #failures: Counter<"reason">;

  constructor(registry: Registry, mode: AdaptiveAdmissionMode) {
    this.#registry = registry;
    this.#mode = mode;
    this.#decisions = new Counter({
      name: "weir_adaptive_admission_decisions_total",
      help: "Decisions by what the engines report, acted on or not.",
      labelNames: ["partition", "mode", "strategy", "reason", "outcome"],
      registers: [registry],
    });
    this.#failures = new Counter({
      name: "weir_worker_telemetry_failures_total",
      help: "Polls of an engine that told nothing, and values that cannot be, by reason.",
      labelNames: ["reason"],
      registers: [registry],
    });
  }

  decided({ partition, reason, outcome }: FeedbackDecision): void {
    this.#decisions.inc({ partition, mode: this.#mode, strategy: STRATEGY, reason, outcome });
  }

  pollFailed(reason: string): void {
    this.#failures.inc({ reason });
  }

  /** Adds the gauges of a controller. */
  observe({ controller, slots, workerUrls, orphansAt, now }: FeedbackSources): void {
    const perPartition = (
      name: string,
      help: string,
      read: (explanation: FeedbackExplanation) => number | undefined,
    ): void => {
      gauge(this.#registry, `adaptive_admission_${name}`, help, ["partition"], (set) => {
        for (const explanation of controller.explain(now())) {
          const amount = read(explanation);
          if (amount !== undefined) set({ partition: explanation.partition }, amount);
        }
      });
    };
    perPartition(
      "router_outstanding_requests",
      "Requests that were decided about and have not ended.",
      ({ outstanding }) => outstanding,
    );
    for (const [name, help, read] of FIGURES) {
      perPartition(name, help, ({ learned }) =>
        learned === undefined ? undefined : read(learned),
      );
    }
    const slotGauge = (
      name: string,
      help: string,
      read: (plan: SlotPlan) => ReadonlyMap<string, number>,
    ): void => {
      gauge(this.#registry, `scheduler_partition_${name}`, help, ["partition"], (set) => {
        for (const [partition, amount] of read(slots())) set({ partition }, amount);
      });
    };
    slotGauge(
      "static_capacity",
      "Slots by configuration and healthy workers.",
      ({ fleet }) => fleet.partitions,
    );
    slotGauge(
      "adaptive_capacity",
      "The same, held to what the engines can take.",
      (plan) => plan.adaptive,
    );
    gauge(
      this.#registry,
      "worker_orphan_requests",
      "Requests at a worker that this process did not send, from before its start.",
      ["worker"],
      (set) => {
        for (const worker of workerUrls()) set({ worker }, orphansAt(worker));
      },
    );
  }
}

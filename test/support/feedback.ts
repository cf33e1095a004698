// Workers as engines would report them, and the shipped knobs of learning from engine feedback.

import {
  FeedbackController,
  type FeedbackTracker,
} from "../../extproc/core/capacity/feedback-controller.js";
import type { ObservedWorker, WorkerReading } from "../../extproc/core/capacity/feedback-inputs.js";
import type { AdaptiveAdmissionConfig } from "../../extproc/core/model/config.js";
import { partitionName } from "../../extproc/core/model/ids.js";
import { monotonicMs } from "../../extproc/core/model/time.js";

export const MODEL = partitionName("model");

export function adaptiveAdmission(
  over: Partial<AdaptiveAdmissionConfig> = {},
): AdaptiveAdmissionConfig {
  return {
    mode: "enforce",
    estimator_half_life_secs: 900,
    min_load_coverage: 0.8,
    feedback_probe_requests_per_healthy_replica: 2,
    feedback_max_waiting_requests_per_healthy_replica: 2,
    feedback_max_token_usage: 0.9,
    feedback_throughput_improvement_ratio: 0.02,
    feedback_reference_rule: false,
    engine_metrics: false,
    ...over,
  };
}

/** An idle engine that reports everything but a ceiling; `over` says what is different. */
export function reading(over: Partial<WorkerReading> = {}): WorkerReading {
  return {
    running: 0,
    waiting: 0,
    waitingUncachedTokens: 0,
    tokenUsage: 0.5,
    throughput: 0,
    maxRunning: undefined,
    ...over,
  };
}

/** Healthy workers with these readings; `undefined` = nothing was heard of it. */
export function workers(
  ...readings: readonly (Partial<WorkerReading> | undefined)[]
): readonly ObservedWorker[] {
  return readings.map((over, index) => ({
    url: `http://127.0.0.1:${String(index + 1)}`,
    reading: over === undefined ? undefined : reading(over),
  }));
}

/** A controller of one partition that publishes and begins requests in few words. */
export class FeedbackBench {
  readonly controller: FeedbackController;

  /** Slots do not follow the limit unless said so: requests are decided about. */
  constructor(over: Partial<AdaptiveAdmissionConfig> = {}, adaptiveCapacity = false) {
    this.controller = new FeedbackController({ config: adaptiveAdmission(over), adaptiveCapacity });
  }

  publish(atMs: number, ...readings: readonly (Partial<WorkerReading> | undefined)[]): this {
    const published = [{ partition: MODEL, workers: workers(...readings) }];
    this.controller.publish(published, monotonicMs(atMs));
    return this;
  }

  begin(count = 1): readonly FeedbackTracker[] {
    return Array.from({ length: count }, () => this.controller.begin(undefined, MODEL));
  }

  /** Reasons of this many requests, begun one after the other. */
  reasons(count: number): readonly string[] {
    return this.begin(count).map(({ decision }) => decision.reason);
  }

  knee(atMs = 0): number | undefined {
    return this.controller.explain(monotonicMs(atMs))[0]?.learned?.knee;
  }
}

// Turns the checked section `adaptive_admission` into what the core learns by, and decides what
// `scheduler.adaptive_capacity: auto` means. Slots can follow the engines only where partitions are
// written down: the one pool of a scheduler without them may mix engines whose knees have nothing to do
// with each other.

import type {
  AdaptiveAdmissionConfig,
  AdaptiveAdmissionMode,
  ApiKeySource,
} from "../../core/model/config.js";
import { invariant } from "../../core/model/invariant.js";
import type { FileConfig } from "./schema.js";
import { readAdmissionMode } from "./schema-adaptive-admission.js";

/** The section as the core reads it; the interval of the questions stands with each worker. */
export function adaptiveAdmissionConfig(
  section: FileConfig["adaptive_admission"],
): AdaptiveAdmissionConfig {
  const mode = readAdmissionMode(section.mode);
  invariant(mode !== undefined, `mode ${section.mode} passed the schema`);
  return {
    mode,
    estimator_half_life_secs: section.estimator_half_life_secs,
    min_load_coverage: section.min_load_coverage,
    feedback_probe_requests_per_healthy_replica:
      section.feedback_probe_requests_per_healthy_replica,
    feedback_max_waiting_requests_per_healthy_replica:
      section.feedback_max_waiting_requests_per_healthy_replica,
    feedback_max_token_usage: section.feedback_max_token_usage,
    feedback_throughput_improvement_ratio: section.feedback_throughput_improvement_ratio,
    feedback_reference_rule: section.feedback_reference_rule,
    engine_metrics: section.engine_metrics,
  };
}

/** `auto` is on where `true` would be allowed: with seeds, slots stay as they are configured. */
export function adaptiveCapacity(
  scheduler: FileConfig["scheduler"],
  mode: AdaptiveAdmissionMode,
  seedCap: number,
): boolean {
  if (scheduler.adaptive_capacity !== "auto") return scheduler.adaptive_capacity;
  const hasPartitions = Object.keys(scheduler.admission_partitions).length > 0;
  return scheduler.enabled && mode === "enforce" && hasPartitions && seedCap === 0;
}

/** Where the key of a worker is found; undefined = its engine wants none. */
export function apiKeySource(worker: FileConfig["workers"][number]): ApiKeySource | undefined {
  if (worker.api_key_env !== undefined) return { kind: "env", name: worker.api_key_env };
  if (worker.api_key_file !== undefined) return { kind: "file", path: worker.api_key_file };
  return undefined;
}

// Warnings about admission by engine feedback: knobs that nothing reads, and a mode whose limits can
// only refuse. A knob is meant when it is not what applies anyway.

import type { WeirConfig } from "../../core/model/config.js";
import { DEFAULTS } from "./defaults.js";
import type { FileConfig } from "./schema.js";

/** What only a learning Weir reads; the interval of the questions is not one of them. */
const KNOBS = [
  "estimator_half_life_secs",
  "min_load_coverage",
  "feedback_probe_requests_per_healthy_replica",
  "feedback_max_waiting_requests_per_healthy_replica",
  "feedback_max_token_usage",
  "feedback_throughput_improvement_ratio",
  "feedback_reference_rule",
] as const;

/** Warnings of the section `adaptive_admission`. */
export function adaptiveAdmissionWarnings(
  { adaptive_admission: { mode }, scheduler }: WeirConfig,
  section: FileConfig["adaptive_admission"],
): string[] {
  if (mode === "off") return idleKnobs(section);
  if (mode === "shadow" || scheduler.enabled) return [];
  return [
    "adaptive_admission.mode: enforce while scheduler.enabled is false, so the slots of the limiter " +
      "do not follow the engines, and a request above what they bear is refused instead of waiting",
  ];
}

function idleKnobs(section: FileConfig["adaptive_admission"]): string[] {
  const idle = KNOBS.filter((knob) => section[knob] !== DEFAULTS.adaptive_admission[knob]).map(
    (knob) => `adaptive_admission.${knob}`,
  );
  if (idle.length === 0) return [];
  return [`${idle.join(", ")}: without effect while adaptive_admission.mode is off`];
}

// The section `adaptive_admission` and where a worker's API key is found: how far the limits follow
// what the engines report, and how often they are asked. Words are read in any case of letters and with
// blanks around them. Times are seconds, counts are requests, the rest are ratios.

import { z } from "zod";
import type { AdaptiveAdmissionMode } from "../../core/model/config.js";
import { readWorkerUrl } from "./addresses.js";
import { DEFAULTS } from "./defaults.js";
import { above, decimal, mapping, onOff, text, whole } from "./fields.js";
import { keyFile, keyVariable } from "./schema-key-places.js";

const ADAPTIVE = DEFAULTS.adaptive_admission;

/** Counts of requests are unsigned 32-bit integers, like the ones engines report. */
const COUNT_MAX = 4_294_967_295;
/** Asked more often than once a second, an engine would measure Weir. */
const INTERVAL_SECS_MIN = 1;
/** A sample older than 30 s says nothing about now, so no less often than that. */
const INTERVAL_SECS_MAX = 30;

const MODES = ["off", "shadow", "enforce"] as const satisfies readonly AdaptiveAdmissionMode[];

/** The mode a text means; undefined when it is none. */
export function readAdmissionMode(written: string): AdaptiveAdmissionMode | undefined {
  const word = plainWord(written);
  return MODES.find((mode) => mode === word);
}

function plainWord(written: unknown): string {
  return typeof written === "string" ? written.trim().toLowerCase() : "";
}

const strategy = z
  .string({ error: `must be ${ADAPTIVE.strategy}` })
  .refine((written) => plainWord(written) === ADAPTIVE.strategy, {
    error: ({ input }) =>
      plainWord(input) === "predicted_work"
        ? `predicted_work is not built; it must be ${ADAPTIVE.strategy}`
        : `must be ${ADAPTIVE.strategy}`,
  });

/** Seconds between two questions to one worker. */
const loadInterval = whole(INTERVAL_SECS_MIN, INTERVAL_SECS_MAX);

export const adaptiveAdmissionSection = mapping({
  mode: text(`one of ${MODES.join(", ")}`, (written) => readAdmissionMode(written) !== undefined)
    .default(ADAPTIVE.mode)
    .describe("off, shadow (decisions are only counted) or enforce (they are acted on)."),
  strategy: strategy
    .default(ADAPTIVE.strategy)
    .describe("What the limits are learned from; only engine_feedback."),
  estimator_half_life_secs: above(0)
    .default(ADAPTIVE.estimator_half_life_secs)
    .describe("Time in which a remembered best throughput loses half its value."),
  min_load_coverage: above(0, 1)
    .default(ADAPTIVE.min_load_coverage)
    .describe("Share of the healthy workers that must report before their reports count."),
  feedback_probe_requests_per_healthy_replica: whole(0, COUNT_MAX)
    .default(ADAPTIVE.feedback_probe_requests_per_healthy_replica)
    .describe("Requests per healthy worker offered above the knee, to learn whether more helps."),
  feedback_max_waiting_requests_per_healthy_replica: whole(0, COUNT_MAX)
    .default(ADAPTIVE.feedback_max_waiting_requests_per_healthy_replica)
    .describe("Waiting requests per reporting worker, on average, that are no pressure yet."),
  feedback_max_token_usage: above(0, 1)
    .default(ADAPTIVE.feedback_max_token_usage)
    .describe("Mean usage of the KV cache from which a partition is under pressure."),
  feedback_throughput_improvement_ratio: decimal(0, 1)
    .default(ADAPTIVE.feedback_throughput_improvement_ratio)
    .describe("Relative change of throughput that counts as a change."),
  feedback_reference_rule: onOff
    .default(ADAPTIVE.feedback_reference_rule)
    .describe("The older estimator with its fixed margin, for comparison."),
  engine_metrics: onOff
    .default(ADAPTIVE.engine_metrics)
    .describe("Export what each engine reports, per worker and rank, in any mode."),
  load_monitor_interval_secs: loadInterval
    .default(ADAPTIVE.load_monitor_interval_secs)
    .describe("Time between two questions to a worker for its load."),
});

/** Keys of a worker that say how it is asked for its load. */
export const workerTelemetryKeys = {
  load_monitor_interval_secs: loadInterval
    .optional()
    .describe("As adaptive_admission.load_monitor_interval_secs, for this worker."),
  telemetry_url: text(
    "http://host:port without path, query or user",
    (url) => readWorkerUrl(url) !== undefined,
  )
    .optional()
    .describe("Where its metrics are, when they have a port of their own; url when absent."),
  api_key_env: keyVariable
    .optional()
    .describe("Environment variable with the key the engine wants to be asked with."),
  api_key_file: keyFile
    .optional()
    .describe("File with that key; read again for every question. One of the two at most."),
};

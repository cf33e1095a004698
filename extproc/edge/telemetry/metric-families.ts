// The counters and histograms of Weir, made once on an injected registry. Names and labels are part of
// the interface to dashboards: docs/metrics.md lists them.

import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { RequestOutcome } from "../../core/settlement/outcome.js";

/** Waits from "at once" to the longest queue timeouts. */
export const WAIT_BUCKETS_S = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

export interface MetricFamilies {
  readonly received: Counter;
  readonly admitted: Counter;
  readonly rejected: Counter;
  readonly byOutcome: Readonly<Record<RequestOutcome, Counter | undefined>>;
  readonly rejections: Counter<"code">;
  readonly rateChecks: Counter<"result">;
  readonly admits: Counter<"class" | "outcome">;
  readonly partitionAdmits: Counter<"partition" | "class" | "outcome">;
  readonly queueWait: Histogram<"class">;
  readonly preemptions: Counter<"victim_class" | "by_class">;
  readonly clamps: Counter<"tenant" | "requested_class" | "effective_class">;
  readonly unknownPriorities: Counter<"tenant">;
  readonly promotions: Counter<"class">;
  readonly firstByte: Histogram<"model">;
  readonly settlements: Counter<"kind">;
  readonly refusedValues: Counter<"reason">;
  readonly unknownPartition: Counter;
  readonly selections: Counter<"model" | "policy">;
  readonly cutHolds: Counter;
  readonly faults: Counter;
}

type MakeCounter = <Label extends string = never>(
  name: string,
  help: string,
  ...labelNames: Label[]
) => Counter<Label>;

/** @param startTimeSeconds start of the process in seconds since the epoch, for reset-safe deltas */
export function createFamilies(registry: Registry, startTimeSeconds: number): MetricFamilies {
  const registers = [registry];
  const counter: MakeCounter = (name, help, ...labelNames) =>
    new Counter({ name: `weir_${name}`, help, labelNames, registers });
  const wait = <Label extends string>(name: string, help: string, label: Label): Histogram<Label> =>
    new Histogram({
      name: `weir_${name}`,
      help,
      labelNames: [label],
      buckets: WAIT_BUCKETS_S,
      registers,
    });
  new Gauge({
    name: "weir_http_admission_process_start_time_seconds",
    help: "Start of the process, in seconds since the epoch.",
    registers,
  }).set(startTimeSeconds);
  return {
    ...admissionFamilies((name, help) => counter(`http_admission_${name}_total`, help)),
    rejections: counter("rejections_total", "Refusals by code.", "code"),
    ...schedulerFamilies(counter),
    rateChecks: counter("http_rate_limit_total", "Rate checks by result.", "result"),
    queueWait: wait(
      "scheduler_queue_wait_seconds",
      "Time in the queue, whatever ended it.",
      "class",
    ),
    firstByte: wait(
      "time_to_first_byte_seconds",
      "From the arrival of a request to the first non-empty chunk of its answer.",
      "model",
    ),
    settlements: counter("settlements_total", "Settled requests by kind.", "kind"),
    refusedValues: counter(
      "identity_refused_values_total",
      "Identity values that were sent but not usable.",
      "reason",
    ),
    unknownPartition: counter(
      "unknown_partition_header_total",
      "Trusted partition headers that name no partition.",
    ),
    selections: counter(
      "worker_selection_total",
      "Workers chosen, by model and policy.",
      "model",
      "policy",
    ),
    cutHolds: counter("envoy_cut_hold_total", "Held requests that a timeout of Envoy's ended."),
    faults: counter("ext_proc_faults_total", "Messages that could not be handled."),
  };
}

function schedulerFamilies(
  counter: MakeCounter,
): Pick<
  MetricFamilies,
  "admits" | "partitionAdmits" | "preemptions" | "clamps" | "unknownPriorities" | "promotions"
> {
  const outcomes = "admitted, preempted, refused or gone";
  return {
    admits: counter("scheduler_admit_total", `Requests by end: ${outcomes}.`, "class", "outcome"),
    partitionAdmits: counter(
      "scheduler_partition_admit_total",
      `Requests of a partition by end: ${outcomes}.`,
      "partition",
      "class",
      "outcome",
    ),
    preemptions: counter(
      "scheduler_preemption_total",
      "Running requests that had to give way.",
      "victim_class",
      "by_class",
    ),
    clamps: counter(
      "scheduler_clamp_total",
      "Requested classes lowered to the tenant's ceiling.",
      "tenant",
      "requested_class",
      "effective_class",
    ),
    unknownPriorities: counter(
      "scheduler_unknown_priority_value_total",
      "Priority headers that name no class.",
      "tenant",
    ),
    promotions: counter(
      "scheduler_starvation_promotion_total",
      "Waiters that got their slot because their lane was starved.",
      "class",
    ),
  };
}

function admissionFamilies(
  counter: (name: string, help: string) => Counter,
): Pick<MetricFamilies, "received" | "admitted" | "rejected" | "byOutcome"> {
  return {
    received: counter("received", "Inference requests that entered admission."),
    admitted: counter("admitted", "Requests that got a slot and a worker."),
    rejected: counter("rejected", "Requests refused before they got a slot and a worker."),
    byOutcome: {
      success: counter("success", "Answers delivered whole, 2xx and 3xx."),
      http_4xx: counter("http_4xx", "Answers delivered whole, 4xx."),
      http_5xx: counter("http_5xx", "Answers delivered whole, 5xx."),
      interrupted: counter("interrupted", "Admitted requests whose answer broke off."),
      pre_admission_interrupted: counter(
        "pre_admission_interrupted",
        "Requests that vanished while undecided.",
      ),
      rejected: undefined,
    },
  };
}

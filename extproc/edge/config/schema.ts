// The shape of weir.yaml: every key with its kind, bounds, default and meaning. It checks each value
// by itself and changes nothing; rules that need two values stand in rules.ts, and freeze.ts turns
// the checked file into the types the core speaks of. The JSON Schema is made from here as well.

import type { z } from "zod";
import { isPeer, isTenantHeaderName, readWorkerUrl } from "./addresses.js";
import { DEFAULTS } from "./defaults.js";
import { decimal, list, mapping, name, named, oneOf, onlyThisVersion, onOff } from "./fields.js";
import { text, whole } from "./fields.js";
import { adaptiveAdmissionSection, workerTelemetryKeys } from "./schema-adaptive-admission.js";
import { creditsSection } from "./schema-credits.js";
import { adminSection, envoySection, listenSection } from "./schema-envoy.js";
import { fairShareSection } from "./schema-fair-share.js";
import { schedulerSection, SLOTS_MAX } from "./schema-scheduler.js";
import { seedingSection } from "./schema-seeding.js";
import { modelSelectionKeys, selectionSection, workerKvEventsKeys } from "./schema-selection.js";

/** Workers of one Weir; each costs a health check and a cluster in Envoy. */
const WORKERS_MAX = 1000;
const MODELS_PER_WORKER_MAX = 1000;
const ALIASES_MAX = 100;
const PEERS_MAX = 1000;

const workers = list(
  mapping({
    url: text(
      "http://host:port without path, query or user",
      (url) => readWorkerUrl(url) !== undefined,
    ).describe("Where Weir checks the worker's health."),
    cluster: text("1 to 64 of A-Z a-z 0-9 _ . -", (value) =>
      /^[A-Za-z0-9_.-]{1,64}$/.test(value),
    ).describe("Envoy cluster that holds this worker alone."),
    id: name.optional().describe("Name in logs and state; the cluster when absent."),
    engine: oneOf(["vllm", "sglang", "trtllm", "triton"]).optional().describe("Kind of engine."),
    models: list(name, MODELS_PER_WORKER_MAX, 1).describe("Canonical models it serves."),
    labels: mapping({
      max_running_requests: whole(1, SLOTS_MAX)
        .optional()
        .describe("Requests the engine runs at once."),
      admission_partition: name.optional().describe("Partition the worker's slots belong to."),
    })
      .prefault({})
      .describe("What the worker says of itself."),
    ...workerTelemetryKeys,
    ...workerKvEventsKeys,
  }),
  WORKERS_MAX,
  1,
).describe("The engines, at least one.");

const models = named(
  mapping({
    aliases: list(name, ALIASES_MAX)
      .default([...DEFAULTS.model.aliases])
      .describe("Other names clients may use for the model."),
    ...modelSelectionKeys,
  }),
).prefault(DEFAULTS.models);

const trusted = (what: string): z.ZodDefault<z.ZodBoolean> =>
  onOff.default(false).describe(`Believe the header that names ${what}.`);

const trust = mapping({
  tenant_id: trusted("the tenant"),
  prefer_tenant_id: onOff
    .default(DEFAULTS.trust.prefer_tenant_id)
    .describe("The trusted tenant header wins over an authenticated caller; needs tenant_id."),
  request_model: trusted("the model for sharing"),
  output_token_estimate: trusted("the expected output tokens"),
  admission_partition: trusted("the admission partition"),
  target_worker_url: trusted("the only worker allowed"),
  excluded_worker_urls: trusted("the workers not allowed"),
  routing_key: trusted("the key whose requests go to one worker"),
  tenant_header_name: text(
    "a header name of letters, digits and dashes that HTTP, Envoy or Weir do not use for something else",
    isTenantHeaderName,
  )
    .default(DEFAULTS.trust.tenant_header_name)
    .describe("Header that carries the tenant; letters are made lower case."),
  peers: list(text("an IP address, a CIDR or a spiffe:// id", isPeer), PEERS_MAX)
    .default([...DEFAULTS.trust.peers])
    .describe("Who may send trusted headers; empty = every peer."),
});

const health = mapping({
  path: text("a path that begins with /", (value) => /^\/[\x21-\x7e]{0,255}$/.test(value))
    .default(DEFAULTS.health.path)
    .describe("Path that is asked with GET; 2xx is healthy."),
  interval_secs: decimal(0.1, 3600)
    .default(DEFAULTS.health.interval_secs)
    .describe("Time between two checks of one worker."),
  timeout_secs: decimal(0.05, 60)
    .default(DEFAULTS.health.timeout_secs)
    .describe("Longest wait for a check; below the interval."),
  failure_threshold: whole(1, 100)
    .default(DEFAULTS.health.failure_threshold)
    .describe("Failed checks in a row that take a worker out."),
  success_threshold: whole(1, 100)
    .default(DEFAULTS.health.success_threshold)
    .describe("Passed checks in a row that bring it back."),
});

const breaker = mapping({
  consecutive_failures: whole(1, 1000)
    .default(DEFAULTS.breaker.consecutive_failures)
    .describe("Failures in a row that open the breaker of a worker."),
  failure_ratio: decimal(0.01, 1)
    .default(DEFAULTS.breaker.failure_ratio)
    .describe("Share of failures in the window that opens it."),
  window_requests: whole(1, 10_000)
    .default(DEFAULTS.breaker.window_requests)
    .describe("Answers the share is taken over."),
  window_secs: decimal(0.1, 3600)
    .default(DEFAULTS.breaker.window_secs)
    .describe("Age at which an answer no longer counts."),
  open_secs: decimal(0.1, 3600)
    .default(DEFAULTS.breaker.open_secs)
    .describe("Time until one request may try the worker again."),
});

const limits = mapping({
  body_limit_bytes: whole(1024, 1_073_741_824)
    .default(DEFAULTS.limits.body_limit_bytes)
    .describe("Largest request body; Weir answers 413 above it."),
  drain_timeout_secs: whole(0, 3600)
    .default(DEFAULTS.limits.drain_timeout_secs)
    .describe("How long the queue is still served after SIGTERM."),
  shutdown_grace_period_secs: whole(0, 86_400)
    .default(DEFAULTS.limits.shutdown_grace_period_secs)
    .describe("How long running answers are observed after SIGTERM."),
  tenant_metric_top_n: whole(0, 1000)
    .default(DEFAULTS.limits.tenant_metric_top_n)
    .describe("Tenants with a metric label of their own; the rest is other."),
});

/** The whole file. */
export const configSchema = mapping({
  listen: listenSection.prefault({}).describe("Where Weir listens."),
  envoy: envoySection.prefault({}).describe("What the Envoy bootstrap is written from."),
  admin: adminSection.prefault({}).describe("Health, metrics, state and logs."),
  workers,
  models: models.describe("What is known of a model beyond its workers."),
  trust: trust.prefault({}).describe("Which headers are believed, and from whom."),
  headers: mapping({
    aliases: onOff
      .default(DEFAULTS.headers.aliases)
      .describe("Also read the header names other gateways use."),
  })
    .prefault({})
    .describe("Names of headers."),
  scheduler: schedulerSection.prefault({}).describe("Slots, classes, partitions and queues."),
  fair_share: fairShareSection
    .prefault({})
    .describe("How tenants share the slots, and what a request is charged."),
  adaptive_admission: adaptiveAdmissionSection
    .prefault({})
    .describe("Limits learned from what the engines report."),
  selection: selectionSection
    .prefault({})
    .describe("How workers are chosen, and what is remembered of their caches."),
  credits: creditsSection
    .prefault({})
    .describe("Slots that an external allocator takes ahead of its requests."),
  seeding: seedingSection
    .prefault({})
    .describe("Where a refused request may make another worker hold its prefix."),
  settlement: mapping({
    decode_max_bytes: whole(65_536, 1_073_741_824)
      .default(DEFAULTS.settlement.decode_max_bytes)
      .describe("Decoded bytes of one compressed answer that are read for its usage."),
    stream_usage: onlyThisVersion("observe", ["inject"])
      .optional()
      .describe("Only observe in this version: the client's body is never changed."),
    source: onlyThisVersion("response_body", ["access_log"])
      .optional()
      .describe("Only response_body in this version."),
  })
    .prefault({})
    .describe("How usage is read from answers."),
  health: health.prefault({}).describe("Active health checks of the workers."),
  breaker: breaker.prefault({}).describe("Circuit breaker of each worker."),
  limits: limits.prefault({}).describe("Bounds of the process."),
});

/** A checked file, defaults filled in. */
export type FileConfig = z.output<typeof configSchema>;

// Turns a checked file into the frozen value the whole process runs on: texts become addresses,
// durations become milliseconds, names get their brands, defaults that depend on another value are
// filled in. It cannot fail, because the schema and the rules have seen every value before.

import type {
  EnvoyConfig,
  ListenAddress,
  ListenConfig,
  ModelConfig,
  SchedulerConfig,
  WeirConfig,
  WorkerConfig,
} from "../../core/model/config.js";
import { overrideBudgetSecs, streamIdleTimeoutSecs } from "../../core/model/hold-budget.js";
import { clusterName, modelId, partitionName } from "../../core/model/ids.js";
import type { ModelId } from "../../core/model/ids.js";
import { invariant } from "../../core/model/invariant.js";
import { isLocal, readDurationMs, readListenAddress, readWorkerUrl } from "./addresses.js";
import { adaptiveAdmissionConfig, apiKeySource } from "./freeze-adaptive-admission.js";
import { creditsConfig } from "./freeze-credits.js";
import { fairShareConfig } from "./freeze-fair-share.js";
import { kvEventsConfig } from "./freeze-selection.js";
import { schedulerConfig } from "./freeze-scheduler.js";
import { seedingConfig } from "./freeze-seeding.js";
import type { FileConfig } from "./schema.js";

/** The configuration of the process, frozen to its leaves. */
export function freezeConfig(file: FileConfig): WeirConfig {
  const { trust } = file;
  const adaptive_admission = adaptiveAdmissionConfig(file.adaptive_admission);
  const seeding = seedingConfig(file.seeding);
  const scheduler = schedulerConfig(file.scheduler, adaptive_admission.mode, seeding.seed_cap);
  const intervalSecs = file.adaptive_admission.load_monitor_interval_secs;
  return deepFreeze<WeirConfig>({
    listen: listenConfig(file.listen),
    envoy: envoyConfig(file.envoy, scheduler),
    admin: { listen: address(file.admin.listen), log_level: file.admin.log_level },
    workers: file.workers.map((worker) => workerConfig(worker, intervalSecs)),
    models: modelConfigs(file.models),
    trust: {
      tenant_id: trust.tenant_id,
      prefer_tenant_id: trust.prefer_tenant_id,
      request_model: trust.request_model,
      output_token_estimate: trust.output_token_estimate,
      admission_partition: trust.admission_partition,
      target_worker_url: trust.target_worker_url,
      excluded_worker_urls: trust.excluded_worker_urls,
      routing_key: trust.routing_key,
      tenant_header_name: trust.tenant_header_name.toLowerCase(),
      peers: trust.peers,
    },
    headers: file.headers,
    scheduler,
    fair_share: fairShareConfig(file.fair_share),
    adaptive_admission,
    selection: file.selection,
    credits: creditsConfig(file.credits),
    seeding,
    settlement: { decode_max_bytes: file.settlement.decode_max_bytes },
    health: file.health,
    breaker: file.breaker,
    limits: file.limits,
  });
}

function listenConfig(file: FileConfig["listen"]): ListenConfig {
  const ext_proc = address(file.ext_proc);
  const fastest = isLocal(ext_proc) ? "h2c" : "http2";
  return { ext_proc, transport: file.transport === "auto" ? fastest : file.transport };
}

function envoyConfig(envoy: FileConfig["envoy"], scheduler: SchedulerConfig): EnvoyConfig {
  const { ext_proc_target, max_message_timeout, stream_idle_timeout, tls } = envoy;
  return {
    address: envoy.address,
    port: envoy.port,
    admin_address: envoy.admin_address,
    admin_port: envoy.admin_port,
    ext_proc_target: ext_proc_target === undefined ? undefined : address(ext_proc_target),
    trusted_hops: envoy.trusted_hops,
    message_timeout_ms: milliseconds(envoy.message_timeout),
    max_message_timeout_ms:
      max_message_timeout === undefined
        ? overrideBudgetSecs({ scheduler }) * 1000
        : milliseconds(max_message_timeout),
    stream_idle_timeout_ms:
      stream_idle_timeout === undefined
        ? streamIdleTimeoutSecs({ scheduler }) * 1000
        : milliseconds(stream_idle_timeout),
    request_timeout_ms: milliseconds(envoy.request_timeout),
    http_filters_before: envoy.http_filters_before,
    identity_metadata: envoy.identity_metadata.map(({ namespace, path }) => ({
      namespace,
      path: typeof path === "string" ? path.split(".") : path,
    })),
    tls: tls === undefined ? undefined : { ...tls, client_ca_file: tls.client_ca_file },
  };
}

function workerConfig(worker: FileConfig["workers"][number], intervalSecs: number): WorkerConfig {
  const url = readWorkerUrl(worker.url);
  invariant(url !== undefined, `worker url ${worker.url} passed the schema`);
  const { telemetry_url } = worker;
  const partition = worker.labels.admission_partition;
  return {
    id: worker.id ?? worker.cluster,
    url,
    cluster: clusterName(worker.cluster),
    engine: worker.engine,
    models: worker.models.map(modelId),
    labels: {
      max_running_requests: worker.labels.max_running_requests,
      admission_partition: partition === undefined ? undefined : partitionName(partition),
    },
    load_monitor_interval_secs: worker.load_monitor_interval_secs ?? intervalSecs,
    telemetry_url:
      telemetry_url === undefined ? url : (readWorkerUrl(telemetry_url) ?? telemetry_url),
    api_key: apiKeySource(worker),
    kv_events: kvEventsConfig(worker.kv_events),
  };
}

function modelConfigs(models: FileConfig["models"]): ReadonlyMap<ModelId, ModelConfig> {
  return new Map(Object.entries(models).map(([name, model]) => [modelId(name), model]));
}

function address(text: string): ListenAddress {
  const read = readListenAddress(text);
  invariant(read !== undefined, `address ${text} passed the schema`);
  return read;
}

function milliseconds(text: string): number {
  const read = readDurationMs(text);
  invariant(read !== undefined, `duration ${text} passed the schema`);
  return read;
}

/** Freezes mappings, lists and the values of Maps; a Map itself is read-only by its type. */
function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const children: readonly unknown[] =
    value instanceof Map ? [...value.values()] : Object.values(value);
  Object.freeze(value);
  children.forEach(deepFreeze);
  return value;
}

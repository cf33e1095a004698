// The clusters: one per worker, so that naming a cluster names an engine, and one for Weir. Limits
// that Envoy would put on its own are raised here, because Weir's slots are the limit: with the
// defaults a queue that drains at once would overflow.

import { isIP } from "node:net";
import { EXT_PROC_CLUSTER } from "../../core/model/config.js";
import type { ListenAddress, WeirConfig, WorkerConfig } from "../../core/model/config.js";
import { typed } from "./bootstrap-value.js";
import type { BootstrapMap, BootstrapValue } from "./bootstrap-value.js";

const HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/** Streams of one connection to Weir; a held request is a stream. */
const STREAMS_MAX = 100_000;
/**
 * Requests per connection to Weir. Node closes a connection after about a thousand resets; graceful
 * close avoids resets, and this keeps a connection short of the limit should it be missing.
 */
const REQUESTS_PER_CONNECTION_MAX = 900;

/** Clusters of all workers in the order of the configuration, then Weir's. */
export function clusters(config: WeirConfig): readonly BootstrapMap[] {
  return [...config.workers.map(workerCluster), extProcCluster(config)];
}

function workerCluster(worker: WorkerConfig): BootstrapMap {
  const url = new URL(worker.url);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  // An http URL with the usual port loses it when it is parsed.
  const port = url.port === "" ? 80 : Number(url.port);
  const limits = { max_connections: 100_000, max_pending_requests: 100_000, max_requests: 100_000 };
  const options = {
    // Below the 5 s keep-alive of common Python servers, or a request meets a closing connection.
    common_http_protocol_options: { idle_timeout: "4s" },
    explicit_http_config: { http_protocol_options: {} },
  };
  return cluster(worker.cluster, { kind: "tcp", host, port }, "1s", limits, options);
}

function extProcCluster(config: WeirConfig): BootstrapMap {
  const limits = { max_connections: 1000, max_pending_requests: 100_000, max_requests: 100_000 };
  const options = {
    common_http_protocol_options: { max_requests_per_connection: REQUESTS_PER_CONNECTION_MAX },
    explicit_http_config: {
      http2_protocol_options: {
        max_concurrent_streams: STREAMS_MAX,
        connection_keepalive: { interval: "5s", timeout: "2s" },
      },
    },
  };
  return cluster(EXT_PROC_CLUSTER, extProcTarget(config), "0.5s", limits, options);
}

/** Where Envoy connects to: a listener on every address of this host is reached over loopback. */
function extProcTarget(config: WeirConfig): ListenAddress {
  const target = config.envoy.ext_proc_target ?? config.listen.ext_proc;
  if (target.kind === "unix") return target;
  if (target.host === "0.0.0.0") return { ...target, host: "127.0.0.1" };
  return target.host === "::" ? { ...target, host: "::1" } : target;
}

function cluster(
  name: string,
  address: ListenAddress,
  connectTimeout: string,
  limits: BootstrapMap,
  options: BootstrapMap,
): BootstrapMap {
  const isName = address.kind === "tcp" && isIP(address.host) === 0;
  const discovery: BootstrapMap = isName
    ? { type: "STRICT_DNS", dns_lookup_family: "V4_PREFERRED" }
    : { type: "STATIC" };
  const endpoint: BootstrapValue = { endpoint: { address: envoyAddress(address) } };
  return {
    name,
    ...discovery,
    connect_timeout: connectTimeout,
    circuit_breakers: { thresholds: [limits] },
    typed_extension_protocol_options: { [HTTP_OPTIONS]: typed(HTTP_OPTIONS, options) },
    load_assignment: { cluster_name: name, endpoints: [{ lb_endpoints: [endpoint] }] },
  };
}

function envoyAddress(address: ListenAddress): BootstrapMap {
  return address.kind === "unix"
    ? { pipe: { path: address.path } }
    : { socket_address: { address: address.host, port_value: address.port } };
}

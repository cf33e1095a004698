// The listener clients reach: TLS, the true client address, the early strip of control headers, path
// rules, timeouts, routes and the access log. What stands here decides what a client can make Weir
// or a worker believe, so each rule that keeps a client out has its reason beside it.

import { earlyStrip, PEER_HEADER, ROUTE_HEADER } from "../../core/identity/control-headers.js";
import type { EnvoyTls, WeirConfig } from "../../core/model/config.js";
import { httpFilters, namesBefore } from "./bootstrap-filters.js";
import { localReplies } from "./bootstrap-replies.js";
import { extension, seconds, typed } from "./bootstrap-value.js";
import { EXT_PROC_FILTER } from "./messages.js";
import type { BootstrapMap, BootstrapValue } from "./bootstrap-value.js";

/** Envoy's buffer stands above Weir's limit, so that Weir answers a body that is a little too large. */
const BODY_BUFFER_MARGIN_BYTES = 1_048_576;

/**
 * Headers by which a client could steer Envoy's router: retries, which would run a generation twice
 * and be charged once, and timeouts. Envoy drops them by itself only for clients it takes to be
 * external, and which those are depends on its version and settings.
 */
const ROUTER_HEADERS: readonly string[] = [
  "x-envoy-hedge-on-per-try-timeout",
  "x-envoy-max-retries",
  "x-envoy-retriable-header-names",
  "x-envoy-retriable-status-codes",
  "x-envoy-retry-grpc-on",
  "x-envoy-retry-on",
  "x-envoy-upstream-alt-stat-name",
  "x-envoy-upstream-rq-per-try-timeout-ms",
  "x-envoy-upstream-rq-timeout-alt-response",
  "x-envoy-upstream-rq-timeout-ms",
];

const NETWORK = "envoy.extensions.filters.network";
const MANAGER_TYPE = `${NETWORK}.http_connection_manager.v3.HttpConnectionManager`;
const EARLY_TYPE = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";
const LOG_TYPE = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const TLS_TYPE = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const PER_ROUTE_TYPE = "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute";
const FILTER_CONFIG_TYPE = "envoy.config.route.v3.FilterConfig";

/** The one listener of the bootstrap. */
export function ingressListener(config: WeirConfig): BootstrapMap {
  const { address, port, tls } = config.envoy;
  const manager = extension(
    "envoy.filters.network.http_connection_manager",
    MANAGER_TYPE,
    connectionManager(config),
  );
  const chain: BootstrapMap = { filters: [manager] };
  return {
    name: "ingress",
    address: { socket_address: { address, port_value: port } },
    filter_chains: [tls === undefined ? chain : { transport_socket: downstreamTls(tls), ...chain }],
  };
}

function connectionManager(config: WeirConfig): BootstrapMap {
  const { envoy } = config;
  return {
    stat_prefix: "ingress",
    codec_type: "AUTO",
    use_remote_address: true,
    xff_num_trusted_hops: envoy.trusted_hops,
    // Filters and Weir see the path as it was sent. Weir refuses every path that is not in its plain
    // form; a normalizer would turn it into another path first and have that one served.
    normalize_path: false,
    merge_slashes: false,
    path_with_escaped_slashes_action: "REJECT_REQUEST",
    stream_idle_timeout: seconds(envoy.stream_idle_timeout_ms / 1000),
    request_timeout: seconds(envoy.request_timeout_ms / 1000),
    early_header_mutation_extensions: [
      extension("strip-control-headers", EARLY_TYPE, { mutations: earlyMutations(config) }),
    ],
    local_reply_config: localReplies(),
    access_log: [extension("envoy.access_loggers.stdout", LOG_TYPE, { log_format: accessLog() })],
    route_config: routes(config),
    http_filters: httpFilters(config),
  };
}

function earlyMutations({ trust, headers, credits }: WeirConfig): readonly BootstrapValue[] {
  const creditsOn = credits.generation !== undefined;
  const names = [...earlyStrip(trust, headers, creditsOn), ...ROUTER_HEADERS];
  const peer = { key: PEER_HEADER, value: "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%" };
  return [
    ...names.map((name) => ({ remove: name })),
    { append: { header: peer, append_action: "OVERWRITE_IF_EXISTS_OR_ADD" } },
  ];
}

function accessLog(): BootstrapMap {
  return {
    json_format: {
      time: "%START_TIME%",
      request_id: "%REQ(X-REQUEST-ID)%",
      client: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
      method: "%REQ(:METHOD)%",
      path: "%PATH(NQ)%",
      code: "%RESPONSE_CODE%",
      flags: "%RESPONSE_FLAGS%",
      details: "%RESPONSE_CODE_DETAILS%",
      cluster: "%UPSTREAM_CLUSTER%",
      attempts: "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
      bytes_in: "%BYTES_RECEIVED%",
      bytes_out: "%BYTES_SENT%",
      ms: "%DURATION%",
      weir: "%DYNAMIC_METADATA(weir)%",
    },
  };
}

function routes(config: WeirConfig): BootstrapMap {
  return {
    virtual_hosts: [
      {
        name: "all",
        domains: ["*"],
        request_body_buffer_limit: config.limits.body_limit_bytes + BODY_BUFFER_MARGIN_BYTES,
        routes: [
          {
            match: { path: "/healthz" },
            direct_response: { status: 200 },
            typed_per_filter_config: withoutFilters(config),
          },
          {
            match: { prefix: "/" },
            route: { cluster_header: ROUTE_HEADER, timeout: "0s" },
            request_headers_to_remove: [ROUTE_HEADER],
          },
        ],
      },
    ],
  };
}

/** Switches every filter off but the router: a probe has no token and needs no decision. */
function withoutFilters(config: WeirConfig): BootstrapMap {
  const disabled: Record<string, BootstrapValue> = {};
  for (const name of namesBefore(config)) {
    disabled[name] = typed(FILTER_CONFIG_TYPE, { disabled: true });
  }
  disabled[EXT_PROC_FILTER] = typed(PER_ROUTE_TYPE, { disabled: true });
  return disabled;
}

function downstreamTls(tls: EnvoyTls): BootstrapMap {
  const certificate = {
    certificate_chain: { filename: tls.certificate_file },
    private_key: { filename: tls.private_key_file },
  };
  const common = { alpn_protocols: ["h2", "http/1.1"], tls_certificates: [certificate] };
  const ca = tls.client_ca_file;
  const context =
    ca === undefined
      ? { common_tls_context: common }
      : {
          require_client_certificate: true,
          common_tls_context: { ...common, validation_context: { trusted_ca: { filename: ca } } },
        };
  return extension("envoy.transport_sockets.tls", TLS_TYPE, context);
}

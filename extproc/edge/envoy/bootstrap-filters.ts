// The HTTP filters of the listener: what the operator puts before ext_proc, then ext_proc itself,
// then the router. The processing mode, the hold budget and the failure behaviour here are what the
// session code in this folder relies on; changing one means changing the other.

import { CONNECTION_MTLS, PEER_URI_SAN, SOURCE_ADDRESS } from "../../core/identity/evidence.js";
import { EXT_PROC_CLUSTER } from "../../core/model/config.js";
import type { WeirConfig } from "../../core/model/config.js";
import { EXT_PROC_FILTER } from "./messages.js";
import { NAMESPACE } from "./replies.js";
import { extension, seconds } from "./bootstrap-value.js";
import type { BootstrapMap, BootstrapValue } from "./bootstrap-value.js";

/** Largest message of Weir that Envoy takes: replies are short, error bodies included. */
const REPLY_MAX_BYTES = 1_048_576;

const EXT_PROC_TYPE = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
const ROUTER_TYPE = "envoy.extensions.filters.http.router.v3.Router";

/** All HTTP filters in order. */
export function httpFilters(config: WeirConfig): readonly BootstrapValue[] {
  return [
    ...(config.envoy.http_filters_before as readonly BootstrapValue[]),
    extension(EXT_PROC_FILTER, EXT_PROC_TYPE, extProc(config)),
    extension("envoy.filters.http.router", ROUTER_TYPE),
  ];
}

/** Names of the operator's filters. */
export function namesBefore(config: WeirConfig): readonly string[] {
  return config.envoy.http_filters_before.map((filter) => (filter as { name: string }).name);
}

/**
 * Answers are streamed to Weir from their first byte, also those it does not read (pass-through), since
 * Envoy then sends the body along with the headers instead of one round trip later. A slot is held
 * until the end of the body is seen.
 */
function extProc(config: WeirConfig): BootstrapMap {
  return {
    grpc_service: {
      envoy_grpc: { cluster_name: EXT_PROC_CLUSTER, max_receive_message_length: REPLY_MAX_BYTES },
    },
    failure_mode_allow: true,
    status_on_error: { code: "ServiceUnavailable" },
    message_timeout: seconds(config.envoy.message_timeout_ms / 1000),
    max_message_timeout: seconds(config.envoy.max_message_timeout_ms / 1000),
    allow_mode_override: true,
    allow_content_length_header: true,
    send_body_without_waiting_for_header_response: true,
    ...requestAttributes(config),
    response_attributes: [
      "xds.cluster_name",
      "upstream.address",
      "upstream.request_attempt_count",
      "response.code_details",
      "response.flags",
    ],
    metadata_options: metadataOptions(config),
    mutation_rules: {
      disallow_expression: { regex: "host|:authority|:path|:method|authorization" },
    },
    processing_mode: {
      request_header_mode: "SEND",
      request_body_mode: "BUFFERED",
      response_header_mode: "SEND",
      response_body_mode: "STREAMED",
      request_trailer_mode: "SKIP",
      response_trailer_mode: "SEND",
    },
  };
}

/**
 * Asked for only where they can say something, since Envoy pays for asking at all. Without trusted hops the
 * client is the direct peer, whom the peer header names; without a client CA no certificate is verified.
 */
function requestAttributes({ envoy }: WeirConfig): BootstrapMap {
  const request_attributes = [
    ...(envoy.trusted_hops > 0 ? [SOURCE_ADDRESS] : []),
    ...(envoy.tls?.client_ca_file === undefined ? [] : [CONNECTION_MTLS, PEER_URI_SAN]),
  ];
  return request_attributes.length === 0 ? {} : { request_attributes };
}

function metadataOptions(config: WeirConfig): BootstrapMap {
  const receiving_namespaces = { untyped: [NAMESPACE] };
  const sources = [...new Set(config.envoy.identity_metadata.map((source) => source.namespace))];
  if (sources.length === 0) return { receiving_namespaces };
  return { receiving_namespaces, forwarding_namespaces: { untyped: sources } };
}

// Configuration pieces of the identity tests: everything off, as in a fresh installation.

import type {
  CreditsConfig,
  HeadersConfig,
  TrustConfig,
} from "../../../extproc/core/model/config.js";
import type { Evidence } from "../../../extproc/core/identity/evidence.js";

export const ALIASES_OFF: HeadersConfig = { aliases: false };
export const ALIASES_ON: HeadersConfig = { aliases: true };

export const CREDITS_OFF: CreditsConfig = {
  generation: undefined,
  ttl_ms: 30_000,
  terminal_retention_secs: 600,
  required: false,
  service_key: undefined,
};
export const CREDITS_ON: CreditsConfig = { ...CREDITS_OFF, generation: "g1" };

export function trust(on: Partial<TrustConfig> = {}): TrustConfig {
  return {
    tenant_id: false,
    prefer_tenant_id: false,
    request_model: false,
    output_token_estimate: false,
    admission_partition: false,
    target_worker_url: false,
    excluded_worker_urls: false,
    routing_key: false,
    tenant_header_name: "x-weir-tenant-id",
    peers: [],
    ...on,
  };
}

export const ALL_TRUSTED = trust({
  tenant_id: true,
  request_model: true,
  output_token_estimate: true,
  admission_partition: true,
  target_worker_url: true,
  excluded_worker_urls: true,
  routing_key: true,
});

/** A direct client on a network without certificates, whose peer counts as a proxy. */
export function evidence(known: Partial<Evidence> = {}): Evidence {
  return {
    metadata: [],
    peerSan: undefined,
    peerIsProxy: true,
    peerSanIsProxy: false,
    sourceAddress: undefined,
    ...known,
  };
}

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

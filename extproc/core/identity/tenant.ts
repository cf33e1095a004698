// Who pays the share. Sources are asked from the strongest to the weakest: a claim that another
// Envoy filter verified, the URI SAN of a client certificate, a header that a trusted proxy set, the
// client's address, nobody. Each source has its own key prefix, and the value behind it is never
// interpreted, so no header can spell another source's key: a header `auth:root` is the tenant
// `header:auth:root`. A value that breaks the rules falls through to the next source and is
// reported; it never turns into some other value of the same source.

import type { HeaderSource } from "../model/headers.js";
import { tenantKey, type TenantKey } from "../model/ids.js";
import { formatAddress, parseEndpoint } from "./address.js";
import type { ControlRule } from "./control-headers.js";
import { PEER_URI_SAN, SOURCE_ADDRESS, type Evidence } from "./evidence.js";
import { readTrusted, refusal, type RefusedValue } from "./trusted-header.js";

export type TenantSource = "metadata" | "mtls" | "header" | "address" | "anonymous";

export interface TenantRules {
  readonly header: ControlRule;
  /** The trusted header is asked before the verified sources. */
  readonly preferHeader: boolean;
  /** How a refused claim is named in reports, one per `envoy.identity_metadata`. */
  readonly metadataNames: readonly string[];
}

export interface TenantResolution {
  readonly tenant: TenantKey;
  readonly source: TenantSource;
  readonly refused: readonly RefusedValue[];
}

type Found = Pick<TenantResolution, "tenant" | "source">;

const NOBODY: Found = { tenant: tenantKey("anonymous"), source: "anonymous" };

/** Resolves the tenant; always finds one. */
export function resolveTenant(
  rules: TenantRules,
  headers: HeaderSource,
  evidence: Evidence,
): TenantResolution {
  const refused: RefusedValue[] = [];
  const fromHeader = (): Found | undefined => tenantFromHeader(rules, headers, evidence, refused);
  const fromProof = (): Found | undefined =>
    tenantFromMetadata(rules, evidence, refused) ?? tenantFromCertificate(evidence, refused);
  const { tenant, source } =
    (rules.preferHeader ? (fromHeader() ?? fromProof()) : (fromProof() ?? fromHeader())) ??
    tenantFromAddress(evidence, refused) ??
    NOBODY;
  return { tenant, source, refused };
}

/**
 * A verified id is taken as it is: trimming it could merge two callers that the issuer keeps apart,
 * so outer blanks refuse it. Claims may hold commas.
 */
function tenantFromMetadata(
  rules: TenantRules,
  evidence: Evidence,
  refused: RefusedValue[],
): Found | undefined {
  for (const [index, id] of evidence.metadata.entries()) {
    if (id === undefined) continue;
    const reason = refusal(id, { commas: true });
    if (reason === undefined) return { tenant: tenantKey(`auth:${id}`), source: "metadata" };
    refused.push({ header: rules.metadataNames[index] ?? "envoy.identity_metadata", reason });
  }
  return undefined;
}

/** The SAN of a proxy says nothing about the caller. Several SANs ("a,b") name nobody. */
function tenantFromCertificate(evidence: Evidence, refused: RefusedValue[]): Found | undefined {
  const san = evidence.peerSan;
  if (san === undefined || evidence.peerSanIsProxy) return undefined;
  const reason = refusal(san, { commas: false });
  if (reason === undefined) return { tenant: tenantKey(`auth:${san}`), source: "mtls" };
  refused.push({ header: PEER_URI_SAN, reason });
  return undefined;
}

function tenantFromHeader(
  rules: TenantRules,
  headers: HeaderSource,
  evidence: Evidence,
  refused: RefusedValue[],
): Found | undefined {
  const reading = readTrusted(rules.header, headers, evidence.peerIsProxy);
  if (reading.kind === "value") {
    return { tenant: tenantKey(`header:${reading.value}`), source: "header" };
  }
  if (reading.kind === "refused") refused.push({ header: reading.header, reason: reading.reason });
  return undefined;
}

function tenantFromAddress(evidence: Evidence, refused: RefusedValue[]): Found | undefined {
  if (evidence.sourceAddress === undefined) return undefined;
  const address = parseEndpoint(evidence.sourceAddress);
  if (address !== undefined) {
    return { tenant: tenantKey(`ip:${formatAddress(address)}`), source: "address" };
  }
  refused.push({ header: SOURCE_ADDRESS, reason: "invalid" });
  return undefined;
}

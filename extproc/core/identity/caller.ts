// Everything a request says about its sender, resolved once when its headers arrive: tenant,
// estimate, and the hints of a trusted proxy. Nothing behind this module reads a control header
// again. Refused values are collected, because a proxy that sends unreadable control values is a
// fault an operator must see. A constraint on workers that cannot be read must not be dropped
// silently: the request would go exactly where its sender said it must not.

import type { EnvoyConfig, FairShareConfig, SchedulerConfig, WeirConfig } from "../model/config.js";
import type { HeaderSource } from "../model/headers.js";
import type { TenantKey } from "../model/ids.js";
import { controlRule, type Control, type ControlRule } from "./control-headers.js";
import {
  creditRules,
  readCredit,
  type CreditReading,
  type CreditRules,
  type PresentedCredit,
} from "./credit-headers.js";
import { readEstimate, type Estimate, type EstimateRules } from "./estimate.js";
import type { Evidence } from "./evidence.js";
import { CREDIT_PRIORITY, resolvePriority, type Priority, type PriorityRules } from "./priority.js";
import { resolveTenant, type TenantRules, type TenantSource } from "./tenant.js";
import {
  readLine,
  readTrusted,
  readTrustedList,
  type HeaderReading,
  type ListReading,
  type RefusedValue,
} from "./trusted-header.js";

/** The configuration as the hot path reads it; built once at start. */
export interface IdentityRules {
  readonly tenant: TenantRules;
  readonly estimate: EstimateRules;
  readonly requestModel: ControlRule;
  /** A model named by a trusted proxy chooses a profile; without profiles nobody needs to name one. */
  readonly profilesConfigured: boolean;
  readonly partition: ControlRule;
  readonly targetWorkerUrl: ControlRule;
  readonly excludedWorkerUrls: ControlRule;
  readonly routingKey: ControlRule;
  readonly priority: PriorityRules;
  readonly credit: CreditRules;
}

/**
 * `untrusted_request_model`: the header was sent by somebody who is not trusted with it.
 * `missing_request_model`: a trusted proxy sent none that can be read.
 */
export type RequestModelFallback = "untrusted_request_model" | "missing_request_model";

export interface Caller {
  readonly tenant: TenantKey;
  readonly source: TenantSource;
  readonly priority: Priority;
  /** Model named by a trusted proxy, not yet canonical; it chooses a profile, never the route. */
  readonly requestModel: HeaderReading;
  /** Why the header chooses no profile; undefined also while no profiles are configured. */
  readonly requestModelFallback: RequestModelFallback | undefined;
  readonly estimate: Estimate;
  /** Partition named by a trusted proxy; it may be unknown. */
  readonly partitionHint: string | undefined;
  /** The only worker that may serve; it wins over exclusions. */
  readonly targetWorkerUrl: string | undefined;
  readonly excludedWorkerUrls: readonly string[];
  /** Requests with one key go to one worker; 1 to `TRUSTED_VALUE_MAX_CHARS` characters. */
  readonly routingKey: string | undefined;
  /** A trusted target or exclusion was sent but cannot be read: no worker may be chosen. */
  readonly workerConstraintRefused: boolean;
  /** The capacity credit it brings. */
  readonly credit: CreditReading;
  readonly refused: readonly RefusedValue[];
}

const NONE: readonly string[] = [];

/** The parts of the configuration that say who is who. */
export interface IdentityConfig extends Pick<WeirConfig, "trust" | "headers" | "credits"> {
  readonly fair_share: Pick<FairShareConfig, "default_output_tokens" | "model_profiles">;
  readonly envoy: Pick<EnvoyConfig, "identity_metadata">;
  readonly scheduler: Pick<SchedulerConfig, "tenant_policies" | "default_max_class">;
}

/** Looks every name and switch up once. */
export function identityRules(config: IdentityConfig): IdentityRules {
  const { trust, headers, envoy, fair_share, scheduler, credits } = config;
  const rule = (control: Control): ControlRule => controlRule(control, trust, headers);
  return {
    tenant: {
      header: rule("tenant_id"),
      preferHeader: trust.tenant_id && trust.prefer_tenant_id,
      metadataNames: envoy.identity_metadata.map(
        ({ namespace, path }) => `${namespace}:${path.join(".")}`,
      ),
    },
    estimate: {
      header: rule("output_token_estimate"),
      defaultTokens: fair_share.default_output_tokens,
    },
    requestModel: rule("request_model"),
    profilesConfigured: fair_share.model_profiles.size > 0,
    partition: rule("admission_partition"),
    targetWorkerUrl: rule("target_worker_url"),
    excludedWorkerUrls: rule("excluded_worker_urls"),
    routingKey: rule("routing_key"),
    priority: {
      names: rule("priority").names,
      maxByTenant: scheduler.tenant_policies,
      defaultMax: scheduler.default_max_class,
    },
    credit: creditRules(credits, trust, headers),
  };
}

/** Resolves the sender of one request from its headers and from what Envoy vouches for. */
export function resolveCaller(
  rules: IdentityRules,
  headers: HeaderSource,
  evidence: Evidence,
): Caller {
  const { peerIsProxy } = evidence;
  const { tenant, source, refused: refusedIds } = resolveTenant(rules.tenant, headers, evidence);
  const requestModel = readTrusted(rules.requestModel, headers, peerIsProxy);
  const estimate = readEstimate(rules.estimate, headers, peerIsProxy);
  const partition = readTrusted(rules.partition, headers, peerIsProxy);
  const target = readTrusted(rules.targetWorkerUrl, headers, peerIsProxy);
  const excluded = readTrustedList(rules.excludedWorkerUrls, headers, peerIsProxy);
  const routingKey = readTrusted(rules.routingKey, headers, peerIsProxy);
  const refused = [...refusedIds];
  collectRefused(refused, requestModel);
  if (estimate.refused !== undefined) refused.push(estimate.refused);
  for (const reading of [partition, target, excluded, routingKey]) collectRefused(refused, reading);
  return {
    tenant,
    source,
    priority: resolvePriority(rules.priority, headers, tenant),
    requestModel,
    requestModelFallback: requestModelFallback(rules, requestModel, headers, peerIsProxy),
    estimate,
    partitionHint: valueOf(partition),
    targetWorkerUrl: target.kind === "value" ? workerUrl(target.value) : undefined,
    excludedWorkerUrls: excluded.kind === "list" ? excluded.values.map(workerUrl) : NONE,
    // A key that cannot be read costs a warm cache and nothing else, so the request goes on without it.
    routingKey: valueOf(routingKey),
    workerConstraintRefused: target.kind === "refused" || excluded.kind === "refused",
    credit: readCredit(rules.credit, headers, peerIsProxy),
    refused,
  };
}

/** The sender of a request that redeemed its credit: class and estimate are those of the credit. */
export function withCredit(caller: Caller, { estimateTokens }: PresentedCredit): Caller {
  return {
    ...caller,
    priority: CREDIT_PRIORITY,
    estimate: { tokens: estimateTokens, fallback: undefined, refused: undefined },
  };
}

function requestModelFallback(
  { requestModel: rule, profilesConfigured }: IdentityRules,
  reading: HeaderReading,
  headers: HeaderSource,
  peerIsProxy: boolean,
): RequestModelFallback | undefined {
  if (!profilesConfigured || reading.kind === "value") return undefined;
  if (rule.trusted && peerIsProxy) return "missing_request_model";
  // Absent and untrusted is the ordinary case and counts nothing.
  const sent = readLine(headers, rule.names).kind !== "absent";
  return sent ? "untrusted_request_model" : undefined;
}

/** A worker's url as the registry spells it: an exclusion must not fail over a slash or a capital. */
function workerUrl(text: string): string {
  return text.toLowerCase().replace(/\/$/, "");
}

function valueOf(reading: HeaderReading): string | undefined {
  return reading.kind === "value" ? reading.value : undefined;
}

function collectRefused(into: RefusedValue[], reading: HeaderReading | ListReading): void {
  if (reading.kind === "refused") into.push({ header: reading.header, reason: reading.reason });
}

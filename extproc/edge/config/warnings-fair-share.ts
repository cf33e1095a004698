// Warnings about fair sharing: weights that nothing reads, a ceiling that lets one tenant fill a
// queue in spite of its weight, accounts that the configured tenants use up, and tenants that no request can be. Each is said only where it is
// certain from the file.

import type { FairShareConfig, WeirConfig } from "../../core/model/config.js";

/** Most tenant keys one warning lists. */
const LISTED_TENANTS_MAX = 5;

/** Warnings of the section `fair_share`. */
export function fairShareWarnings(config: WeirConfig): string[] {
  const { fair_share, scheduler } = config;
  const weighted = (["tenant_weights", "model_profiles"] as const)
    .filter((key) => fair_share[key].size > 0)
    .map((key) => `fair_share.${key}`);
  if (weighted.length === 0) return [];
  const off = !scheduler.enabled ? "scheduler.enabled" : "fair_share.enabled";
  if (!scheduler.enabled || !fair_share.enabled) {
    return [`${weighted.join(", ")}: without effect while ${off} is false`];
  }
  return [...queueWarnings(config), ...accountWarnings(fair_share), ...unreachableWarnings(config)];
}

/** A queue of one place cannot be divided, so nothing is said about it. */
function queueWarnings({ fair_share, scheduler }: WeirConfig): string[] {
  const ceiling = fair_share.max_queued_requests_per_tenant;
  const partitions = [...scheduler.admission_partitions];
  const queues: readonly (readonly [string, number])[] =
    partitions.length === 0
      ? [["scheduler.queue_size", scheduler.queue_size]]
      : partitions.map(([name, { queue_size }]) => [
          `the queue_size of partition ${name}`,
          queue_size,
        ]);
  return queues
    .filter(([, size]) => size > 1 && ceiling >= size)
    .map(
      ([what, size]) =>
        `fair_share.max_queued_requests_per_tenant: ${String(ceiling)} is not below ${what} = ` +
        `${String(size)}, so one tenant can fill the queue, and what others send is then refused ` +
        "before their weights count",
    );
}

/** Tenants with a weight always have an account; when they take all there are, the rest share one. */
function accountWarnings(fair_share: FairShareConfig): string[] {
  const weighted = new Set(weightMaps(fair_share).flatMap(([, weights]) => [...weights.keys()]));
  const most = fair_share.max_tracked_tenants;
  if (weighted.size < most) return [];
  return [
    `fair_share.max_tracked_tenants: ${String(most)} while ${String(weighted.size)} tenants have a ` +
      "weight, so all tenants without one share one account",
  ];
}

/** Only a trusted header makes a tenant `header:…`. */
function unreachableWarnings({ fair_share, trust }: WeirConfig): string[] {
  if (trust.tenant_id) return [];
  return weightMaps(fair_share).flatMap(([where, weights]) => {
    const tenants = [...weights.keys()].filter((tenant) => tenant.startsWith("header:"));
    if (tenants.length === 0) return [];
    const more = tenants.length - LISTED_TENANTS_MAX;
    const listed =
      tenants.slice(0, LISTED_TENANTS_MAX).join(", ") +
      (more > 0 ? ` and ${String(more)} more` : "");
    return [`${where}: ${listed}: no request is of such a tenant while trust.tenant_id is false`];
  });
}

function weightMaps({
  tenant_weights,
  model_profiles,
}: FairShareConfig): readonly (readonly [string, ReadonlyMap<string, number>])[] {
  return [
    ["fair_share.tenant_weights", tenant_weights],
    ...Array.from(
      model_profiles,
      ([model, profile]) =>
        [`fair_share.model_profiles.${model}.tenant_weights`, profile.tenant_weights] as const,
    ),
  ];
}

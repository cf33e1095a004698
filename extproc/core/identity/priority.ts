// Which class a request runs in. Clients may ask for any class by header; the tenant's ceiling lowers
// what they ask for and never raises it. The header is read leniently, because it is no identity: an
// unknown word is the class `default`, and is counted.

import type { HeaderSource } from "../model/headers.js";
import type { TenantKey } from "../model/ids.js";
import { lowerOf, PRIORITY_CLASSES, rankOf, type ClassRank } from "../model/priority.js";

export interface PriorityRules {
  /** Names of the header, own name first. */
  readonly names: readonly string[];
  /** Ceiling of tenants that have a policy. */
  readonly maxByTenant: ReadonlyMap<TenantKey, ClassRank>;
  /** Ceiling of everybody else. */
  readonly defaultMax: ClassRank;
}

export interface Priority {
  readonly requested: ClassRank;
  /** min(requested, ceiling of the tenant). */
  readonly effective: ClassRank;
  /** The header was there, not empty, and no class. */
  readonly unknownValue: boolean;
}

const DEFAULT_CLASS = rankOf("default");

/** Of every request that is admitted by a credit, whatever its header says and its tenant may. */
export const CREDIT_PRIORITY: Priority = {
  requested: DEFAULT_CLASS,
  effective: DEFAULT_CLASS,
  unknownValue: false,
};

/** The class of a header value: any case, outer blanks ignored; undefined = no class of that name. */
export function parseClass(value: string): ClassRank | undefined {
  const index = (PRIORITY_CLASSES as readonly string[]).indexOf(value.trim().toLowerCase());
  return index < 0 ? undefined : (index as ClassRank);
}

/** Reads the requested class and lowers it to the tenant's ceiling. */
export function resolvePriority(
  rules: PriorityRules,
  headers: HeaderSource,
  tenant: TenantKey,
): Priority {
  // Several copies, or a name and its alias, are one value of several words: unknown, so `default`.
  const value = rules.names.flatMap((name) => headers.all(name)).join(",");
  const parsed = parseClass(value);
  const requested = parsed ?? DEFAULT_CLASS;
  const ceiling = rules.maxByTenant.get(tenant) ?? rules.defaultMax;
  return {
    requested,
    effective: lowerOf(requested, ceiling),
    unknownValue: parsed === undefined && value.trim() !== "",
  };
}

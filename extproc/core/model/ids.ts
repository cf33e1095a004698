// Branded strings for the identities that travel through every room, so that a tenant can never be
// passed where a partition is meant. The brands exist at compile time only.

declare const brand: unique symbol;
type Branded<Name extends string> = string & { readonly [brand]: Name };

/** Canonical key of who pays the share: `auth:<id>`, `header:<id>`, `ip:<addr>` or `anonymous`. */
export type TenantKey = Branded<"TenantKey">;
/** Canonical model name, aliases already resolved. */
export type ModelId = Branded<"ModelId">;
/** Name of an admission partition: a pool with its own slots and queue. */
export type PartitionName = Branded<"PartitionName">;
/** Envoy cluster that holds exactly one worker. */
export type ClusterName = Branded<"ClusterName">;

export const tenantKey = (value: string): TenantKey => value as TenantKey;
export const modelId = (value: string): ModelId => value as ModelId;
export const partitionName = (value: string): PartitionName => value as PartitionName;
export const clusterName = (value: string): ClusterName => value as ClusterName;

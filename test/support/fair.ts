// Fair sharing for tests, with the shipped settings where a sketch names none.

import type { FairShareConfig, ModelProfileConfig } from "../../extproc/core/model/config.js";
import { Ledger } from "../../extproc/core/fairshare/ledger.js";
import { modelId, tenantKey, type ModelId, type TenantKey } from "../../extproc/core/model/ids.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { FairQueueing } from "../../extproc/core/scheduler/lanes.js";

export type Weights = Readonly<Record<string, number>>;

export interface FairSketch {
  readonly weights?: Weights;
  readonly defaultWeight?: number;
  readonly profiles?: Readonly<
    Record<string, { readonly weights: Weights; readonly other: number }>
  >;
  readonly maxQueuedPerTenant?: number;
  readonly maxTracked?: number;
}

const weightsOf = (weights: Weights = {}): ReadonlyMap<TenantKey, number> =>
  new Map(Object.entries(weights).map(([tenant, weight]) => [tenantKey(tenant), weight]));

export function fairConfig(sketch: FairSketch = {}): FairShareConfig {
  return {
    enabled: true,
    default_weight: sketch.defaultWeight ?? 1,
    default_output_tokens: 256,
    tenant_weights: weightsOf(sketch.weights),
    model_profiles: new Map<ModelId, ModelProfileConfig>(
      Object.entries(sketch.profiles ?? {}).map(([model, { weights, other }]) => [
        modelId(model),
        { tenant_weights: weightsOf(weights), other_weight: other },
      ]),
    ),
    max_queued_requests_per_tenant: sketch.maxQueuedPerTenant ?? 64,
    max_tracked_tenants: sketch.maxTracked ?? 100_000,
  };
}

export function fairQueueing(sketch: FairSketch = {}): FairQueueing {
  const config = fairConfig(sketch);
  return {
    ledger: new Ledger(config, monotonicMs(0)),
    maxQueuedPerTenant: config.max_queued_requests_per_tenant,
    catchUpTokensPerSlot: config.default_output_tokens,
  };
}

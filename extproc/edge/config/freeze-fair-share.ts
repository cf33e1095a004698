// Turns the checked section `fair_share` into the maps the core looks weights up in. A profile takes
// nothing from the flat weights: a tenant that is named only there is one of `other` for that model.

import type { FairShareConfig, ModelProfileConfig } from "../../core/model/config.js";
import { modelId, tenantKey, type ModelId, type TenantKey } from "../../core/model/ids.js";
import type { FileConfig } from "./schema.js";

type FairShareSection = FileConfig["fair_share"];

/** The section as the core reads it. */
export function fairShareConfig(section: FairShareSection): FairShareConfig {
  return {
    enabled: section.enabled,
    default_weight: section.default_weight,
    default_output_tokens: section.default_output_tokens,
    tenant_weights: weightsOf(section.tenant_weights),
    model_profiles: new Map(
      Object.entries(section.model_profiles).map(
        ([model, profile]): [ModelId, ModelProfileConfig] => [
          modelId(model),
          {
            tenant_weights: weightsOf(profile.tenant_weights),
            other_weight: profile.other_weight,
          },
        ],
      ),
    ),
    max_queued_requests_per_tenant: section.max_queued_requests_per_tenant,
    max_tracked_tenants: section.max_tracked_tenants,
  };
}

function weightsOf(weights: Readonly<Record<string, number>>): Map<TenantKey, number> {
  return new Map(Object.entries(weights).map(([tenant, weight]) => [tenantKey(tenant), weight]));
}

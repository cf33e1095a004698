// The section `fair_share`: weights of tenants, flat and by model, the provisional charge, and the
// bounds that keep one tenant, or one that changes its name all the time, from taking everything.
// Rules that need the trust switches or the models stand in rules-fair-share.ts.

import { WEIGHT_MAX, WEIGHT_MIN } from "../../core/model/config.js";
import { DEFAULTS, PROFILE_DEFAULTS } from "./defaults.js";
import { decimal, mapping, named, onOff, tenantName, whole } from "./fields.js";

const FAIR_SHARE = DEFAULTS.fair_share;

/** Token and waiter counts are unsigned 32-bit integers, like the ones engines report. */
const COUNT_MAX = 4_294_967_295;
/** With fewer accounts, ordinary callers of a busy hour would share one. */
const TRACKED_TENANTS_MIN = 1000;
/** An account takes about 700 bytes: a million of them fill a third of a common heap of 2 GiB. */
const TRACKED_TENANTS_MAX = 1_000_000;

const weight = decimal(WEIGHT_MIN, WEIGHT_MAX);
const tenantWeights = named(weight, tenantName);

const modelProfiles = named(
  mapping({
    tenant_weights: tenantWeights
      .prefault(PROFILE_DEFAULTS.tenant_weights)
      .describe("Weights of single tenants for the model; fair_share.tenant_weights is not read."),
    other_weight: weight
      .default(PROFILE_DEFAULTS.other_weight)
      .describe("Weight of all other tenants together; they share it equally."),
  }),
);

export const fairShareSection = mapping({
  enabled: onOff
    .default(FAIR_SHARE.enabled)
    .describe("Share by output tokens; false = order of arrival inside a class."),
  default_weight: weight
    .default(FAIR_SHARE.default_weight)
    .describe("Weight of a tenant that is not in tenant_weights."),
  default_output_tokens: whole(1, COUNT_MAX)
    .default(FAIR_SHARE.default_output_tokens)
    .describe("Charge of a request until its usage is known."),
  tenant_weights: tenantWeights
    .prefault(FAIR_SHARE.tenant_weights)
    .describe("Weights of single tenants, by tenant key; only their proportions matter."),
  model_profiles: modelProfiles
    .prefault(FAIR_SHARE.model_profiles)
    .describe("Shares of single models, by canonical name; needs trust.request_model."),
  max_queued_requests_per_tenant: whole(1, COUNT_MAX)
    .default(FAIR_SHARE.max_queued_requests_per_tenant)
    .describe("Waiters of one tenant in one partition, all classes together."),
  max_tracked_tenants: whole(TRACKED_TENANTS_MIN, TRACKED_TENANTS_MAX)
    .default(FAIR_SHARE.max_tracked_tenants)
    .describe("Tenants with an account of their own; later ones share one."),
});

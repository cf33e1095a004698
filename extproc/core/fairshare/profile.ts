// Where a request contends. Without a profile of its model all tenants share one clock by their flat
// weights. In a profile the named tenants share with one bucket, `other`, in which everybody else
// shares equally: a thousand invented names divide one bucket's part, and get no part of their own.

import type { FairShareConfig, ModelProfileConfig } from "../model/config.js";
import type { ModelId, TenantKey } from "../model/ids.js";
import type { Account } from "./account.js";
import { FairClock, type ClockEntry } from "./fair-clock.js";
import type { Bucket, Contender, Standing } from "./ticket.js";

/** Label of the bucket of all tenants a profile does not name. */
export const OTHER_BUCKET = "other";

export interface Profile {
  /** Undefined = the flat weights. */
  readonly model: ModelId | undefined;
  readonly clock: FairClock;
  readonly standing: (tenant: TenantKey) => Standing;
  readonly contenders: (account: Account, bucket: Bucket) => readonly Contender[];
  /** The weight an account's own entry has in a bucket. */
  readonly weightOf: (tenant: string, bucket: Bucket) => number;
  /** The clock an account's own entry moves in. */
  readonly clockOf: (bucket: Bucket) => FairClock;
  /** Outer entry of the bucket `other`; flat shares have none. */
  readonly other: ClockEntry | undefined;
}

/** All tenants in one clock. */
export function flatProfile(config: FairShareConfig): Profile {
  const clock = new FairClock();
  const weights: ReadonlyMap<string, number> = config.tenant_weights;
  const weightOf = (tenant: string): number => weights.get(tenant) ?? config.default_weight;
  return {
    model: undefined,
    clock,
    other: undefined,
    standing: (tenant) => ({ profile: undefined, bucket: "flat", weighted: weights.has(tenant) }),
    contenders: (account) => [{ clock, entry: account.entryIn(clock, weightOf(account.key)) }],
    weightOf,
    clockOf: () => clock,
  };
}

/** Named tenants and the bucket in one clock, the tenants of the bucket in a second one. */
export function modelProfile(
  model: ModelId,
  { tenant_weights, other_weight }: ModelProfileConfig,
  defaultWeight: number,
): Profile {
  const clock = new FairClock();
  const inner = new FairClock();
  const other = clock.add(OTHER_BUCKET, other_weight);
  const weights: ReadonlyMap<string, number> = tenant_weights;
  const weightOf = (tenant: string): number => weights.get(tenant) ?? defaultWeight;
  const clockOf = (bucket: Bucket): FairClock => (bucket === "other" ? inner : clock);
  return {
    model,
    clock,
    other,
    standing: (tenant) => {
      const weighted = weights.has(tenant);
      return { profile: model, bucket: weighted ? "explicit" : "other", weighted };
    },
    contenders: (account, bucket) => {
      const entry = account.entryIn(clockOf(bucket), weightOf(account.key));
      const own = { clock: clockOf(bucket), entry };
      return bucket === "other" ? [{ clock, entry: other }, own] : [own];
    },
    weightOf,
    clockOf,
  };
}

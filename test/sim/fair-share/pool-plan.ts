// What a simulated pool consists of: slots that work at one pace, tenants with their weights, and for
// each tenant the traffic its clients send. Times in milliseconds, lengths in output tokens.

import type { ClassRank } from "../../../extproc/core/model/priority.js";
import type { FairSketch } from "../../support/fair.js";
import type { EstimateRule, Lengths } from "./lengths.js";
import type { Contestant } from "./fairness-bound.js";

/** From when to when clients are there; they begin again whenever a new span begins. */
export type Span = readonly [fromMs: number, toMs: number];

/**
 * When requests come. `backlogged`: each client sends its next request when its last one is over,
 * within the spans. `bursts`: many at once, now and then. `poisson`: independent of each other.
 */
export type Arrivals =
  | { readonly kind: "backlogged"; readonly clients: number; readonly spans?: readonly Span[] }
  | { readonly kind: "bursts"; readonly size: number; readonly everyMs: number }
  | { readonly kind: "poisson"; readonly meanGapMs: number };

export interface Traffic {
  readonly rank: ClassRank;
  readonly arrivals: Arrivals;
  readonly lengths: Lengths;
  readonly estimate: EstimateRule;
  /** Part of the requests whose client leaves, while it waits or in the middle of its answer. */
  readonly leaving?: number;
  /** Part of the answers that end without usage. */
  readonly withoutUsage?: number;
  /** Each request comes under a name that was never seen before. */
  readonly freshNames?: boolean;
  /** One of the plan's further partitions; absent = the one of the plan's own slots. */
  readonly partition?: string;
  /** The model whose profile applies to it; absent = the plan's. */
  readonly model?: string;
}

export interface TenantPlan {
  /** Its line in the report. */
  readonly name: string;
  /** The tenant it asks as; absent = its name. */
  readonly key?: string;
  /** Index of the contestant it is part of. */
  readonly contestant: number;
  readonly traffic: readonly Traffic[];
}

export interface PoolPlan {
  readonly title: string;
  readonly slots: number;
  /** Slots of further partitions. */
  readonly partitions?: Readonly<Record<string, number>>;
  /** The wait after which the lowest class may go before the others; absent = never. */
  readonly bulkStarvesSecs?: number;
  readonly msPerToken: number;
  readonly fair: FairSketch;
  /** The model whose profile applies; absent = the flat weights. */
  readonly model?: string;
  /** Who shares the slots by weight: tenants, or buckets of them. */
  readonly contestants: readonly Contestant[];
  /** What a tenant that comes may catch up on beyond the bound; see FairnessChecker. 0 when absent. */
  readonly catchUpTokens?: number;
  readonly tenants: readonly TenantPlan[];
}

/** Contestants that are one tenant each, with flat weights. */
export function flatPool(
  title: string,
  tenants: Readonly<
    Record<string, { readonly weight: number; readonly traffic: readonly Traffic[] }>
  >,
  over: Partial<PoolPlan> = {},
): PoolPlan {
  const entries = Object.entries(tenants);
  return {
    title,
    slots: 8,
    msPerToken: 20,
    fair: { weights: Object.fromEntries(entries.map(([name, { weight }]) => [name, weight])) },
    contestants: entries.map(([name, { weight }]) => ({ name, weight })),
    tenants: entries.map(([name, { traffic }], contestant) => ({ name, contestant, traffic })),
    ...over,
  };
}

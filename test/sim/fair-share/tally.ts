// What each tenant and each contestant of a run got: requests, tokens, waits, its due, and the course
// of its service for the plot.
//
// The due of a contestant is what an ideal server would give it: of all that is served, those that have
// something waiting get parts by weight; one that has nothing waiting, or waits in another lane, is due
// what it gets.

import type { Contestant, FairnessChecker } from "./fairness-bound.js";
import { partsOf } from "./measures.js";
import type { PoolObserver } from "./pool.js";
import type { PoolPlan } from "./pool-plan.js";

export interface TenantTally {
  readonly name: string;
  readonly contestant: number;
  requests: number;
  /** Of them, those whose client left in the middle of the answer. */
  left: number;
  producedTokens: number;
  chargedTokens: number;
  readonly waitsMs: number[];
}

export interface ContestantTally extends Contestant {
  /** Charged to its clock. */
  servedTokens: number;
  dueTokens: number;
  /** Requests of it that wait. */
  waiting: number;
}

/** The service of all contestants at one moment, by their index. */
export interface Sample {
  readonly atMs: number;
  readonly servedTokens: readonly number[];
}

export class Tally {
  readonly tenants: readonly TenantTally[];
  readonly contestants: readonly ContestantTally[];
  readonly samples: Sample[] = [];
  readonly #sampleEveryMs: number;
  #nextSampleMs = 0;

  constructor(plan: PoolPlan, sampleEveryMs: number) {
    this.tenants = plan.tenants.map(({ name, contestant }) => ({
      name,
      contestant,
      requests: 0,
      left: 0,
      producedTokens: 0,
      chargedTokens: 0,
      waitsMs: [],
    }));
    this.contestants = plan.contestants.map((one) => ({
      ...one,
      servedTokens: 0,
      dueTokens: 0,
      waiting: 0,
    }));
    this.#sampleEveryMs = sampleEveryMs;
  }

  readonly observer: PoolObserver = {
    waits: (tenant) => {
      this.#contestantOf(tenant).waiting += 1;
    },
    leavesQueue: (tenant) => {
      this.#contestantOf(tenant).waiting -= 1;
    },
    runs: (tenant, _estimateTokens, waitedMs) => {
      this.#tenant(tenant).waitsMs.push(waitedMs);
    },
    settled: (tenant, { producedTokens, chargedTokens, whole }, now) => {
      this.#sampleUntil(now);
      const tally = this.#tenant(tenant);
      tally.requests += 1;
      if (!whole) tally.left += 1;
      tally.producedTokens += producedTokens;
      tally.chargedTokens += chargedTokens;
      this.#serve(this.#contestantOf(tenant), Math.max(1, chargedTokens));
    },
  };

  /** The course up to the end. */
  finish(now: number): void {
    this.#sampleUntil(now);
  }

  #serve(served: ContestantTally, tokens: number): void {
    served.servedTokens += tokens;
    if (served.waiting === 0 || served.elsewhere === true) {
      served.dueTokens += tokens;
      return;
    }
    const waiting = this.contestants.filter((one) => one.waiting > 0 && one.elsewhere !== true);
    const parts = partsOf(
      tokens,
      waiting.map(({ weight }) => weight),
    );
    for (const [index, one] of waiting.entries()) one.dueTokens += parts[index] ?? 0;
  }

  #sampleUntil(now: number): void {
    while (this.#nextSampleMs <= now) {
      this.samples.push({
        atMs: this.#nextSampleMs,
        servedTokens: this.contestants.map(({ servedTokens }) => servedTokens),
      });
      this.#nextSampleMs += this.#sampleEveryMs;
    }
  }

  #tenant(index: number): TenantTally {
    const tenant = this.tenants[index];
    if (tenant === undefined) throw new Error(`no tenant ${String(index)}`);
    return tenant;
  }

  #contestantOf(tenant: number): ContestantTally {
    const contestant = this.contestants[this.#tenant(tenant).contestant];
    if (contestant === undefined) throw new Error(`no contestant of tenant ${String(tenant)}`);
    return contestant;
  }
}

/** Lets a checker see a pool. */
export function checking(checker: FairnessChecker, plan: PoolPlan): PoolObserver {
  const contestantOf = plan.tenants.map(({ contestant }) => contestant);
  const waiting = plan.contestants.map(() => 0);
  const change = (tenant: number, by: number): void => {
    const index = contestantOf[tenant] ?? -1;
    const before = waiting[index] ?? 0;
    waiting[index] = before + by;
    if (before === 0) checker.waits(index);
    else if (before + by === 0) checker.rests(index);
  };
  return {
    waits: (tenant) => {
      change(tenant, 1);
    },
    leavesQueue: (tenant) => {
      change(tenant, -1);
    },
    runs: (_tenant, estimateTokens) => {
      checker.booked(estimateTokens);
    },
    settled: (tenant, { chargedTokens }) => {
      checker.settled(contestantOf[tenant] ?? -1, Math.max(1, chargedTokens));
    },
  };
}

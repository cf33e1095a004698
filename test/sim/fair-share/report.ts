// Runs one pool and tells how fairly it was shared, in a table for people.

import { grouped, percent, seconds, table } from "../command/table.js";
import { FairnessChecker, isCompared } from "./fairness-bound.js";
import { jainIndex, quantile } from "./measures.js";
import { Pool } from "./pool.js";
import type { PoolPlan } from "./pool-plan.js";
import { checking, Tally, type ContestantTally, type TenantTally } from "./tally.js";

/** Points of a line in the plot. */
const SAMPLES = 240;

export interface PoolReport {
  readonly plan: PoolPlan;
  readonly tally: Tally;
  readonly checker: FairnessChecker;
  readonly jain: number;
  readonly idleSlotMs: number;
}

export function simulatePool(plan: PoolPlan, seed: number, lengthMs: number): PoolReport {
  const tally = new Tally(plan, lengthMs / SAMPLES);
  const checker = new FairnessChecker(plan.slots, plan.contestants, plan.catchUpTokens);
  const pool = new Pool(plan, seed, [tally.observer, checking(checker, plan)]);
  pool.run({ ms: lengthMs });
  tally.finish(lengthMs);
  const perWeight = tally.contestants.map(({ servedTokens, weight }) => servedTokens / weight);
  return { plan, tally, checker, jain: jainIndex(perWeight), idleSlotMs: pool.idleSlotMs };
}

function shareTable(contestants: readonly ContestantTally[]): string[] {
  let served = 0;
  for (const { servedTokens } of contestants) served += servedTokens;
  const rows = contestants.map(({ name, weight, servedTokens, dueTokens }) => [
    name,
    String(weight),
    percent(servedTokens / served),
    percent(dueTokens / served),
    dueTokens === 0 ? "-" : (servedTokens / dueTokens).toFixed(3),
    grouped(servedTokens / weight),
  ]);
  return table([["share", "weight", "got", "due", "got/due", "S/w"], ...rows]);
}

function tenantTable(tenants: readonly TenantTally[]): string[] {
  const rows = tenants.map((tenant) => {
    const waits = [...tenant.waitsMs].sort((one, other) => one - other);
    return [
      tenant.name,
      grouped(tenant.requests),
      grouped(tenant.left),
      grouped(tenant.chargedTokens),
      grouped(tenant.producedTokens),
      seconds(quantile(waits, 0.5)),
      seconds(quantile(waits, 0.99)),
    ];
  });
  return table([
    ["tenant", "requests", "broken off", "tokens charged", "produced", "wait p50", "p99"],
    ...rows,
  ]);
}

function gapLine({ plan, checker }: PoolReport): string {
  const { largestGap, nearest, violations } = checker;
  if (largestGap === undefined || nearest === undefined) {
    return plan.contestants.every(isCompared)
      ? "nobody waited beside another"
      : "none claimed between these: they wait in different lanes or under different profiles";
  }
  const { ahead, behind, gap, bound } = largestGap;
  return (
    `${grouped(gap)} tokens per weight (${ahead} ahead of ${behind}), bound ${grouped(bound)}; ` +
    `at most ${percent(nearest.share)} of the bound, ${String(violations)} violations`
  );
}

export function reportLines(report: PoolReport): string[] {
  const { plan, tally, jain, idleSlotMs } = report;
  return [
    plan.title,
    "",
    ...shareTable(tally.contestants),
    "",
    ...tenantTable(tally.tenants),
    "",
    `Jain index of S/w     ${jain.toFixed(4)}`,
    `largest gap           ${gapLine(report)}`,
    `idle slots meanwhile  ${String(Math.round(idleSlotMs))} ms while somebody waited`,
  ];
}

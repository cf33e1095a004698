// Which of the requests at the engines were seeds? Weir's settlement record says that a request was one,
// and the request id, which Envoy wrote and the engine's server saw, says when it was where. So how many seeds
// were in flight at a moment is judged by the engines.

import type { SeedRecord } from "../../extproc/core/request/seed-record.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { IncidentRun, Visit } from "./incident.js";

export type Seeded = Extract<SeedRecord, { kind: "seeded" }>;

export interface SeedVisit extends Visit {
  readonly seed: Seeded;
}

/** The seeds among records, by request id. */
export function seedsOf(records: readonly SettlementRecord[]): ReadonlyMap<string, Seeded> {
  const seeds = new Map<string, Seeded>();
  for (const { requestId, seed } of records) {
    if (seed?.kind === "seeded") seeds.set(requestId, seed);
  }
  return seeds;
}

/** The seeds of a run at the engines, by the time of their arrival. */
export function seedVisits({
  records,
  visits,
}: Pick<IncidentRun, "records" | "visits">): SeedVisit[] {
  const seeds = seedsOf(records);
  return visits.flatMap((visit) => {
    const seed = seeds.get(visit.requestId);
    return seed === undefined ? [] : [{ ...visit, seed }];
  });
}

/** The most of these visits that were at the engines at one moment. */
export function mostAtOnce(visits: readonly Visit[]): number {
  const moments = visits.flatMap(({ fromMs, untilMs = Infinity }) => [
    { atMs: fromMs, change: 1 },
    { atMs: untilMs, change: -1 },
  ]);
  // Who leaves at the very moment at which the next one comes has left.
  moments.sort((one, other) => one.atMs - other.atMs || one.change - other.change);
  let now = 0;
  let most = 0;
  for (const { change } of moments) {
    now += change;
    most = Math.max(most, now);
  }
  return most;
}

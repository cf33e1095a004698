// What `GET /state/seeding` shows: which partitions seed, the seed that is under way in each, prefixes that
// are guarded, how much room each worker has for a seed or why that is not known, and what happened since
// the start. Where seeding is off, the lists are empty. Nothing of a prompt is on it but lengths in blocks.

import type { SeedingConfig } from "../../core/model/config.js";
import type { SeedCount } from "../../core/seeding/counts.js";
import type { HeadroomExplanation, SeedingExplanation } from "../../core/seeding/explain.js";

export function seedingPage(
  { seed_cap, proof_source }: Pick<SeedingConfig, "seed_cap" | "proof_source">,
  { partitions, leases, protections, headroom, counts }: SeedingExplanation,
): object {
  return {
    partitions,
    seed_cap,
    proof_source,
    leases: leases.map(({ telemetryRevision, ageMs, ...lease }) => ({
      ...lease,
      telemetry_revision: telemetryRevision,
      age_ms: Math.round(ageMs),
    })),
    protections: protections.map(({ partition, phase, target, blocks, ageMs }) => ({
      ...{ partition, phase },
      ...{ url: target.url, revision: target.revision },
      blocks,
      age_ms: Math.round(ageMs),
    })),
    headroom: headroom.map(headroomState),
    counts: counts.map(countState),
  };
}

function headroomState(headroom: HeadroomExplanation): object {
  const { partition, model, url, slots, reason, liveLoad, reported } = headroom;
  return {
    ...{ partition, model, url, slots },
    reason: reason ?? null,
    live_load: liveLoad,
    reported:
      reported === undefined
        ? null
        : {
            running: reported.running,
            waiting: reported.waiting,
            max_running: reported.maxRunning,
            pressure: reported.pressure,
            age_ms: Math.round(reported.ageMs),
          },
  };
}

function countState({ partition, event: counted, count }: SeedCount): object {
  const { event } = counted;
  switch (event) {
    case "refused":
      return { partition, event, reason: counted.refusal, count };
    case "lease_voided":
      return { partition, event, reason: counted.fault, count };
    case "lease_acquired":
      return { partition, event, kind: counted.kind, count };
    case "ended":
      return { partition, event, kind: counted.kind, outcome: counted.outcome, count };
    case "lease_verified":
      return { partition, event, count };
  }
}

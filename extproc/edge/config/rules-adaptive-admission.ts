// What `scheduler.adaptive_capacity` needs. Slots that follow the engines are a promise that nobody is
// refused for what could have waited; without the mode, the scheduler or the partitions it could not be
// kept, so `true` is then an error. The same question decides whether a broken scheduler may be replaced
// by the limiter: the limiter's slots follow nothing.

import type { Draft } from "./draft.js";
import type { Finding } from "./problem.js";
import { wantsSeeding } from "./rules-seeding.js";
import { readAdmissionMode } from "./schema-adaptive-admission.js";

/** Every broken rule; values that were refused by themselves are not asked for again. */
export function checkAdaptiveCapacity({ scheduler, adaptive_admission }: Draft): Finding[] {
  if (scheduler?.adaptive_capacity !== true) return [];
  const needs: string[] = [];
  const mode = adaptive_admission?.mode;
  if (mode !== undefined && readAdmissionMode(mode) !== "enforce") {
    needs.push(`adaptive_admission.mode: enforce (it is ${mode.trim().toLowerCase()})`);
  }
  if (scheduler.enabled === false) needs.push("scheduler.enabled: true (it is false)");
  if (!mayHavePartitions(scheduler)) {
    needs.push("at least one name in scheduler.admission_partitions (it is empty)");
  }
  if (needs.length === 0) return [];
  const message = `true needs ${needs.join(" and ")}; set what is missing, or take auto or false`;
  return [{ path: ["scheduler", "adaptive_capacity"], message }];
}

/** True when the slots would follow the engines if the rest of the file were right. */
export function wantsAdaptiveCapacity(draft: Draft): boolean {
  const { scheduler, adaptive_admission } = draft;
  if (scheduler === undefined || scheduler.adaptive_capacity === false) return false;
  if (scheduler.adaptive_capacity === "auto" && wantsSeeding(draft)) return false;
  const mode = adaptive_admission?.mode;
  return (
    mode !== undefined && readAdmissionMode(mode) === "enforce" && mayHavePartitions(scheduler)
  );
}

/** Partitions that were refused count: somebody wrote them down. */
function mayHavePartitions(scheduler: NonNullable<Draft["scheduler"]>): boolean {
  const partitions = scheduler.admission_partitions;
  return partitions === undefined || Object.keys(partitions).length > 0;
}

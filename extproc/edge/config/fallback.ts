// The way out that `scheduler.fallback_to_limiter` opens: when nothing is wrong with a file but what
// the scheduler alone is built from, Weir starts with the plain limiter instead of not at all. The
// faulty keys are left out as a whole; a half-read scheduler would be worse than none. Where the slots
// were to follow the engines, an allocator was to take them, or refused requests were to seed, there is no
// way out, because the limiter can do none of it.

import type { Draft } from "./draft.js";
import { isMapping } from "./overrides.js";
import type { Finding } from "./problem.js";
import { wantsAdaptiveCapacity } from "./rules-adaptive-admission.js";
import { wantsCredits } from "./rules-credits.js";
import { wantsSeeding } from "./rules-seeding.js";

/** Keys of the section `scheduler` that the limiter does not need. */
const SCHEDULER_ONLY: readonly string[] = [
  "classes",
  "tenant_policies",
  "admission_partitions",
  "default_admission_partition",
];

/** What a warning adds to each problem that is passed over. */
export const FALLBACK_NOTE =
  "the scheduler cannot be built, so the plain limiter runs in its place " +
  "(scheduler.fallback_to_limiter)";

/**
 * The file for the limiter, undefined when the fallback is off or something else is wrong too.
 * @param root the file with its overrides
 */
export function limiterInstead(root: unknown, draft: Draft, findings: readonly Finding[]): unknown {
  const { scheduler } = draft;
  if (scheduler?.fallback_to_limiter !== true || scheduler.enabled !== true) return undefined;
  if (wantsAdaptiveCapacity(draft) || wantsCredits(draft) || wantsSeeding(draft)) return undefined;
  const all = findings.every(
    ({ path: [section, key] }) =>
      section === "scheduler" && typeof key === "string" && SCHEDULER_ONLY.includes(key),
  );
  if (!all || !isMapping(root) || !isMapping(root["scheduler"])) return undefined;
  const kept = Object.entries(root["scheduler"]).filter(([key]) => !SCHEDULER_ONLY.includes(key));
  return { ...root, scheduler: { ...Object.fromEntries(kept), enabled: false } };
}

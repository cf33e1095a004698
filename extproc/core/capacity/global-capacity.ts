// How many requests may run at once in the whole fleet, from what the healthy workers report:
// the sum of their ceilings, with an assumed ceiling for those that report none, and never more than
// the operator's own limit. Workers can lower that limit, not raise it.

/** Slots assumed for a healthy worker that reports no ceiling while others do. */
export const ASSUMED_WORKER_SLOTS = 64;
/** Slots while no worker is healthy and no limit is configured. */
export const FALLBACK_SLOTS = 1024;
/** Slot counts are 16-bit numbers. */
export const SLOTS_MAX = 65_535;

/**
 * @param ceilings reported running-request ceiling of each healthy worker; undefined = not reported
 * @param configuredMax the operator's limit, 1..65535; undefined = none
 * @returns slots, 0..65535
 */
export function globalCapacity(
  ceilings: readonly (number | undefined)[],
  configuredMax: number | undefined,
): number {
  const limit = Math.min(configuredMax ?? SLOTS_MAX, SLOTS_MAX);
  if (ceilings.length === 0) return Math.min(configuredMax ?? FALLBACK_SLOTS, SLOTS_MAX);
  let sum = 0;
  for (const ceiling of ceilings) sum += ceiling ?? ASSUMED_WORKER_SLOTS;
  return Math.min(sum, limit);
}

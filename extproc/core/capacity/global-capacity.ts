// How many requests may run at once in the whole fleet, from what the healthy workers report:
// the sum of their ceilings, with an assumed ceiling for those that report none while others do, and
// never more than the operator's own limit. Workers can lower that limit, not raise it.

/** Slots assumed for a healthy worker that reports no ceiling. */
export const ASSUMED_WORKER_SLOTS = 64;
/** Slots while no worker is healthy and no limit is configured. */
export const FALLBACK_SLOTS = 1024;
/** Slot counts are 16-bit numbers. */
export const SLOTS_MAX = 65_535;

export interface ReportedCeilings {
  readonly healthy: number;
  /** Healthy workers that report a ceiling of running requests. */
  readonly reporting: number;
  /** Sum of the reported ceilings. */
  readonly reported: number;
}

/**
 * @param configuredMax the operator's limit, 1..65535; undefined = none
 * @returns slots, 0..65535
 */
export function globalCapacity(
  { healthy, reporting, reported }: ReportedCeilings,
  configuredMax: number | undefined,
): number {
  if (healthy === 0) return configuredMax ?? FALLBACK_SLOTS;
  const sum = reported + ASSUMED_WORKER_SLOTS * (healthy - reporting);
  return Math.min(sum, configuredMax ?? SLOTS_MAX, SLOTS_MAX);
}

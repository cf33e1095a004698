// Slots kept back for the higher classes. A class wants the larger of its floor and its share of the
// capacity; wishes are granted from the highest class down, until a part of the capacity
// (`reserved_share_max`) is used up. A pure function of settings and capacity, computed anew at every
// change, so that a shrink followed by a recovery restores everything.

import { perClass, RANKS_DOWN, type ClassRank, type PerClass } from "../model/priority.js";

export interface ReservationSettings {
  /** Slots wanted whatever the capacity. */
  readonly floor: number;
  /** Share of the capacity wanted, 0 or more. */
  readonly perSlot: number;
}

/** Slots a class wants at a capacity: min(C, max(floor, ceil(share x C))). */
function desired({ floor, perSlot }: ReservationSettings, capacity: number): number {
  const product = perSlot * capacity;
  const share = Number.isFinite(product) && product > 0 ? Math.ceil(product) : 0;
  return Math.min(capacity, Math.max(floor, share));
}

/**
 * @param capacity slots of the partition, 0..65535
 * @param shareMax part of the capacity that all reservations together may take, 0..1
 * @returns reserved slots per class; they sum to at most floor(shareMax x capacity)
 */
export function classReservations(
  settings: PerClass<ReservationSettings>,
  capacity: number,
  shareMax: number,
): PerClass<number> {
  let left = Math.min(capacity, Math.floor(shareMax * capacity));
  const granted: [number, number, number, number] = [0, 0, 0, 0];
  for (const rank of RANKS_DOWN) {
    granted[rank] = Math.min(desired(settings[rank], capacity), left);
    left -= granted[rank];
  }
  return granted;
}

/** A floor written for the whole fleet, scaled to a partition: ceil(floor x nominal / global). */
export function scaleFloor(floor: number, nominal: number, globalMax: number): number {
  return globalMax <= 0 ? floor : Math.ceil((floor * nominal) / globalMax);
}

/**
 * Scales the soft queue shares of the classes to an exact total: bulk, default and interactive get
 * floor(total x share / sum), system the rest. A sum of 0 stays 0.
 */
export function scaleQueueShares(shares: PerClass<number>, total: number): PerClass<number> {
  const sum = shares[0] + shares[1] + shares[2] + shares[3];
  if (sum === 0) return shares;
  const scaled = (rank: ClassRank): number => Math.floor((total * shares[rank]) / sum);
  const [bulk, normal, interactive] = perClass(scaled);
  return [bulk, normal, interactive, total - bulk - normal - interactive];
}

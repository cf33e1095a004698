// The four priority classes, in the order used everywhere: a higher index is a higher class. Tables
// per class are plain arrays in this order, so that the hot path indexes instead of looking up.

export const PRIORITY_CLASSES = ["bulk", "default", "interactive", "system"] as const;

export type PriorityClass = (typeof PRIORITY_CLASSES)[number];

/** Index of a class, 0 (bulk) to 3 (system). */
export type ClassRank = 0 | 1 | 2 | 3;

export const RANKS: readonly ClassRank[] = [0, 1, 2, 3];
/** System first. */
export const RANKS_DOWN: readonly ClassRank[] = [3, 2, 1, 0];

/** One value per class, bulk first. */
export type PerClass<T> = readonly [T, T, T, T];

export const rankOf = (name: PriorityClass): ClassRank =>
  PRIORITY_CLASSES.indexOf(name) as ClassRank;

export const className = (rank: ClassRank): PriorityClass => PRIORITY_CLASSES[rank];

/** Builds a table per class. */
export function perClass<T>(make: (rank: ClassRank) => T): PerClass<T> {
  return [make(0), make(1), make(2), make(3)];
}

/** The lower of two classes. */
export const lowerOf = (a: ClassRank, b: ClassRank): ClassRank => (a < b ? a : b);

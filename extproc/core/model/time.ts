// Time is an argument everywhere in the core: a method that needs it takes `now`, monotonic
// milliseconds from an arbitrary origin (fractions allowed). Wall-clock time never enters the core.

declare const monotonic: unique symbol;

/** Monotonic milliseconds from an arbitrary origin. */
export type MonotonicMs = number & { readonly [monotonic]: true };

export const monotonicMs = (value: number): MonotonicMs => value as MonotonicMs;

/** The moment `delayMs` (>= 0) after `now`. */
export const after = (now: MonotonicMs, delayMs: number): MonotonicMs =>
  (now + delayMs) as MonotonicMs;

// Rounds up what should be whole but for the error of binary fractions: 29 requests of 7 workers are
// 29 / 7 each, 7 times that is a little more than 29 in floating point, and would otherwise become 30.

const ERROR_MAX = 1e-9;

/** The smallest whole number not below `value`, forgiving an error of one part in a billion. */
export function roundUp(value: number): number {
  return Math.ceil(value - ERROR_MAX * Math.max(1, Math.abs(value)));
}

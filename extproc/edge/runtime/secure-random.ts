// Numbers that nobody can guess, from the runtime's secure source: the tokens of capacity credits and
// the key under which prompts are remembered. Never a substitute for the seeded generator, which must
// give the same numbers for the same seed.

import { randomBytes, randomFillSync } from "node:crypto";

/** Unpredictable bytes. */
export const secureRandom = (bytes: number): Uint8Array => randomBytes(bytes);

/** Four unpredictable unsigned 32-bit words. */
export function secretWords(): readonly [number, number, number, number] {
  const [a = 0, b = 0, c = 0, d = 0] = randomFillSync(new Uint32Array(4));
  return [a, b, c, d];
}

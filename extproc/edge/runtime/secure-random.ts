// Numbers that nobody can guess, from the runtime's secure source: the tokens of capacity credits and
// the key under which prompts are remembered. Never a substitute for the seeded generator, which must
// give the same numbers for the same seed.

import { randomBytes } from "node:crypto";

/** Unpredictable bytes. */
export const secureRandom = (bytes: number): Uint8Array => randomBytes(bytes);

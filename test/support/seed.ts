// The seed of an end-to-end test that draws its moments: E2E_SEED, or a new one for each run, printed
// either way, so that a failure can be tried again with the same draws.

import { Chance } from "../sim/chance.js";

const SEEDS = 2 ** 32;

/** A generator for the test of this name. */
export function seededChance(test: string): Chance {
  const text = process.env["E2E_SEED"];
  const seed = text === undefined ? Date.now() % SEEDS : Number(text);
  if (!Number.isInteger(seed) || seed < 0 || seed >= SEEDS) {
    throw new Error(`E2E_SEED must be a whole number from 0 to 4294967295, got "${String(text)}"`);
  }
  console.log(`      ${test}: E2E_SEED=${String(seed)}`);
  return new Chance(seed);
}

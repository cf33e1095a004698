// The seed of a simulated run: SIM_SEED, or a new one for each run, so that the runs of many days see
// more than one. Whoever asks prints it.

const SEEDS = 2 ** 32;

export function chosenSeed(): number {
  const text = process.env["SIM_SEED"];
  if (text === undefined) return Math.floor(Date.now() / 1_000) % SEEDS;
  const seed = Number(text);
  if (!Number.isInteger(seed) || seed < 0 || seed >= SEEDS) {
    throw new Error(`SIM_SEED must be a whole number from 0 to 4294967295, got "${text}"`);
  }
  return seed;
}

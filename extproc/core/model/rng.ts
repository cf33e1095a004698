// Seeded randomness for choices that must replay from a seed. Not for secrets: credit tokens come
// from an injected secure source.

/** A stream of pseudo-random numbers, fully determined by its seed. */
export interface Rng {
  /** The next unsigned 32-bit integer. */
  uint32(): number;
  /** A uniform integer in [0, bound); `bound` is an integer in 1..2^32. */
  below(bound: number): number;
}

/**
 * The sfc32 generator (Chris Doty-Humphrey's "small fast counter", PractRand), seeded through
 * splitmix32, so that close seeds give unrelated streams.
 */
export function createRng(seed: number): Rng {
  let state = seed >>> 0;
  const mix = (): number => {
    state = (state + 0x9e3779b9) | 0;
    let z = state ^ (state >>> 16);
    z = Math.imul(z, 0x21f0aaad);
    z ^= z >>> 15;
    z = Math.imul(z, 0x735a2d97);
    return (z ^ (z >>> 15)) | 0;
  };
  let a = mix();
  let b = mix();
  let c = mix();
  let counter = 1;
  const uint32 = (): number => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum;
    return sum >>> 0;
  };
  for (let round = 0; round < 12; round += 1) uint32();
  // Rejection sampling keeps every residue equally likely whatever the bound.
  const below = (bound: number): number => {
    const limit = 0x1_0000_0000 - (0x1_0000_0000 % bound);
    let draw = uint32();
    while (draw >= limit) draw = uint32();
    return draw % bound;
  };
  return { uint32, below };
}

// Draws for the simulation, all from one seeded generator.

import { createRng, type Rng } from "../../extproc/core/model/rng.js";

export class Chance {
  readonly #rng: Rng;

  constructor(seed: number) {
    this.#rng = createRng(seed);
  }

  /** Uniform in (0, 1). */
  unit(): number {
    return (this.#rng.uint32() + 0.5) / 2 ** 32;
  }

  /** True with this probability. */
  once(probability: number): boolean {
    return this.unit() < probability;
  }

  /** Uniform whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + this.#rng.below(high - low + 1);
  }

  /** Exponential with this mean: the gaps of a Poisson process. */
  exponential(mean: number): number {
    return -Math.log(this.unit()) * mean;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.#rng.below(values.length)];
    if (value === undefined) throw new Error("nothing to pick from");
    return value;
  }
}

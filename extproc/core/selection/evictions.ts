// Has a worker's engine dropped what its successes say that it holds? An answer tells: a request went to
// an owner of its prompt, and the engine reports that nothing of it came from the cache. One such answer
// proves little, since engines skip their caches for reasons of a single request (options, salts, a
// prompt of few tokens), and whoever may send requests could make Weir forget a worker with it. So a
// worker counts as evicted after several misses in a row, on different prompts of some length; one hit
// begins the count anew. State: the misses of each worker since its last hit.

import type { MonotonicMs } from "../model/time.js";
import { prefixId, type BlockKeys } from "../prefixes/block-keys.js";

/** Misses on different prompts, without a hit in between. */
export const EVICTION_MISSES = 3;
/** A prompt of four of the largest blocks that engines are run with: some of it would be cached. */
export const EVICTION_PROMPT_MIN_TOKENS = 1_024;

/** What an engine reports about one prompt, in tokens. */
export interface CacheReport {
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
}

interface Misses {
  readonly prompts: Set<string>;
  /** Of the holdings that were missed, the latest success. */
  lastSuccessAt: MonotonicMs;
}

export class Evictions {
  readonly #misses = new Map<number, Misses>();
  readonly #blockTokens: number;

  /** @param blockTokens fewer cached tokens than these are none */
  constructor(blockTokens: number) {
    this.#blockTokens = blockTokens;
  }

  /**
   * Takes the report on a prompt that an owner answered. When it completes the proof: the moment whose
   * older successes on this worker say nothing any more.
   *
   * @param lastSuccessAt of the holding for which the worker was chosen
   */
  reported(
    generation: number,
    keys: BlockKeys,
    lastSuccessAt: MonotonicMs,
    { promptTokens = 0, cachedTokens }: CacheReport,
  ): MonotonicMs | undefined {
    if (cachedTokens === undefined) return undefined;
    if (cachedTokens >= this.#blockTokens) {
      this.#misses.delete(generation);
      return undefined;
    }
    if (promptTokens < EVICTION_PROMPT_MIN_TOKENS) return undefined;
    let misses = this.#misses.get(generation);
    if (misses === undefined) {
      misses = { prompts: new Set(), lastSuccessAt };
      this.#misses.set(generation, misses);
    }
    misses.prompts.add(prefixId(keys, keys.count));
    if (lastSuccessAt > misses.lastSuccessAt) misses.lastSuccessAt = lastSuccessAt;
    if (misses.prompts.size < EVICTION_MISSES) return undefined;
    this.#misses.delete(generation);
    return misses.lastSuccessAt;
  }

  /** The worker has left. */
  forget(generation: number): void {
    this.#misses.delete(generation);
  }
}

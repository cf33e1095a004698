// Prefixes without prompts: keys whose elements are numbers, and clocks.

import { testHasher } from "../../support/prefix-hasher.js";
import { modelId } from "../../../extproc/core/model/ids.js";
import { createRng } from "../../../extproc/core/model/rng.js";
import { monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import type { BlockKeys } from "../../../extproc/core/prefixes/block-keys.js";

export const MODEL = modelId("k3");
export const hasher = testHasher();
/** Bytes that a holding of the committed index counts for: 12 words and its bucket. */
export const HOLDING_BYTES = 52;
/** Bytes that a block of the event index counts for: 16 words and its two buckets. */
export const BLOCK_BYTES = 72;

export const at = (seconds: number): MonotonicMs => monotonicMs(seconds * 1_000);

/** Keys of a prompt whose blocks are single numbers. */
export function keysOf(...blocks: readonly number[]): BlockKeys {
  return hasher.tokens(MODEL, blocks, 1, 10_000);
}

/** The numbers `first` to `last`. */
export function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/** Many prompts of one block each, as keys that only differ. */
export class ManyKeys {
  readonly #rng = createRng(7);
  readonly keys: BlockKeys = { words: new Uint32Array(4), count: 1 };

  /** The next prompt's keys, in the same array. */
  next(): BlockKeys {
    for (let word = 0; word < 4; word += 1) this.keys.words[word] = this.#rng.uint32();
    return this.keys;
  }
}

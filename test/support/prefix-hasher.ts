// Keys of prompts as Weir makes them, under a key that is the same in every run.

import { PrefixHasher, type PrefixCipher } from "../../extproc/core/prefixes/block-keys.js";
import { createPrefixCipher, PREFIX_KEY_BYTES } from "../../extproc/edge/runtime/prefix-cipher.js";

export const testCipher = (secret = 1): PrefixCipher =>
  createPrefixCipher(new Uint8Array(PREFIX_KEY_BYTES).fill(secret));

export const testHasher = (secret = 1): PrefixHasher => new PrefixHasher(testCipher(secret));

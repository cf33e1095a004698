// What names a prefix? A prompt is cut into blocks of one size, and the key of block i is a keyed hash
// of the key of block i-1 and of block i's content. So it stands for blocks 0..i: two prompts share it
// exactly when their first i+1 blocks are equal, and the same text at another place never matches.
// The chain starts from a hash of the model, of what is counted (text or tokens) and of the block's
// size: nothing of another model, kind or size ever matches. Only full blocks count; the rest of a
// prompt is dropped, because an engine's cache holds full blocks too. No two different prompts share a
// key but with a probability of about 2^-128 per pair.

import { invariant } from "../model/invariant.js";
import type { ModelId } from "../model/ids.js";
import { Chaskey, type HashKey } from "./chaskey.js";

export type { HashKey } from "./chaskey.js";

/** Words of a key. */
export const KEY_WORDS = 4;

/** Chained 128-bit keys of a prompt's blocks: four 32-bit words per block, from the first block on. */
export interface BlockKeys {
  readonly words: Uint32Array;
  readonly count: number;
}

/** The first word of what is hashed under a label, so that labels of two kinds never meet. */
const TEXT = 1;
const TOKENS = 2;
const ENGINE_HASH = 3;

/** Words that stand before a label's text: kind, number, length. */
const LABEL_WORDS = 3;

export class PrefixHasher {
  readonly #mac: Chaskey;
  readonly #root = new Uint32Array(KEY_WORDS);

  constructor(key: HashKey) {
    this.#mac = new Chaskey(key);
  }

  /** Keys of the full blocks of a text, at most `maxBlocks`; `blockChars` is in UTF-16 units, >= 1. */
  text(model: ModelId, text: string, blockChars: number, maxBlocks: number): BlockKeys {
    const count = blocksIn(text.length, blockChars, maxBlocks);
    const words = new Uint32Array(count * KEY_WORDS);
    if (count > 0) this.#label(TEXT, blockChars, model, this.#root, 0);
    const message = this.#mac.message(KEY_WORDS + Math.ceil(blockChars / 2));
    for (let block = 0; block < count; block += 1) {
      this.#chainFrom(message, words, block);
      const end = packBlock(text, block * blockChars, (block + 1) * blockChars, message, KEY_WORDS);
      this.#mac.mac(end, words, block * KEY_WORDS);
    }
    return { words, count };
  }

  /** The same for tokens, which are unsigned 32-bit integers; `blockSize` is in tokens, >= 1. */
  tokens(
    model: ModelId,
    tokens: ArrayLike<number>,
    blockSize: number,
    maxBlocks: number,
  ): BlockKeys {
    const count = blocksIn(tokens.length, blockSize, maxBlocks);
    const words = new Uint32Array(count * KEY_WORDS);
    if (count > 0) this.tokenRoot(model, blockSize, this.#root, 0);
    const message = this.#mac.message(KEY_WORDS + blockSize);
    for (let block = 0; block < count; block += 1) {
      this.#chainFrom(message, words, block);
      for (let index = 0; index < blockSize; index += 1) {
        message[KEY_WORDS + index] = tokens[block * blockSize + index] ?? 0;
      }
      this.#mac.mac(KEY_WORDS + blockSize, words, block * KEY_WORDS);
    }
    return { words, count };
  }

  /** Where a model's chains of token blocks start: what stands before the first block. */
  tokenRoot(model: ModelId, blockSize: number, out: Uint32Array, at: number): void {
    this.#label(TOKENS, blockSize, model, out, at);
  }

  /**
   * The key of a block of tokens that follows the block, or the root, whose key stands at `from` of
   * `words`; it is written to the next four words.
   */
  extend(words: Uint32Array, from: number, tokens: ArrayLike<number>): void {
    const message = this.#mac.message(KEY_WORDS + tokens.length);
    copyKey(words, from, message);
    for (let index = 0; index < tokens.length; index += 1) {
      message[KEY_WORDS + index] = tokens[index] ?? 0;
    }
    this.#mac.mac(KEY_WORDS + tokens.length, words, from + KEY_WORDS);
  }

  /** A key that stands for an engine's own name of a block. */
  engineHash(hash: string, out: Uint32Array, at: number): void {
    this.#label(ENGINE_HASH, 0, hash, out, at);
  }

  #chainFrom(message: Int32Array, words: Uint32Array, block: number): void {
    if (block === 0) copyKey(this.#root, 0, message);
    else copyKey(words, (block - 1) * KEY_WORDS, message);
  }

  #label(kind: number, number: number, text: string, out: Uint32Array, at: number): void {
    const message = this.#mac.message(LABEL_WORDS + Math.ceil(text.length / 2));
    message[0] = kind;
    message[1] = number;
    message[2] = text.length;
    this.#mac.mac(packText(text, 0, text.length, message, LABEL_WORDS), out, at);
  }
}

/** The key of the first `blocks` blocks (1..count) as a short string, for maps with few entries. */
export function prefixId(keys: BlockKeys, blocks: number): string {
  invariant(blocks >= 1 && blocks <= keys.count, "a prefix has at least one block and is known");
  let id = "";
  for (let at = (blocks - 1) * KEY_WORDS; at < blocks * KEY_WORDS; at += 1) {
    id += (keys.words[at] ?? 0).toString(16).padStart(8, "0");
  }
  return id;
}

function blocksIn(length: number, blockSize: number, maxBlocks: number): number {
  return Math.min(Math.floor(length / blockSize), maxBlocks);
}

function copyKey(words: Uint32Array, from: number, message: Int32Array): void {
  for (let word = 0; word < KEY_WORDS; word += 1) message[word] = words[from + word] ?? 0;
}

/** Blocks shorter than this could be packed alike in both ways. */
const NARROW_MIN_CHARS = 4;

/**
 * Writes a block of text from `at` on; where the next word would stand. Four units go to a word when each
 * is below 256, as in most text, else two. The one way is about half as long as the other, so two
 * different blocks are never written alike.
 */
function packBlock(
  text: string,
  from: number,
  to: number,
  message: Int32Array,
  at: number,
): number {
  if (to - from < NARROW_MIN_CHARS) return packText(text, from, to, message, at);
  let word = at;
  let index = from;
  let seen = 0;
  for (; index + 3 < to && seen <= 0xff; index += 4) {
    const a = text.charCodeAt(index);
    const b = text.charCodeAt(index + 1);
    const c = text.charCodeAt(index + 2);
    const d = text.charCodeAt(index + 3);
    seen |= a | b | c | d;
    message[word] = a | (b << 8) | (c << 16) | (d << 24);
    word += 1;
  }
  let last = 0;
  for (let shift = 0; index < to && seen <= 0xff; index += 1, shift += 8) {
    const unit = text.charCodeAt(index);
    seen |= unit;
    last |= unit << shift;
  }
  if (seen > 0xff) return packText(text, from, to, message, at);
  if ((to - from) % 4 === 0) return word;
  message[word] = last;
  return word + 1;
}

/** Writes UTF-16 units, two to a word, from `at` on; where the next word would stand. */
function packText(text: string, from: number, to: number, message: Int32Array, at: number): number {
  let word = at;
  let index = from;
  for (; index + 1 < to; index += 2) {
    message[word] = text.charCodeAt(index) | (text.charCodeAt(index + 1) << 16);
    word += 1;
  }
  if (index === to) return word;
  message[word] = text.charCodeAt(index);
  return word + 1;
}

// What names a prefix? A prompt is cut into blocks of one size, and the key of block i is a keyed hash
// of the key of block i-1 and of block i's content. So it stands for blocks 0..i: two prompts share it
// exactly when their first i+1 blocks are equal, and the same text at another place never matches.
// The chain starts from a hash of the model, of what is counted (text or tokens) and of the block's
// size: nothing of another model, kind or size ever matches. Only full blocks count; the rest of a
// prompt is dropped, because an engine's cache holds full blocks too. No two different prompts share a
// key but with a probability of about 2^-128 per pair.
//
// A text is hashed in one byte a unit up to the first block that has a unit of 256 or more, and from there
// on in two bytes. The second part is a chain of its own that begins with the key before it, so that no
// block of one kind can pass for blocks of the other.

import { invariant } from "../model/invariant.js";
import type { ModelId } from "../model/ids.js";
import {
  CbcMac,
  CIPHER_BYTES,
  CIPHER_WORDS,
  readWords,
  type PrefixCipher,
  type UnitEncoding,
} from "./cbc-mac.js";

export type { PrefixCipher } from "./cbc-mac.js";

/** Words of a key. */
export const KEY_WORDS = CIPHER_WORDS;

/** Chained 128-bit keys of a prompt's blocks: four 32-bit words per block, from the first block on. */
export interface BlockKeys {
  readonly words: Uint32Array;
  readonly count: number;
}

/** The first word of what is hashed under a label, so that labels of two kinds never meet. */
const TEXT = 1;
const TOKENS = 2;
const ENGINE_HASH = 3;
const WIDE_TEXT = 4;

/** Words that stand before a label's text: kind, number, length, nothing. */
const LABEL_WORDS = 4;

/** Finds at once that a text of one byte a unit, as the runtime keeps it, has none. */
const WIDE_UNIT = /[\u0100-\uffff]/;

/** Blocks of a text that follow each other. */
interface TextBlocks {
  readonly blockChars: number;
  /** Blocks before them. */
  readonly first: number;
  readonly count: number;
}

export class PrefixHasher {
  readonly #mac: CbcMac;

  constructor(cipher: PrefixCipher) {
    this.#mac = new CbcMac(cipher);
  }

  /** Keys of the full blocks of a text, at most `maxBlocks`; `blockChars` is in UTF-16 units, >= 1. */
  text(model: ModelId, text: string, blockChars: number, maxBlocks: number): BlockKeys {
    const count = blocksIn(text.length, blockChars, maxBlocks);
    const words = new Uint32Array(count * KEY_WORDS);
    if (count === 0) return { words, count };
    const start = this.#label(TEXT, blockChars, model);
    const firstWide = text.slice(0, count * blockChars).search(WIDE_UNIT);
    const narrow = firstWide < 0 ? count : Math.floor(firstWide / blockChars);
    const end = this.#writeBlocks(text, { blockChars, first: 0, count: narrow }, "latin1", start);
    const ciphertext = this.#mac.encrypt(end);
    readKeys(ciphertext, start, words, 0, narrow);
    if (narrow < count) {
      this.#wide(text, { blockChars, first: narrow, count: count - narrow }, words);
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
    if (count === 0) return { words, count };
    const start = this.#label(TOKENS, blockSize, model);
    const stride = wholeBlocks(4 * blockSize);
    this.#mac.reserve(start + count * stride);
    for (let block = 0; block < count; block += 1) {
      this.#writeTokens(tokens, block * blockSize, blockSize, start + block * stride);
    }
    readKeys(this.#mac.encrypt(start + count * stride), start, words, 0, count);
    return { words, count };
  }

  /** Where a model's chains of token blocks start: what stands before the first block. */
  tokenRoot(model: ModelId, blockSize: number, out: Uint32Array, at: number): void {
    this.#hashLabel(TOKENS, blockSize, model, out, at);
  }

  /**
   * The key of a block of tokens that follows the block, or the root, whose key stands at `from` of
   * `words`; it is written to the next four words.
   */
  extend(words: Uint32Array, from: number, tokens: ArrayLike<number>): void {
    const bytes = wholeBlocks(4 * tokens.length);
    this.#mac.reserve(bytes);
    this.#writeTokens(tokens, 0, tokens.length, 0);
    this.#mac.encrypt(bytes, words, from);
    words.set(this.#mac.value, from + KEY_WORDS);
  }

  /** A key that stands for an engine's own name of a block. */
  engineHash(hash: string, out: Uint32Array, at: number): void {
    this.#hashLabel(ENGINE_HASH, 0, hash, out, at);
  }

  /** The keys of blocks in two bytes a unit, behind what was encrypted last. */
  #wide(text: string, blocks: TextBlocks, words: Uint32Array): void {
    const mac = this.#mac;
    const label = this.#label(WIDE_TEXT, blocks.blockChars, "");
    const start = label + CIPHER_BYTES;
    mac.reserve(start);
    mac.words.set(mac.value, label / 4);
    const end = this.#writeBlocks(text, blocks, "utf16le", start);
    readKeys(mac.encrypt(end), start, words, blocks.first, blocks.count);
  }

  /** Writes blocks of a text from the byte `start` on; where they end. */
  #writeBlocks(
    text: string,
    { blockChars, first, count }: TextBlocks,
    encoding: UnitEncoding,
    start: number,
  ): number {
    const mac = this.#mac;
    const bytes = encoding === "latin1" ? blockChars : 2 * blockChars;
    const stride = wholeBlocks(bytes);
    const end = start + count * stride;
    mac.reserve(end);
    const from = first * blockChars;
    if (stride === bytes) {
      mac.write(text.slice(from, from + count * blockChars), encoding, start);
      return end;
    }
    mac.clear(start, end);
    for (let block = 0; block < count; block += 1) {
      const at = from + block * blockChars;
      mac.write(text.slice(at, at + blockChars), encoding, start + block * stride);
    }
    return end;
  }

  /** Writes tokens from the byte `at` on, and zeros to the end of the cipher's block. */
  #writeTokens(tokens: ArrayLike<number>, from: number, count: number, at: number): void {
    const { words } = this.#mac;
    const word = at / 4;
    const end = wholeBlocks(4 * count) / 4;
    for (let index = 0; index < count; index += 1) words[word + index] = tokens[from + index] ?? 0;
    for (let index = count; index < end; index += 1) words[word + index] = 0;
  }

  #hashLabel(kind: number, number: number, text: string, out: Uint32Array, at: number): void {
    this.#mac.encrypt(this.#label(kind, number, text));
    out.set(this.#mac.value, at);
  }

  /** Writes a label to the beginning of the message; how many bytes it takes. */
  #label(kind: number, number: number, text: string): number {
    const start = 4 * LABEL_WORDS;
    const end = start + wholeBlocks(2 * text.length);
    this.#mac.reserve(end);
    const { words } = this.#mac;
    words[0] = kind;
    words[1] = number;
    words[2] = text.length;
    words[3] = 0;
    this.#mac.clear(start, end);
    this.#mac.write(text, "utf16le", start);
    return end;
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

/** Bytes of the cipher's blocks that so many bytes need. */
function wholeBlocks(bytes: number): number {
  return Math.ceil(bytes / CIPHER_BYTES) * CIPHER_BYTES;
}

/** Copies the keys of `count` blocks, which fill the ciphertext from `start` on, behind `first` keys. */
function readKeys(
  ciphertext: Uint8Array,
  start: number,
  words: Uint32Array,
  first: number,
  count: number,
): void {
  const stride = (ciphertext.length - start) / count;
  for (let block = 0; block < count; block += 1) {
    const end = start + (block + 1) * stride;
    readWords(ciphertext, end - CIPHER_BYTES, words, (first + block) * KEY_WORDS);
  }
}

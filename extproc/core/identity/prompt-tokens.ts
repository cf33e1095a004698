// Reads prompts that come as token ids: an array of numbers, or an array of such arrays, of which the
// first is the prompt. The ids are parsed from the bytes, because building a value of some hundred
// thousand numbers costs more than all the rest of a request. A token is a whole number below 2^32;
// an array with anything else is no prompt. Positions are byte offsets.

import { CLOSE_BRACKET, COMMA, OPEN_BRACKET, skipBlanks, type Span } from "./json-skip.js";

/**
 * Tokens that are read and checked one by one, which takes a few milliseconds; a usual context is no
 * longer. The number of those behind is estimated by the bytes of the ones before.
 */
export const TOKENS_READ_MAX = 131_072;
/**
 * Bytes that are read for each of them, on average: six digits, a comma and a blank. An array with more
 * blanks than that is read less far.
 */
export const TOKEN_READ_BYTES = 8;
/** Tokens are estimated like text where not one was read. */
const BYTES_PER_TOKEN = 4;
/** Of the largest token. */
const TOKEN_DIGITS_MAX = 10;
const TOKEN_MAX = 4_294_967_295;
const DIGIT_ZERO = 0x30;
const DIGIT_NINE = 0x39;

export interface TokenPrompt {
  /** The first prompt's tokens, cut at the limit. */
  readonly tokens: Uint32Array;
  /** Tokens of all prompts. */
  readonly count: number;
  /** Undefined when not all were looked at. */
  readonly prompts: number | undefined;
}

/**
 * Reads an array of token ids, or of arrays of them; undefined when it holds anything else.
 *
 * @param looks tokens and arrays that are looked at
 */
export function readTokens(
  bytes: Uint8Array,
  array: Span,
  maxTokens: number,
  looks = TOKENS_READ_MAX,
): TokenPrompt | undefined {
  const reader = new TokenReader(bytes, array, maxTokens, looks);
  const inner = reader.blanks(array.start + 1);
  const read = bytes[inner] === OPEN_BRACKET ? reader.readArrays() : reader.readArray();
  if (!read) return undefined;
  const { at, count } = reader;
  const prompts = reader.prompts;
  if (!reader.usedUp()) return { tokens: reader.tokens(), count, prompts };
  // What is shorter than a usual token is brackets and blanks.
  const bytesPerToken = count === 0 ? BYTES_PER_TOKEN : (at - array.start) / count;
  const behind = Math.floor(Math.max(0, array.end - 1 - at) / bytesPerToken);
  return { tokens: reader.tokens(), count: count + behind, prompts };
}

class TokenReader {
  readonly #bytes: Uint8Array;
  readonly #kept: number[] = [];
  readonly #limit: number;
  #looks: number;
  #maxTokens: number;
  at: number;
  count = 0;
  #arrays: number | undefined;

  constructor(bytes: Uint8Array, array: Span, maxTokens: number, looks: number) {
    this.#bytes = bytes;
    this.at = array.start;
    this.#limit = array.start + looks * TOKEN_READ_BYTES;
    this.#looks = looks;
    this.#maxTokens = maxTokens;
  }

  /** Whether the reader has looked at as much as it may. */
  usedUp(): boolean {
    return this.#looks <= 0;
  }

  tokens(): Uint32Array {
    return Uint32Array.from(this.#kept);
  }

  /** The next offset that is no blank. */
  blanks(start: number): number {
    const at = skipBlanks(this.#bytes, start, this.#limit);
    if (at >= this.#limit) this.#looks = 0;
    return at;
  }

  /** Prompts; one for an array of tokens, however long it is. */
  get prompts(): number | undefined {
    const isKnown = !this.usedUp() || (this.#arrays === undefined && this.count > 0);
    return isKnown ? (this.#arrays ?? 1) : undefined;
  }

  /** Reads arrays until their array ends or the looks are used up; false when it is no prompt. */
  readArrays(): boolean {
    const bytes = this.#bytes;
    this.#arrays = 0;
    do {
      this.at = this.blanks(this.at + 1);
      if (this.usedUp()) return true;
      if (bytes[this.at] !== OPEN_BRACKET || !this.readArray()) return false;
      this.#arrays += 1;
      this.#maxTokens = this.#kept.length;
      this.#looks -= 1;
      this.at = this.blanks(this.at);
    } while (bytes[this.at] === COMMA && !this.usedUp());
    return bytes[this.at] === CLOSE_BRACKET || this.usedUp();
  }

  /** Reads the array that starts here until it ends or the looks are used up. */
  readArray(): boolean {
    const bytes = this.#bytes;
    let at = this.blanks(this.at + 1);
    let more = bytes[at] !== CLOSE_BRACKET;
    while (more && !this.usedUp()) {
      const first = at;
      let token = 0;
      for (let byte = bytes[at]; isDigit(byte); byte = bytes[at]) {
        token = token * 10 + byte - DIGIT_ZERO;
        at += 1;
        if (at - first > TOKEN_DIGITS_MAX) return false;
      }
      if (at === first || token > TOKEN_MAX) return false;
      if (this.#kept.length < this.#maxTokens) this.#kept.push(token);
      this.count += 1;
      this.#looks -= 1;
      at = this.blanks(at);
      if (this.usedUp()) break;
      more = bytes[at] === COMMA;
      if (more) at = this.blanks(at + 1);
      else if (bytes[at] !== CLOSE_BRACKET) return false;
    }
    this.at = bytes[at] === CLOSE_BRACKET ? at + 1 : at;
    return true;
  }
}

function isDigit(byte: number | undefined): byte is number {
  return byte !== undefined && byte >= DIGIT_ZERO && byte <= DIGIT_NINE;
}

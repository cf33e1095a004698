// The inside of JSON strings and numbers, byte by byte: what may follow what, and where it ends. All of
// it is what JSON.parse accepts after a strict decoding of UTF-8, no more and no less. Tables, because
// these loops see every byte of every body; plain text is passed four bytes at a time. Nothing here
// keeps state. Offsets are bytes; a negative result says that the bytes are not allowed.

import { BACKSLASH, QUOTE } from "./json-skip.js";

/** What a byte inside a string is. */
export const PLAIN = 0;
export const CONTROL = 1;
export const END = 2;
export const ESCAPE = 3;
/** The first byte of a character beyond ASCII. */
export const BEYOND = 4;
/** By byte value. */
export const IN_STRING = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte === QUOTE) return END;
  if (byte === BACKSLASH) return ESCAPE;
  if (byte < 0x20) return CONTROL;
  return byte < 0x80 ? PLAIN : BEYOND;
});

/** The bytes behind a backslash that make an escape of two bytes. */
const isShortEscape = byteSet('"\\/bfnrt');
const isHexDigit = byteSet("0123456789abcdefABCDEF");
const LETTER_U = 0x75;
const LONG_ESCAPE_BYTES = 6;

/** Bytes that are looked at one by one before four are taken at a time. */
const NEAR_BYTES = 32;

/** Four bytes at a time: the words of a text that stand aligned in memory. */
export interface TextWords {
  readonly words: Int32Array;
  /** Offset of the first word in the text. */
  readonly from: number;
}

export function textWords(bytes: Uint8Array): TextWords {
  const from = (4 - (bytes.byteOffset & 3)) & 3;
  const count = Math.max(0, bytes.length - from) >> 2;
  if (count === 0) return { words: new Int32Array(0), from: 0 };
  return { words: new Int32Array(bytes.buffer, bytes.byteOffset + from, count), from };
}

/** The next offset up to `limit` that may be no plain byte, a few dozen bytes on. */
export function nearPlainEnd(bytes: Uint8Array, start: number, limit: number): number {
  const near = Math.min(limit, start + NEAR_BYTES);
  let at = start;
  while (at < near && IN_STRING[bytes[at] ?? 0] === PLAIN) at += 1;
  return at;
}

/**
 * An offset from `start` on, up to `limit`, before which all bytes are plain when those near before
 * `start` are: where a word begins that holds another byte, or the last whole word ends.
 * In each byte that is plain, none of the four differences sets the highest bit, and no byte borrows
 * from the next; the first byte that is not plain sets it.
 */
export function farPlainEnd({ words, from }: TextWords, start: number, limit: number): number {
  let word = Math.max(0, (start - from) >> 2);
  const end = Math.min(words.length, (limit - from) >> 2);
  for (; word < end; word += 1) {
    const four = words[word] ?? 0;
    const control = four - 0x20202020;
    const quote = (four ^ 0x22222222) - 0x01010101;
    const backslash = (four ^ 0x5c5c5c5c) - 0x01010101;
    if (((four | control | quote | backslash) & 0x80808080) !== 0) break;
  }
  return Math.max(start, from + word * 4);
}

/** The offset behind the escape at `start`. */
export function escapeEnd(bytes: Uint8Array, start: number): number {
  const letter = bytes[start + 1] ?? 0;
  if (isShortEscape[letter]) return start + 2;
  if (letter !== LETTER_U) return -1;
  for (let at = start + 2; at < start + LONG_ESCAPE_BYTES; at += 1) {
    if (!isHexDigit[bytes[at] ?? 0]) return -1;
  }
  return start + LONG_ESCAPE_BYTES;
}

/**
 * The offset behind the character beyond ASCII at `start`, as UTF-8 is defined: no longer spelling
 * than needed, no surrogates, nothing above U+10FFFF.
 */
export function characterEnd(bytes: Uint8Array, start: number): number {
  const first = bytes[start] ?? 0;
  const second = bytes[start + 1] ?? 0;
  if (first < 0xc2 || first > 0xf4) return -1;
  if (first < 0xe0) return isContinuation(second) ? start + 2 : -1;
  const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most || !isContinuation(bytes[start + 2])) return -1;
  if (first < 0xf0) return start + 3;
  return isContinuation(bytes[start + 3]) ? start + 4 : -1;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Parts of a number; 0 is none. A number may end in those that hold a digit. */
const MINUS = 1;
const ZERO = 2;
const WHOLE = 3;
const POINT = 4;
const FRACTION = 5;
const LETTER_E = 6;
const SIGN = 7;
const EXPONENT = 8;
export const NUMBER_START = 0;
const DIGITS = "0123456789";
const NUMBER_RULES: readonly (readonly [part: number, bytes: string, next: number])[] = [
  [NUMBER_START, "-", MINUS],
  [NUMBER_START, "0", ZERO],
  [NUMBER_START, "123456789", WHOLE],
  [MINUS, "0", ZERO],
  [MINUS, "123456789", WHOLE],
  [ZERO, ".", POINT],
  [ZERO, "eE", LETTER_E],
  [WHOLE, DIGITS, WHOLE],
  [WHOLE, ".", POINT],
  [WHOLE, "eE", LETTER_E],
  [POINT, DIGITS, FRACTION],
  [FRACTION, DIGITS, FRACTION],
  [FRACTION, "eE", LETTER_E],
  [LETTER_E, "+-", SIGN],
  [LETTER_E, DIGITS, EXPONENT],
  [SIGN, DIGITS, EXPONENT],
  [EXPONENT, DIGITS, EXPONENT],
];
/** By part and byte: the part that the byte belongs to, 0 when it ends the number. */
export const NEXT_PART = numberTable();
const LAST_PARTS: readonly number[] = [ZERO, WHOLE, FRACTION, EXPONENT];

/** Whether a number may end in this part. */
export function mayEnd(part: number): boolean {
  return LAST_PARTS.includes(part);
}

function numberTable(): Uint8Array {
  const table = new Uint8Array((EXPONENT + 1) * 256);
  for (const [part, bytes, next] of NUMBER_RULES) {
    for (const byte of bytes) table[part * 256 + byte.charCodeAt(0)] = next;
  }
  return table;
}

function byteSet(characters: string): Uint8Array {
  const set = new Uint8Array(256);
  for (const character of characters) set[character.charCodeAt(0)] = 1;
  return set;
}

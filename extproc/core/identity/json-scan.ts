// Finds some keys in one object of a text that is known to be valid JSON, for the prompt's reader, which
// looks at the objects one by one and only as far as it needs them: long strings are jumped over, and an
// object that takes too long to pass is left alone. Also the tables of names that keys are looked up in.
// Of equal keys the last counts, as in JSON.parse. Positions are byte offsets.

import {
  BACKSLASH,
  CLOSE_BRACE,
  COLON,
  COMMA,
  MALFORMED,
  QUOTE,
  skipBlanks,
  skipString,
  skipValue,
  type LongStringEnds,
  type Span,
} from "./json-skip.js";

/**
 * Keys of one object that are looked at. Messages and parts have a few; with millions of them their
 * object would keep the process from its other requests.
 */
export const OBJECT_KEYS_MAX = 1_024;

const NO_NAMES: readonly string[] = [];
const LETTER_U = 0x75;
/** A backslash, the letter u, four digits. */
const ESCAPE_BYTES = 6;

export interface LocatedObject {
  readonly values: ReadonlyMap<string, Span>;
  /** Keys of the object, wanted or not. */
  readonly keys: number;
  readonly end: number;
}

/**
 * Where the values of the wanted keys of the object at `start` stand. Undefined for an object that has
 * too many keys, takes more than `lookBytes` to pass over, or has no end.
 */
export function locateKeys(
  bytes: Uint8Array,
  start: number,
  names: NameTable,
  ends: LongStringEnds,
  lookBytes = Infinity,
): LocatedObject | undefined {
  const values = new Map<string, Span>();
  // What is jumped over is not looked at: the limit moves on by as much.
  const limit = start + lookBytes - ends.jumpedBytes;
  let at = skipBlanks(bytes, start + 1, limit + ends.jumpedBytes);
  let more = bytes[at] !== CLOSE_BRACE;
  let keys = 0;
  while (more) {
    keys += 1;
    const keyEnd = bytes[at] === QUOTE ? skipString(bytes, at, ends) : MALFORMED;
    if (keyEnd < 0 || keys > OBJECT_KEYS_MAX) return undefined;
    const colon = skipBlanks(bytes, keyEnd, limit + ends.jumpedBytes);
    if (bytes[colon] !== COLON) return undefined;
    const valueStart = skipBlanks(bytes, colon + 1, limit + ends.jumpedBytes);
    const valueEnd = skipValue(bytes, valueStart, ends, limit + ends.jumpedBytes - valueStart);
    if (valueEnd < 0) return undefined;
    const name = findKey(bytes, at + 1, keyEnd - 1, names);
    if (name !== undefined) values.set(name, { start: valueStart, end: valueEnd });
    at = skipBlanks(bytes, valueEnd, limit + ends.jumpedBytes);
    more = bytes[at] === COMMA;
    if (more) at = skipBlanks(bytes, at + 1, limit + ends.jumpedBytes);
    else if (bytes[at] !== CLOSE_BRACE) return undefined;
  }
  return { values, keys, end: at + 1 };
}

/** Wanted names by their length, so that most other keys cost one look. */
export type NameTable = readonly (readonly string[])[];

/** The table of some names: lower-case letters, digits, underscores. */
export function namesByLength(wanted: readonly string[]): NameTable {
  const names: string[][] = [];
  for (const name of wanted) (names[name.length] ??= []).push(name);
  return Array.from(names, (bucket: string[] | undefined) => bucket ?? []);
}

/** The wanted name that the key, or other string, between two quotes spells. */
export function findKey(
  bytes: Uint8Array,
  start: number,
  end: number,
  names: NameTable,
): string | undefined {
  const length = end - start;
  if (length < names.length) {
    for (const name of names[length] ?? NO_NAMES) if (keyIs(bytes, start, end, name)) return name;
  }
  // An escape takes six bytes, so a key with one is longer than its name, at most six times.
  if (length < ESCAPE_BYTES || length > (names.length - 1) * ESCAPE_BYTES) return undefined;
  if (!hasBackslash(bytes, start, end)) return undefined;
  const first = bytes[start] === BACKSLASH ? hexCode(bytes, start + 2) : bytes[start];
  for (const bucket of names) {
    for (const name of bucket) {
      if (name.charCodeAt(0) === first && keyIs(bytes, start, end, name)) return name;
    }
  }
  return undefined;
}

function hasBackslash(bytes: Uint8Array, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (bytes[at] === BACKSLASH) return true;
  return false;
}

/**
 * Whether the key between two quotes spells `name` (lower-case letters, digits, underscores),
 * possibly in \u escapes. The short escapes never stand for such a character.
 */
function keyIs(bytes: Uint8Array, start: number, end: number, name: string): boolean {
  let at = start;
  for (let index = 0; index < name.length; index += 1) {
    if (at >= end) return false;
    let code = bytes[at];
    if (code === BACKSLASH) {
      if (bytes[at + 1] !== LETTER_U) return false;
      code = hexCode(bytes, at + 2);
      at += ESCAPE_BYTES;
    } else {
      at += 1;
    }
    if (code !== name.charCodeAt(index)) return false;
  }
  return at === end;
}

/** Four hexadecimal digits as a number; NaN, which equals nothing, when one is not a digit. */
function hexCode(bytes: Uint8Array, start: number): number {
  let code = 0;
  for (let at = start; at < start + 4; at += 1) {
    const byte = bytes[at] ?? 0;
    const lower = byte | 0x20;
    if (byte >= 0x30 && byte <= 0x39) code = code * 16 + (byte - 0x30);
    else if (lower >= 0x61 && lower <= 0x66) code = code * 16 + (lower - 0x57);
    else return Number.NaN;
  }
  return code;
}

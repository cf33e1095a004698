// Reads a few known keys out of a JSON object without building it, so that a body of many megabytes
// costs no memory and little time: long strings (images, prompts) are passed over at the speed of a
// search, and an object with more keys than any request has is refused. The result is a pruned object: wanted
// keys only, last one wins as in JSON.parse. Checked are the braces, keys, colons and commas of each
// object that is read, wanted scalars in full, and the nesting depth of everything. Not checked is
// the inside of what is skipped: escapes, control characters and UTF-8 of skipped strings, spelling
// of skipped numbers and words, commas and kinds of brackets inside skipped containers. The engine
// gets the same bytes and refuses those itself. Positions are byte offsets.

import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  isScalarByte,
  MALFORMED,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipBlanks,
  skipString,
  skipValue,
  startOfValue,
  LongStringEnds,
  TOO_DEEP,
  type Span,
} from "./json-skip.js";

/**
 * How a wanted key is read: `scalar` = string, number, boolean, null (containers as below);
 * `presence` = null, or a stand-in: [] for an empty array, [null] for a filled one, {} for an object,
 * true for any other value; a nested table = a pruned object, undefined for a value of another type.
 */
export interface Wanted {
  readonly [key: string]: "scalar" | "presence" | Wanted;
}

export type JsonRecord = Readonly<Record<string, unknown>>;

export type JsonFault =
  | { readonly kind: "malformed"; readonly at: number | undefined }
  | { readonly kind: "too_deep" }
  | { readonly kind: "too_many_keys" }
  | { readonly kind: "not_utf8" }
  | { readonly kind: "not_an_object"; readonly found: string };

export type ScanResult =
  | { readonly ok: true; readonly value: JsonRecord }
  | { readonly ok: false; readonly fault: JsonFault };

/**
 * Keys of one object that are looked at. Requests have a few dozen; millions of them would keep the
 * process from its other requests for a second.
 */
export const OBJECT_KEYS_MAX = 1_024;

const LETTER_U = 0x75;
/** A backslash, the letter u, four digits. */
const ESCAPE_BYTES = 6;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Where values of a root object stand: found once, for everyone who reads the same text. */
export interface LocatedRoot {
  readonly ok: true;
  readonly values: ReadonlyMap<string, Span>;
  readonly ends: LongStringEnds;
}
type LocatedRootResult = LocatedRoot | { readonly ok: false; readonly fault: JsonFault };

/** Finds the values of some keys in one JSON text whose root must be an object. */
export function locateRoot(bytes: Uint8Array, names: NameTable): LocatedRootResult {
  const start = startOfValue(bytes);
  if (bytes[start] !== OPEN_BRACE) {
    return fail({ kind: "not_an_object", found: describeValue(bytes[start]) });
  }
  const ends = new LongStringEnds();
  const root = locateKeys(bytes, start, names, ends);
  if (!root.ok) return root;
  const end = skipBlanks(bytes, root.end);
  if (end !== bytes.length) return fail({ kind: "malformed", at: end });
  return { ok: true, values: root.values, ends };
}

/** Scans one JSON text whose root must be an object. */
export function scanObject(bytes: Uint8Array, wanted: Wanted): ScanResult {
  const root = locateRoot(bytes, namesByLength(Object.keys(wanted)));
  return root.ok ? readLocated(bytes, root.values, wanted) : root;
}

/** Decodes and parses a whole JSON text; the value may be of any type. */
export function parseJson(
  bytes: Uint8Array,
):
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly fault: JsonFault } {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return fail({ kind: "not_utf8" });
  }
  try {
    return { ok: true, value: JSON.parse(text) as unknown };
  } catch {
    return fail({ kind: "malformed", at: undefined });
  }
}

/**
 * Reads the wanted ones of some located values. Values are only marked on the way and read at the
 * end, so that a key repeated a million times is decoded once. Nested tables make the recursion, so
 * it is as deep as the table of wanted keys.
 */
export function readLocated(
  bytes: Uint8Array,
  values: ReadonlyMap<string, Span>,
  wanted: Wanted,
): ScanResult {
  const value: Record<string, unknown> = {};
  for (const [name, { start }] of values) {
    const how = Object.hasOwn(wanted, name) ? wanted[name] : undefined;
    if (how === undefined) continue;
    const read = readValue(bytes, start, how);
    if (!read.ok) return read;
    value[name] = read.value;
  }
  return { ok: true, value };
}

function readObject(bytes: Uint8Array, start: number, wanted: Wanted): ScanResult {
  const located = locateKeys(bytes, start, namesByLength(Object.keys(wanted)));
  return located.ok ? readLocated(bytes, located.values, wanted) : located;
}

type LocateResult =
  | {
      readonly ok: true;
      readonly values: ReadonlyMap<string, Span>;
      /** Keys of the object, wanted or not. */
      readonly keys: number;
      readonly end: number;
    }
  | { readonly ok: false; readonly fault: JsonFault };

/**
 * Where the values of the wanted keys of the object at `start` stand; of equal keys the last counts.
 * An object that takes more than `lookBytes` to pass over reads as malformed: who sets a limit gives
 * up at either.
 */
export function locateKeys(
  bytes: Uint8Array,
  start: number,
  names: NameTable,
  ends?: LongStringEnds,
  lookBytes = Infinity,
): LocateResult {
  const values = new Map<string, Span>();
  const jumpedBefore = ends?.jumpedBytes ?? 0;
  /** The bytes that may still be looked at, from `at` on. */
  const left = (at: number): number =>
    lookBytes - (at - start) + (ends?.jumpedBytes ?? 0) - jumpedBefore;
  const blanks = (at: number): number => skipBlanks(bytes, at, at + left(at));
  let at = blanks(start + 1);
  let more = bytes[at] !== CLOSE_BRACE;
  let keys = 0;
  while (more) {
    keys += 1;
    if (keys > OBJECT_KEYS_MAX) return fail({ kind: "too_many_keys" });
    const keyEnd = bytes[at] === QUOTE ? skipString(bytes, at, ends) : MALFORMED;
    if (keyEnd < 0) return fail({ kind: "malformed", at });
    const colon = blanks(keyEnd);
    if (bytes[colon] !== COLON) return fail({ kind: "malformed", at: colon });
    const valueStart = blanks(colon + 1);
    const valueEnd = skipValue(bytes, valueStart, ends, left(valueStart));
    if (valueEnd === TOO_DEEP) return fail({ kind: "too_deep" });
    if (valueEnd < 0) return fail({ kind: "malformed", at: valueStart });
    const name = findKey(bytes, at + 1, keyEnd - 1, names);
    if (name !== undefined) values.set(name, { start: valueStart, end: valueEnd });
    at = blanks(valueEnd);
    if (bytes[at] === COMMA) at = blanks(at + 1);
    else if (bytes[at] === CLOSE_BRACE) more = false;
    else return fail({ kind: "malformed", at });
  }
  return { ok: true, values, keys, end: at + 1 };
}

function readValue(
  bytes: Uint8Array,
  start: number,
  how: "scalar" | "presence" | Wanted,
):
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly fault: JsonFault } {
  const first = bytes[start];
  if (typeof how === "object") {
    return first === OPEN_BRACE ? readObject(bytes, start, how) : { ok: true, value: undefined };
  }
  if (first === OPEN_BRACE) return { ok: true, value: {} };
  if (first === OPEN_BRACKET) {
    const empty = bytes[skipBlanks(bytes, start + 1)] === CLOSE_BRACKET;
    return { ok: true, value: empty ? [] : [null] };
  }
  if (first === QUOTE && how === "presence") return { ok: true, value: true };
  const scalar = parseJson(bytes.subarray(start, skipValue(bytes, start)));
  if (scalar.ok) {
    return how === "presence" && scalar.value !== null ? { ok: true, value: true } : scalar;
  }
  return fail(scalar.fault.kind === "malformed" ? { kind: "malformed", at: start } : scalar.fault);
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
  const sameLength = length < names.length ? names[length] : undefined;
  const plain = sameLength?.find((name) => keyIs(bytes, start, end, name));
  if (plain !== undefined) return plain;
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

function describeValue(first: number | undefined): string {
  if (first === undefined) return "nothing";
  if (first === OPEN_BRACKET) return "an array";
  if (first === QUOTE) return "a string";
  return isScalarByte(first) ? "a number, true, false or null" : "something that is not JSON";
}

function fail(fault: JsonFault): { readonly ok: false; readonly fault: JsonFault } {
  return { ok: false, fault };
}

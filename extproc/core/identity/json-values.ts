// Turns located values into a pruned object: wanted keys only, with the values that JSON.parse would give
// them, as far as anybody looks. So a value is never longer than what is looked at: of a container it
// is only told whether it is empty, a string that is longer than any that means something is a stand-in
// for a long string, and a number of tens of thousands of digits reads as absent. The text is known to
// be valid JSON.

import {
  wantedKeys,
  type LocatedValue,
  type LocatedValues,
  type WantedKeys,
} from "./json-located.js";
import { BACKSLASH, OPEN_BRACE, OPEN_BRACKET, QUOTE } from "./json-skip.js";

/**
 * How a wanted key is read: `scalar` = string, number, boolean, null (containers as below);
 * `presence` = null, or a stand-in: [] for an empty array, [null] for a filled one, {} for an object,
 * true for any other value; a nested table = a pruned object, undefined for a value of another type.
 */
export interface Wanted {
  readonly [key: string]: "scalar" | "presence" | Wanted;
}

export type JsonRecord = Readonly<Record<string, unknown>>;

/** Longest string that is read, in UTF-16 units; a longer one reads as one of one unit more. */
export const STRING_MAX_CHARS = 512;
/** An escape spells one unit in six bytes, and nothing takes more. */
const STRING_MAX_BYTES = 2 + STRING_MAX_CHARS * 6;
const LONG_STRING = "x".repeat(STRING_MAX_CHARS + 1);
/** Longest number that is read, in characters: more digits than that are no request for anything. */
export const NUMBER_MAX_CHARS = 65_536;
/** Digits that are added up exactly, whatever they are. */
const SHORT_NUMBER_DIGITS = 15;
/** ASCII strings up to here are put together without a decoder. */
const SHORT_STRING_BYTES = 64;
const LETTER_T = 0x74;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** What a reader has to locate for a table. `more` = further keys of the root. */
export function keysOf(wanted: Wanted, more: readonly string[] = []): WantedKeys {
  const inner: Record<string, WantedKeys> = {};
  for (const [name, how] of Object.entries(wanted)) {
    if (typeof how === "object") inner[name] = keysOf(how);
  }
  return wantedKeys([...new Set([...Object.keys(wanted), ...more])], inner);
}

/** Reads the wanted ones of some located values. As deep as the table. */
export function readValues(bytes: Uint8Array, values: LocatedValues, wanted: Wanted): JsonRecord {
  const record: Record<string, unknown> = {};
  for (const [name, value] of values) {
    const how = Object.hasOwn(wanted, name) ? wanted[name] : undefined;
    if (how !== undefined) record[name] = readValue(bytes, value, how);
  }
  return record;
}

function readValue(
  bytes: Uint8Array,
  { start, end, inner, empty }: LocatedValue,
  how: "scalar" | "presence" | Wanted,
): unknown {
  const first = bytes[start];
  if (typeof how === "object") return inner && readValues(bytes, inner, how);
  if (first === OPEN_BRACE) return {};
  if (first === OPEN_BRACKET) return empty ? [] : [null];
  if (first === LETTER_N) return null;
  if (how === "presence" || first === LETTER_T) return true;
  if (first === LETTER_F) return false;
  return first === QUOTE ? readString(bytes, start, end) : readNumber(bytes, start, end);
}

function readString(bytes: Uint8Array, start: number, end: number): string {
  if (end - start > STRING_MAX_BYTES) return LONG_STRING;
  return shortString(bytes, start + 1, end - 1) ?? (parse(bytes, start, end) as string);
}

/** A short string of plain ASCII; undefined for any other. */
function shortString(bytes: Uint8Array, start: number, end: number): string | undefined {
  if (end - start > SHORT_STRING_BYTES) return undefined;
  let text = "";
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x80 || byte === BACKSLASH) return undefined;
    text += String.fromCharCode(byte);
  }
  return text;
}

function readNumber(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end - start > NUMBER_MAX_CHARS) return undefined;
  if (end - start > SHORT_NUMBER_DIGITS) return parse(bytes, start, end) as number;
  let number = 0;
  for (let at = start; at < end; at += 1) {
    const digit = (bytes[at] ?? 0) - 0x30;
    if (digit < 0 || digit > 9) return parse(bytes, start, end) as number;
    number = number * 10 + digit;
  }
  return number;
}

function parse(bytes: Uint8Array, start: number, end: number): unknown {
  return JSON.parse(utf8.decode(bytes.subarray(start, end)));
}

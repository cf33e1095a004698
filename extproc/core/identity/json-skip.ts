// Finds where a JSON value ends without reading it, in a text that was read before (json-reader.ts) and is
// known to be valid. Strings are passed by native search, containers by counting brackets; only what
// decides the end is looked at. Offsets are bytes; a negative result says that there is no end, or none
// within the looks that were allowed.

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;
/** Bytes of a string that are read one by one before a native search takes over. */
const NEAR_BYTES = 64;
/** Strings of at least so many bytes are worth remembering; a body of 64 MiB holds 16,384 of them. */
const LONG_STRING_MIN_BYTES = 4_096;
/** What passing one costs, as bytes that are looked at: memory that is far away is slow. */
const JUMP_LOOK_BYTES = 256;

/** The bytes of a value, `end` being the offset behind it. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** Where long strings of one text end: kept by a reader that comes past the same string again. */
export class LongStringEnds {
  readonly #ends = new Map<number, number>();
  #jumpedBytes = 0;

  /** Bytes that were not looked at, because the end of their string was known; less a little for each. */
  get jumpedBytes(): number {
    return this.#jumpedBytes;
  }

  get(start: number): number | undefined {
    const end = this.#ends.get(start);
    if (end !== undefined) this.#jumpedBytes += end - start - JUMP_LOOK_BYTES;
    return end;
  }

  set(start: number, end: number): void {
    if (end - start >= LONG_STRING_MIN_BYTES) this.#ends.set(start, end);
  }

  /** The long strings that begin between two offsets, quotes included. */
  *between(from: number, to: number): IterableIterator<Span> {
    for (const [start, end] of this.#ends) if (start >= from && start < to) yield { start, end };
  }
}

/** By byte value: whether skipping a container has to look at it. A table is the fastest test. */
const isQuoteOrBracket = Uint8Array.from({ length: 256 }, (_, byte) =>
  [QUOTE, OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET].includes(byte) ? 1 : 0,
);

/** The text ends, or holds something else, where a value should be. */
export const MALFORMED = -1;
/** The bytes that may be looked at end before the value does. */
export const OUT_OF_LOOKS = -2;

/**
 * The offset behind the value at `start`, inside a root object; negative when there is none. At most
 * `lookBytes` are looked at, besides long strings, whose end is known or soon found.
 */
export function skipValue(
  bytes: Uint8Array,
  start: number,
  ends?: LongStringEnds,
  lookBytes = Infinity,
): number {
  const first = bytes[start];
  if (first === QUOTE) return skipString(bytes, start, ends);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) {
    return skipContainer(bytes, start, ends, lookBytes);
  }
  const limit = start + lookBytes;
  let at = start;
  while (isScalarByte(bytes[at]) && at < limit) at += 1;
  if (at >= limit) return OUT_OF_LOOKS;
  return at === start ? MALFORMED : at;
}

/**
 * The offset behind the string at `start`. Short strings are read byte by byte, long ones by a
 * native search for the next quote; a quote behind an odd run of backslashes is escaped. The two
 * alternate, so text full of escaped quotes does not cost a search for each of them.
 */
export function skipString(bytes: Uint8Array, start: number, ends?: LongStringEnds): number {
  const near = Math.min(bytes.length, start + 1 + NEAR_BYTES);
  let at = start + 1;
  while (at < near) {
    const byte = bytes[at];
    if (byte === QUOTE) return at + 1;
    at += byte === BACKSLASH ? 2 : 1;
  }
  const known = ends?.get(start);
  if (known !== undefined) return known;
  const end = skipLongString(bytes, at);
  ends?.set(start, end);
  return end;
}

/** The offset behind the string whose first bytes, up to `from`, hold no end. */
function skipLongString(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length) {
    const quote = bytes.indexOf(QUOTE, at);
    if (quote === -1) return MALFORMED;
    let run = quote;
    while (run > at && bytes[run - 1] === BACKSLASH) run -= 1;
    if ((quote - run) % 2 === 0) return quote + 1;
    at = quote + 1;
    const near = Math.min(bytes.length, at + NEAR_BYTES);
    while (at < near) {
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      at += byte === BACKSLASH ? 2 : 1;
    }
  }
  return MALFORMED;
}

/** The offset behind the container at `start`. */
function skipContainer(
  bytes: Uint8Array,
  start: number,
  ends?: LongStringEnds,
  lookBytes = Infinity,
): number {
  let limit = Math.min(bytes.length, start + lookBytes);
  let depth = 1;
  let at = start + 1;
  while (at < limit) {
    const byte = bytes[at] ?? 0;
    if (!isQuoteOrBracket[byte]) {
      at += 1;
      continue;
    }
    if (byte === QUOTE) {
      const end = skipString(bytes, at, ends);
      if (end < 0) return MALFORMED;
      const jumped = end - at - JUMP_LOOK_BYTES;
      if (end - at >= LONG_STRING_MIN_BYTES) limit = Math.min(bytes.length, limit + jumped);
      at = end;
      continue;
    }
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
    at += 1;
  }
  return limit < bytes.length ? OUT_OF_LOOKS : MALFORMED;
}

/** The offset of the first byte at or behind `start` that is no blank of JSON, or `limit`. */
export function skipBlanks(bytes: Uint8Array, start: number, limit = Infinity): number {
  let at = start;
  for (;;) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    if (at >= limit) return at;
    at += 1;
  }
}

/** Letters, digits, plus, minus, dot: what numbers, true, false and null are made of. */
export function isScalarByte(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const isDigit = byte >= 0x30 && byte <= 0x39;
  const isLetter = (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7a;
  return isDigit || isLetter || byte === 0x2b || byte === 0x2d || byte === 0x2e;
}

// Gathers the beginning of a canonical prompt text, and counts the bytes of all its text. The text
// is UTF-16, cut at `maxChars`; once it is full, nothing is decoded any more. Strings of JSON are
// decoded in pieces, so that of a text of 20 MB only the beginning is ever built, and the pieces
// are as long for every limit, so that a shorter cut is always the beginning of a longer one.
//
// Framing is made of C1 control characters, which no text holds in practice and which keep a text of
// Western letters at one byte a character. Where content holds one of them all the same, it is written
// as an escape: so content can never pass for framing, and no two contents are written alike.

import { BACKSLASH } from "./json-skip.js";

/** Begins a message; its role follows. */
export const MESSAGE = "\u0081";
/** Ends a name (a role, a field, a kind of part); what it names follows. */
export const VALUE = "\u0082";
/** Begins a further field of a message; its name follows. */
export const FIELD = "\u0083";
/** Stands between two parts of a content. */
export const PART = "\u0084";
/** Begins a part that is more than text; its kind follows. */
export const OPEN = "\u0085";
/** Ends what `OPEN` began. */
export const CLOSE = "\u0086";
/** Begins the stand-in for a long string of a media part: its length in bytes, and a hash. */
export const REFERENCE = "\u0087";

const ESCAPE = "\u0080";
/** Escape and framing; an escaped one is the escape and the character 16 places up. */
const RESERVED = /[\u0080-\u0087]/g;
const ESCAPED_OFFSET = 0x10;
/** What every reserved character begins with in UTF-8; most text has no such byte. */
const RESERVED_FIRST_BYTE = 0xc2;
const QUOTED_RESERVED = /["\\\u0080-\u0087]/g;
/** Bytes decoded at once; more would be decoded in vain for a text that ends within. */
const PIECE_BYTES = 8_192;
/** A backslash, the letter u, four digits. */
const LONG_ESCAPE_BYTES = 6;
const LETTER_U = 0x75;

// A byte order mark inside a text is a character like any other.
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

export class PromptWriter {
  readonly #maxChars: number;
  #text = "";
  #textBytes = 0;

  constructor(maxChars: number) {
    this.#maxChars = maxChars;
  }

  get full(): boolean {
    return this.#text.length >= this.#maxChars;
  }

  /** What was gathered, cut at the limit. */
  get text(): string {
    return this.#text.slice(0, this.#maxChars);
  }

  /** Bytes counted as text so far, as the body spells them. */
  get textBytes(): number {
    return this.#textBytes;
  }

  count(bytes: number): void {
    this.#textBytes += bytes;
  }

  /** Framing, or other text without reserved characters. */
  mark(framing: string): void {
    if (!this.full) this.#text += framing;
  }

  /**
   * The inside of a JSON string, without its quotes.
   * `quoted` keeps it a JSON string: quotes and backslashes stay escaped, and only they.
   */
  string(bytes: Uint8Array, start: number, end: number, quoted = false): void {
    let at = start;
    while (at < end && !this.full) {
      const pieceEnd = at + PIECE_BYTES < end ? pieceEndAt(bytes, at, at + PIECE_BYTES) : end;
      this.#text += decodeString(bytes.subarray(at, pieceEnd), quoted);
      at = pieceEnd;
    }
  }

  /** JSON as it stands. */
  json(bytes: Uint8Array, start: number, end: number): void {
    if (start === end || this.full) return;
    this.#text += withoutReserved(bytes.subarray(start, end));
  }
}

/** The inside of a JSON string as text, reserved characters as escapes. */
function decodeString(piece: Uint8Array, quoted: boolean): string {
  if (!piece.includes(BACKSLASH)) return withoutReserved(piece);
  const text = JSON.parse(`"${utf8.decode(piece)}"`) as string;
  return text.replace(quoted ? QUOTED_RESERVED : RESERVED, escapeReserved);
}

/** Bytes without a backslash as text, reserved characters as escapes. */
function withoutReserved(piece: Uint8Array): string {
  const text = utf8.decode(piece);
  return piece.includes(RESERVED_FIRST_BYTE) ? text.replace(RESERVED, escapeReserved) : text;
}

/** The last place up to `wanted` that is inside neither a UTF-8 character nor an escape. */
function pieceEndAt(bytes: Uint8Array, start: number, wanted: number): number {
  let end = wanted;
  while (end > start && isContinuation(bytes[end])) end -= 1;
  const oldest = Math.max(start, end - LONG_ESCAPE_BYTES + 1);
  for (let at = end - 1; at >= oldest; at -= 1) {
    if (bytes[at] !== BACKSLASH) continue;
    let run = at;
    while (run > start && bytes[run - 1] === BACKSLASH) run -= 1;
    const opens = (at - run) % 2 === 0;
    const length = bytes[at + 1] === LETTER_U ? LONG_ESCAPE_BYTES : 2;
    return opens && at + length > end ? at : end;
  }
  return end;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

function escapeReserved(character: string): string {
  if (character === '"' || character === "\\") return `\\${character}`;
  return ESCAPE + String.fromCharCode(character.charCodeAt(0) + ESCAPED_OFFSET);
}

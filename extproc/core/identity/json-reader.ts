// Reads one JSON text to its end without building it: checks every byte, as JSON.parse would after a
// strict decoding of UTF-8, and notes on the way where the values of some keys stand. A body of many
// megabytes costs no memory so, and takes as long as it takes to look at it; so the reader can stop
// anywhere and go on later, and whoever drives it lets others have their turn in between. One way for
// every size: small bodies are read in one step. State: the place in the text, the kinds of the open
// containers, and the values of the wanted objects among them. Of equal keys the last counts, as in
// JSON.parse. Positions are byte offsets.

import type {
  JsonFault,
  LocatedRootResult,
  LocatedValue,
  LocatedValues,
  WantedKeys,
} from "./json-located.js";
import { findKey } from "./json-scan.js";
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  isScalarByte,
  LongStringEnds,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipBlanks,
} from "./json-skip.js";
import {
  BEYOND,
  characterEnd,
  END,
  ESCAPE,
  escapeEnd,
  farPlainEnd,
  IN_STRING,
  mayEnd,
  nearPlainEnd,
  NEXT_PART,
  NUMBER_START,
  PLAIN,
  textWords,
  type TextWords,
} from "./json-text.js";

/**
 * Deepest accepted nesting; the root object is 1. Requests nest about ten deep, while common engine
 * parsers give up with a server error near 1,000, which would look like a broken worker.
 */
export const NESTING_MAX_DEPTH = 512;

/** What may come next. `string` and `number` are those that have begun. */
type Expected =
  | "root"
  | "first_key"
  | "key"
  | "colon"
  | "first"
  | "value"
  | "after"
  | "string"
  | "number"
  | "end";

/** An object whose values are wanted. */
interface Frame {
  readonly wanted: WantedKeys;
  readonly values: Map<string, LocatedValue>;
  /** Open containers, it among them. */
  readonly depth: number;
  readonly outer: Frame | undefined;
  /** The wanted key whose value is on its way. */
  name: string | undefined;
  valueStart: number;
}

const OBJECT = 1;
const ARRAY = 0;
const WORDS: ReadonlyMap<number, string> = new Map([
  [0x74, "true"],
  [0x66, "false"],
  [0x6e, "null"],
]);

export class JsonReader {
  readonly bytes: Uint8Array;
  readonly #wanted: WantedKeys;
  readonly #ends = new LongStringEnds();
  /** Kinds of the open containers. */
  readonly #open: number[] = [];
  #words: TextWords | undefined;
  #frame: Frame | undefined;
  #root: LocatedValues | undefined;
  #expected: Expected = "root";
  #at: number;
  /** Where the string or number that has begun starts. */
  #start = 0;
  #isKey = false;
  #part = NUMBER_START;
  #fault: JsonFault | undefined;

  constructor(bytes: Uint8Array, wanted: WantedKeys) {
    this.bytes = bytes;
    this.#wanted = wanted;
    const marked = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    this.#at = marked ? 3 : 0;
  }

  /** Reads about so many bytes on; true when there is nothing more to read. */
  step(bytes: number): boolean {
    const { length } = this.bytes;
    const limit = Math.min(length, this.#at + bytes);
    while (this.#at < limit && this.#fault === undefined) this.#next(limit);
    return this.#at >= length || this.#fault !== undefined;
  }

  /** Reads what is left. */
  finish(): LocatedRootResult {
    this.step(Infinity);
    const values = this.#root;
    if (this.#fault === undefined && values !== undefined) {
      return { ok: true, values, ends: this.#ends };
    }
    return { ok: false, fault: this.#fault ?? this.#brokenOff() };
  }

  #brokenOff(): JsonFault {
    if (this.#expected === "root") return { kind: "not_an_object", found: "nothing" };
    return { kind: "malformed", at: this.bytes.length };
  }

  #next(limit: number): void {
    if (this.#expected === "string") {
      this.#string(limit);
      return;
    }
    if (this.#expected === "number") {
      this.#number(limit);
      return;
    }
    const at = this.#at;
    const byte = this.bytes[at] ?? 0;
    if (byte <= 0x20) {
      this.#at = skipBlanks(this.bytes, at, limit);
      if (this.#at === at) this.#malformed(at);
      return;
    }
    switch (this.#expected) {
      case "after":
        this.#after(byte);
        return;
      case "value":
        this.#value(byte);
        return;
      case "first":
        if (byte === CLOSE_BRACKET) this.#close(ARRAY, true);
        else this.#value(byte);
        return;
      case "first_key":
        if (byte === CLOSE_BRACE) this.#close(OBJECT, true);
        else this.#key(byte);
        return;
      case "key":
        this.#key(byte);
        return;
      case "colon":
        if (byte === COLON) this.#move("value");
        else this.#malformed(at);
        return;
      case "root":
        this.#openRoot(byte);
        return;
      case "end":
        this.#malformed(at);
    }
  }

  #openRoot(byte: number): void {
    if (byte === OPEN_BRACE) {
      this.#enter(this.#wanted);
      this.#push(OBJECT, "first_key");
    } else {
      this.#fault = { kind: "not_an_object", found: describeValue(byte) };
    }
  }

  #key(byte: number): void {
    if (byte === QUOTE) this.#beginString(true);
    else this.#malformed(this.#at);
  }

  #value(byte: number): void {
    const frame = this.#frame;
    const isWanted = frame?.name !== undefined && frame.depth === this.#open.length;
    if (isWanted) frame.valueStart = this.#at;
    if (byte === QUOTE) {
      this.#beginString(false);
    } else if (byte === OPEN_BRACE) {
      const inner = isWanted ? frame.wanted.inner.get(frame.name ?? "") : undefined;
      if (inner !== undefined) this.#enter(inner);
      this.#push(OBJECT, "first_key");
    } else if (byte === OPEN_BRACKET) {
      this.#push(ARRAY, "first");
    } else if (NEXT_PART[byte] !== 0) {
      this.#start = this.#at;
      this.#part = NUMBER_START;
      this.#expected = "number";
    } else {
      this.#word(WORDS.get(byte) ?? "");
    }
  }

  #word(word: string): void {
    const start = this.#at;
    for (let index = 0; index < word.length; index += 1) {
      if (this.bytes[start + index] !== word.charCodeAt(index)) {
        this.#malformed(start + index);
        return;
      }
    }
    if (word === "") this.#malformed(start);
    else this.#ended(start + word.length);
  }

  #number(limit: number): void {
    const { bytes } = this;
    let at = this.#at;
    let part = this.#part;
    while (at < limit) {
      const next = NEXT_PART[part * 256 + (bytes[at] ?? 0)] ?? 0;
      if (next === 0) break;
      part = next;
      at += 1;
    }
    this.#at = at;
    this.#part = part;
    if (at === limit) return;
    if (mayEnd(part)) this.#ended(at);
    else this.#malformed(at);
  }

  #string(limit: number): void {
    const { bytes } = this;
    let at = this.#at;
    while (at < limit) {
      const kind = IN_STRING[bytes[at] ?? 0];
      if (kind === PLAIN) {
        at = this.#plainEnd(at + 1, limit);
        continue;
      }
      if (kind === END) {
        this.#endString(at + 1);
        return;
      }
      const end =
        kind === ESCAPE ? escapeEnd(bytes, at) : kind === BEYOND ? characterEnd(bytes, at) : -1;
      if (end < 0) {
        this.#fault = { kind: kind === BEYOND ? "not_utf8" : "malformed", at };
        return;
      }
      at = end;
    }
    this.#at = at;
  }

  #plainEnd(start: number, limit: number): number {
    const near = nearPlainEnd(this.bytes, start, limit);
    if (near === limit || IN_STRING[this.bytes[near] ?? 0] !== PLAIN) return near;
    this.#words ??= textWords(this.bytes);
    return farPlainEnd(this.#words, near, limit);
  }

  #endString(end: number): void {
    const start = this.#start;
    if (!this.#isKey) {
      this.#ends.set(start, end);
      this.#ended(end);
      return;
    }
    this.#at = end;
    this.#expected = "colon";
    const frame = this.#frame;
    if (frame?.depth !== this.#open.length) return;
    frame.name = findKey(this.bytes, start + 1, end - 1, frame.wanted.names);
  }

  #after(byte: number): void {
    const kind = this.#open[this.#open.length - 1];
    if (byte === COMMA) this.#move(kind === OBJECT ? "key" : "value");
    else if (byte === (kind === OBJECT ? CLOSE_BRACE : CLOSE_BRACKET)) this.#close(kind ?? ARRAY);
    else this.#malformed(this.#at);
  }

  #close(kind: number, empty = false): void {
    const frame = this.#frame;
    const isWanted = kind === OBJECT && frame?.depth === this.#open.length;
    this.#open.pop();
    if (isWanted) {
      this.#frame = frame.outer;
      if (frame.outer === undefined) this.#root = frame.values;
    }
    this.#ended(this.#at + 1, isWanted ? frame.values : undefined, empty);
  }

  /** A value ends before `end`. */
  #ended(end: number, inner?: LocatedValues, empty = false): void {
    const frame = this.#frame;
    if (frame?.name !== undefined && frame.depth === this.#open.length) {
      frame.values.set(frame.name, { start: frame.valueStart, end, inner, empty });
    }
    this.#at = end;
    this.#expected = this.#open.length === 0 ? "end" : "after";
  }

  #beginString(isKey: boolean): void {
    this.#start = this.#at;
    this.#isKey = isKey;
    this.#move("string");
  }

  #enter(wanted: WantedKeys): void {
    const depth = this.#open.length + 1;
    const outer = this.#frame;
    this.#frame = { wanted, values: new Map(), depth, outer, name: undefined, valueStart: 0 };
  }

  #push(kind: number, expected: Expected): void {
    this.#open.push(kind);
    if (this.#open.length > NESTING_MAX_DEPTH) this.#fault = { kind: "too_deep" };
    this.#move(expected);
  }

  #move(expected: Expected): void {
    this.#at += 1;
    this.#expected = expected;
  }

  #malformed(at: number): void {
    this.#fault = { kind: "malformed", at };
  }
}

function describeValue(first: number): string {
  if (first === OPEN_BRACKET) return "an array";
  if (first === QUOTE) return "a string";
  return isScalarByte(first) ? "a number, true, false or null" : "something that is not JSON";
}

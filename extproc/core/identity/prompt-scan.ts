// Steps through the parts of a body that make up its prompt, under one budget of work. A body may
// hold a million messages, parts or keys, or megabytes of blanks; each costs a look, and looks are what
// would stall the answers of other clients. So every element, every key and every 256 bytes that are
// looked at take one step, and when the steps are used up, or the body turns out to be damaged, the
// scan stands still: every walk then ends at once, and what lies behind `stoppedAt` is only measured.
// No walk looks further than its steps reach, whatever it is in the middle of. Where long strings end
// is known from finding the top-level values, so they take no steps. Positions are byte offsets.

import { findKey, locateKeys, type NameTable } from "./json-scan.js";
import {
  CLOSE_BRACKET,
  COMMA,
  QUOTE,
  skipBlanks,
  skipValue,
  type LongStringEnds,
  type Span,
} from "./json-skip.js";

/**
 * Steps of one body. A message of a few hundred bytes takes about five, so this is enough for
 * eight hundred messages. All steps together cost about a millisecond, and less than five whatever the body
 * is made of.
 */
export const PROMPT_STEPS_MAX = 4_096;
/** Bytes that take one step when they have to be passed over. */
const STEP_BYTES = 256;
/** Plain bytes that are passed at once. */
const PASS_BYTES = 4_096;
const NO_VALUES: ReadonlyMap<string, Span> = new Map();
/** By byte value: a quote or a blank of JSON. */
const isQuoteOrBlank = Uint8Array.from({ length: 256 }, (_, byte) =>
  [QUOTE, 0x20, 0x0a, 0x0d, 0x09].includes(byte) ? 1 : 0,
);

interface ObjectValues {
  readonly values: ReadonlyMap<string, Span>;
  readonly end: number;
}

export class PromptScan {
  readonly bytes: Uint8Array;
  /** Where the long strings of the body end. */
  readonly ends: LongStringEnds;
  /** What is left of the budget, in bytes that may be looked at. */
  #lookBytes: number;
  #stoppedAt: number | undefined;

  constructor(bytes: Uint8Array, ends: LongStringEnds, steps: number) {
    this.bytes = bytes;
    this.ends = ends;
    this.#lookBytes = steps * STEP_BYTES;
  }

  /** Where the scan gave up; undefined while it goes on. */
  get stoppedAt(): number | undefined {
    return this.#stoppedAt;
  }

  /** Gives up: the body cannot be read, or not be read further, from here. */
  stop(at: number): void {
    this.#stoppedAt ??= at;
    this.#lookBytes = 0;
  }

  /** The value that starts here. */
  valueAt(start: number): Span {
    const jumped = this.ends.jumpedBytes;
    const end = skipValue(this.bytes, start, this.ends, this.#lookBytes);
    if (end < 0) {
      this.stop(start);
      return { start, end: start };
    }
    this.#take(end - start - this.ends.jumpedBytes + jumped, start);
    return { start, end };
  }

  /** The values of the wanted keys of an object, and where it ends. */
  object(start: number, names: NameTable): ObjectValues {
    const jumped = this.ends.jumpedBytes;
    const located = locateKeys(this.bytes, start, names, this.ends, this.#lookBytes);
    if (located === undefined) {
      this.stop(start);
      return { values: NO_VALUES, end: start };
    }
    const passedBytes = located.end - start - this.ends.jumpedBytes + jumped;
    this.#take(located.keys * STEP_BYTES + passedBytes, start);
    return located;
  }

  /** The first offset at or behind `start` that is no blank, as far as the budget reaches. */
  blanks(start: number): number {
    const end = skipBlanks(this.bytes, start, start + this.#lookBytes + 1);
    if (end > start) this.#take(end - start, start);
    return end;
  }

  /** The offset of the next quote or blank before `end`, or one on the way there. */
  pass(start: number, end: number): number {
    const limit = Math.min(end, start + PASS_BYTES);
    let at = start;
    while (at < limit && !isQuoteOrBlank[this.bytes[at] ?? 0]) at += 1;
    this.#take(at - start, start);
    return at;
  }

  /** Calls `visit` with the start of each element of an array; it returns where the element ends. */
  each(array: Span, visit: (start: number, index: number) => number): void {
    let at = this.blanks(array.start + 1);
    if (this.bytes[at] === CLOSE_BRACKET) return;
    for (let index = 0; this.#take(STEP_BYTES, at); index += 1) {
      const end = this.blanks(visit(at, index));
      if (this.#stoppedAt !== undefined) return;
      if (this.bytes[end] !== COMMA) {
        if (this.bytes[end] !== CLOSE_BRACKET) this.stop(end);
        return;
      }
      at = this.blanks(end + 1);
    }
  }

  /** The known word that a string value spells; undefined for any other value. */
  word(value: Span | undefined, known: NameTable): string | undefined {
    if (value === undefined || !this.startsWith(value, QUOTE)) return undefined;
    return findKey(this.bytes, value.start + 1, value.end - 1, known);
  }

  startsWith(value: Span, byte: number): boolean {
    return this.bytes[value.start] === byte;
  }

  #take(lookBytes: number, at: number): boolean {
    if (lookBytes > this.#lookBytes) this.stop(at);
    else this.#lookBytes -= lookBytes;
    return this.#stoppedAt === undefined;
  }
}

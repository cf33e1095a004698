// Steps through the parts of a body that make up its prompt, under one budget of work. A body may
// hold a million messages, parts or keys; each costs a look, and looks are what would stall the
// answers of other clients. So every element, every key and every 256 bytes between them take one
// step, and when the steps are used up, or the body turns out to be damaged, the scan stands still:
// every walk then ends at once, and what lies behind `stoppedAt` is only measured. Where long strings
// end is remembered, because the walks come past the same string on several levels. Positions are
// byte offsets.

import { findKey, locateKeys, type NameTable, type Span } from "./json-scan.js";
import { CLOSE_BRACKET, COMMA, LongStringEnds, QUOTE, skipBlanks, skipValue } from "./json-skip.js";

/**
 * Steps of one body. A message of a few hundred bytes takes about five, so this is enough for six
 * thousand messages, and all steps together cost a few dozen milliseconds at worst.
 */
export const PROMPT_STEPS_MAX = 32_768;
/** Bytes that take one step when they have to be passed over; long strings are jumped and take none. */
const STEP_BYTES = 256;
const NO_VALUES: ReadonlyMap<string, Span> = new Map();

interface ObjectValues {
  readonly values: ReadonlyMap<string, Span>;
  readonly end: number;
}

export class PromptScan {
  readonly bytes: Uint8Array;
  readonly #ends = new LongStringEnds();
  #steps = 0;
  #stoppedAt: number | undefined;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  /** Where the scan gave up; undefined while it goes on. */
  get stoppedAt(): number | undefined {
    return this.#stoppedAt;
  }

  /** Gives up: the body cannot be read, or not be read further, from here. */
  stop(at: number): void {
    this.#stoppedAt ??= at;
  }

  /** The values of the whole body. Takes no steps: every body has to be passed over once. */
  root(start: number, names: NameTable): ObjectValues {
    const located = locateKeys(this.bytes, start, names, this.#ends);
    if (located.ok) return located;
    this.stop(start);
    return { values: NO_VALUES, end: start };
  }

  /** The value that starts here. */
  valueAt(start: number): Span {
    const jumped = this.#ends.jumpedBytes;
    const end = skipValue(this.bytes, start, this.#ends);
    if (end < 0) {
      this.stop(start);
      return { start, end: start };
    }
    this.#take((end - start - this.#ends.jumpedBytes + jumped) / STEP_BYTES, start);
    return { start, end };
  }

  /** The values of the wanted keys of an object, and where it ends. */
  object(start: number, names: NameTable): ObjectValues {
    const jumped = this.#ends.jumpedBytes;
    const located = locateKeys(this.bytes, start, names, this.#ends);
    if (!located.ok) {
      this.stop(start);
      return { values: NO_VALUES, end: start };
    }
    const passedBytes = located.end - start - this.#ends.jumpedBytes + jumped;
    this.#take(located.keys + passedBytes / STEP_BYTES, start);
    return located;
  }

  /** Calls `visit` with the start of each element of an array; it returns where the element ends. */
  each(array: Span, visit: (start: number, index: number) => number): void {
    let at = skipBlanks(this.bytes, array.start + 1);
    if (this.bytes[at] === CLOSE_BRACKET) return;
    for (let index = 0; this.#take(1, at); index += 1) {
      const end = skipBlanks(this.bytes, visit(at, index));
      if (this.#stoppedAt !== undefined) return;
      if (this.bytes[end] !== COMMA) {
        if (this.bytes[end] !== CLOSE_BRACKET) this.stop(end);
        return;
      }
      at = skipBlanks(this.bytes, end + 1);
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

  #take(steps: number, at: number): boolean {
    this.#steps += steps;
    if (this.#steps > PROMPT_STEPS_MAX) this.stop(at);
    return this.#stoppedAt === undefined;
  }
}

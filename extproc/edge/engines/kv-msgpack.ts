// Where do the values of a MessagePack message stand, and what do they say? Goes through the bytes from
// value to value, so that nothing is made but what the reader asks for, and no room is made for elements
// that a header claims and that are not there. Single values are decoded by the library, 64-bit integers
// as bigint; arrays and maps are left to the reader, or passed over. Long ways are generators, which stop
// every few thousand values: whoever drives them can do something else meanwhile. State: the place.

import { Decoder } from "@msgpack/msgpack";

/** A batch of events has six levels at most: batch, events, event, extra keys, block, key. */
export const MESSAGE_NESTING_MAX_LEVELS = 16;
/** Values between two stops of a long way: some 50 us. */
const VALUES_PER_STEP = 2_048;

/** An array, a map, or what the library cannot decode. */
export const NO_SINGLE_VALUE: unique symbol = Symbol("no single value");

/** The bytes are no message, or not the one that their beginning told of. */
export class MessageFault extends Error {}

/** A list of numbers as unsigned 32-bit integers. */
export interface Integers {
  readonly values: Uint32Array;
  /** Where the first value stands that is none; the number of values when all are. */
  readonly firstOther: number;
  /** The first element is an array. */
  readonly isNested: boolean;
}

export type Way<Result> = Generator<undefined, Result, void>;

export class MessageCursor {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #decoder = new Decoder({ useBigInt64: true });
  #at = 0;
  /** Of the value at hand: its bytes up to the next one, and the values that it holds itself. */
  #length = 0;
  #children = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Enters an array; how many elements follow, undefined when another value stands here. */
  array(): number | undefined {
    const head = this.#bytes[this.#at] ?? 0;
    if (!((head >= 0x90 && head < 0xa0) || head === 0xdc || head === 0xdd)) return undefined;
    this.#measure();
    this.#at += this.#length;
    return this.#children;
  }

  /** Enters a map; how many pairs of key and value follow, undefined when another value stands here. */
  map(): number | undefined {
    const head = this.#bytes[this.#at] ?? 0;
    if (!((head >= 0x80 && head < 0x90) || head === 0xde || head === 0xdf)) return undefined;
    this.#measure();
    this.#at += this.#length;
    return this.#children / 2;
  }

  /** The next value, when it is a single one; arrays and maps are passed over. */
  *single(): Way<unknown> {
    const from = this.#at;
    this.#measure();
    if (this.#children > 0 || this.#isContainer()) {
      yield* this.skip();
      return NO_SINGLE_VALUE;
    }
    this.#at += this.#length;
    try {
      return this.#decoder.decode(this.#bytes.subarray(from, this.#at));
    } catch {
      return NO_SINGLE_VALUE;
    }
  }

  /** A list of integers; undefined when another value stands here, which is passed over. */
  *integers(): Way<Integers | undefined> {
    const head = this.#bytes[this.#at] ?? 0;
    const count = this.array();
    if (count === undefined) {
      yield* this.skip();
      return undefined;
    }
    if (count > this.#bytes.length - this.#at) throw this.#endsEarly();
    const isNested = head !== 0x90 && this.#isContainer();
    const values = new Uint32Array(count);
    let firstOther = count;
    for (let index = 0; index < count; index += 1) {
      const value = this.#integer() ?? integerOf(yield* this.single());
      if (value === undefined) firstOther = Math.min(firstOther, index);
      else values[index] = value;
      if (index % VALUES_PER_STEP === VALUES_PER_STEP - 1) yield;
    }
    return { values, firstOther, isNested };
  }

  /** Passes over the next value and all that it holds. */
  *skip(): Way<void> {
    /** Values that each open container still misses, outermost first. */
    const missing = [1];
    for (let count = 1; missing.length > 0; count += 1) {
      const last = missing.length - 1;
      const left = missing[last] ?? 0;
      if (left === 0) {
        missing.pop();
        continue;
      }
      missing[last] = left - 1;
      this.#measure();
      this.#at += this.#length;
      if (count % VALUES_PER_STEP === 0) yield;
      if (this.#children === 0) continue;
      if (missing.length > MESSAGE_NESTING_MAX_LEVELS) {
        const levels = String(MESSAGE_NESTING_MAX_LEVELS);
        throw new MessageFault(`it is nested deeper than ${levels} levels`);
      }
      missing.push(this.#children);
    }
  }

  /** Faults unless the message ends here. */
  end(): void {
    if (this.#at === this.#bytes.length) return;
    throw new MessageFault(`it goes on after its end at byte ${String(this.#at)}`);
  }

  #isContainer(): boolean {
    const head = this.#bytes[this.#at] ?? 0;
    return (head >= 0x80 && head < 0xa0) || (head >= 0xdc && head <= 0xdf);
  }

  /** An unsigned integer in one of its short forms; undefined when another value stands here. */
  #integer(): number | undefined {
    const at = this.#at;
    const head = this.#bytes[at];
    if (head === undefined) return undefined;
    if (head < 0x80) {
      this.#at = at + 1;
      return head;
    }
    if (head < 0xcc || head > 0xce) return undefined;
    const size = head === 0xcc ? 1 : head === 0xcd ? 2 : 4;
    if (at + 1 + size > this.#bytes.length) return undefined;
    this.#at = at + 1 + size;
    if (size === 1) return this.#view.getUint8(at + 1);
    return size === 2 ? this.#view.getUint16(at + 1) : this.#view.getUint32(at + 1);
  }

  /** Sets length and children of the value here, which is there to its last byte. */
  #measure(): void {
    const at = this.#at;
    const head = this.#bytes[at];
    if (head === undefined) throw this.#noValue();
    this.#children = 0;
    if (head < 0x80 || head >= 0xe0) this.#length = 1;
    else if (head < 0x90) this.#set(1, 2 * (head & 0x0f));
    else if (head < 0xa0) this.#set(1, head & 0x0f);
    else if (head < 0xc0) this.#length = 1 + (head & 0x1f);
    else this.#measureLong(head, at);
    if (at + this.#length > this.#bytes.length) throw this.#endsEarly();
  }

  #measureLong(head: number, at: number): void {
    const fixed = FIXED_LENGTHS[head - 0xc0] ?? 0;
    if (fixed > 0) {
      this.#length = fixed;
      return;
    }
    const sized = SIZED[head];
    if (sized === undefined || at + 1 + sized.bytes > this.#bytes.length) throw this.#noValue();
    const size = this.#size(at + 1, sized.bytes);
    const header = 1 + sized.bytes;
    if (sized.perSize === 0) this.#length = header + sized.extra + size;
    else this.#set(header, sized.perSize * size);
  }

  #set(length: number, children: number): void {
    this.#length = length;
    this.#children = children;
  }

  #size(at: number, bytes: 1 | 2 | 4): number {
    if (bytes === 1) return this.#view.getUint8(at);
    return bytes === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  #noValue(): MessageFault {
    return new MessageFault(`no value begins at byte ${String(this.#at)}`);
  }

  #endsEarly(): MessageFault {
    return new MessageFault(`it ends early, after ${String(this.#bytes.length)} bytes`);
  }
}

function integerOf(value: unknown): number | undefined {
  const isOne = typeof value === "number" && Number.isInteger(value);
  return isOne && value >= 0 && value <= 0xffff_ffff ? value : undefined;
}

/** Whole lengths of the values with the heads 0xc0 to 0xdf; 0 = none, or told by a size. */
const FIXED_LENGTHS: readonly number[] = [
  ...[1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 5, 9, 2, 3, 5, 9], // nil, booleans, floats, unsigned integers
  ...[2, 3, 5, 9, 3, 4, 6, 10, 18, 0, 0, 0, 0, 0, 0, 0], // signed integers, extensions of fixed size
];

interface Sized {
  /** Width of the size that follows the head. */
  readonly bytes: 1 | 2 | 4;
  /** Bytes between size and content. */
  readonly extra: number;
  /** Values for each unit of the size; 0 = the size counts bytes. */
  readonly perSize: 0 | 1 | 2;
}

const SIZED: Readonly<Record<number, Sized>> = {
  0xc4: { bytes: 1, extra: 0, perSize: 0 },
  0xc5: { bytes: 2, extra: 0, perSize: 0 },
  0xc6: { bytes: 4, extra: 0, perSize: 0 },
  0xc7: { bytes: 1, extra: 1, perSize: 0 },
  0xc8: { bytes: 2, extra: 1, perSize: 0 },
  0xc9: { bytes: 4, extra: 1, perSize: 0 },
  0xd9: { bytes: 1, extra: 0, perSize: 0 },
  0xda: { bytes: 2, extra: 0, perSize: 0 },
  0xdb: { bytes: 4, extra: 0, perSize: 0 },
  0xdc: { bytes: 2, extra: 0, perSize: 1 },
  0xdd: { bytes: 4, extra: 0, perSize: 1 },
  0xde: { bytes: 2, extra: 0, perSize: 2 },
  0xdf: { bytes: 4, extra: 0, perSize: 2 },
};

// Is this message well-formed MessagePack, and what does it say? The library makes room for as many
// elements as a header claims before it has seen one of them, so a few bytes could claim gigabytes. The
// bytes are therefore walked first, without making anything: every claimed element must really be there,
// and nesting is bounded. Only then is the message decoded, 64-bit integers as bigint. No state; nothing
// is thrown.

import { Decoder } from "@msgpack/msgpack";

/** A batch of events has six levels at most: batch, events, event, extra keys, block, key. */
export const MESSAGE_NESTING_MAX_LEVELS = 16;

export type MessageResult =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "problem"; readonly detail: string };

const decoder = new Decoder({ useBigInt64: true });

/** Decodes one whole message; bytes that are left over are a problem too. */
export function decodeMessage(bytes: Uint8Array): MessageResult {
  const problem = problemOf(bytes);
  if (problem !== undefined) return { kind: "problem", detail: problem };
  try {
    return { kind: "value", value: decoder.decode(bytes) };
  } catch (error) {
    const detail = error instanceof Error ? error.message : "it cannot be decoded";
    return { kind: "problem", detail };
  }
}

/** What stands at one place: bytes up to the next value, and the values it holds itself. */
interface Item {
  readonly length: number;
  readonly children: number;
}

function problemOf(bytes: Uint8Array): string | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  /** Values that each open container still misses, outermost first. */
  const missing = [1];
  let at = 0;
  while (missing.length > 0) {
    const last = missing.length - 1;
    const left = missing[last] ?? 0;
    if (left === 0) {
      missing.pop();
      continue;
    }
    missing[last] = left - 1;
    const item = itemAt(view, at);
    if (item === undefined) return `no value begins at byte ${String(at)}`;
    at += item.length;
    if (at > bytes.length) return `it ends early, after ${String(bytes.length)} bytes`;
    if (item.children === 0) continue;
    if (missing.length > MESSAGE_NESTING_MAX_LEVELS) {
      return `it is nested deeper than ${String(MESSAGE_NESTING_MAX_LEVELS)} levels`;
    }
    missing.push(item.children);
  }
  return at === bytes.length ? undefined : `it goes on after its end at byte ${String(at)}`;
}

function itemAt(view: DataView, at: number): Item | undefined {
  if (at >= view.byteLength) return undefined;
  const head = view.getUint8(at);
  if (head < 0x80 || head >= 0xe0) return leaf(1);
  if (head < 0x90) return { length: 1, children: 2 * (head & 0x0f) };
  if (head < 0xa0) return { length: 1, children: head & 0x0f };
  if (head < 0xc0) return leaf(1 + (head & 0x1f));
  const fixed = FIXED_LENGTHS[head - 0xc0] ?? 0;
  if (fixed > 0) return leaf(fixed);
  const sized = SIZED[head];
  if (sized === undefined) return undefined;
  const size = sizeAt(view, at + 1, sized.bytes);
  if (size === undefined) return undefined;
  const header = 1 + sized.bytes;
  return sized.perSize === 0
    ? leaf(header + sized.extra + size)
    : { length: header, children: sized.perSize * size };
}

function leaf(length: number): Item {
  return { length, children: 0 };
}

function sizeAt(view: DataView, at: number, bytes: 1 | 2 | 4): number | undefined {
  if (at + bytes > view.byteLength) return undefined;
  if (bytes === 1) return view.getUint8(at);
  return bytes === 2 ? view.getUint16(at) : view.getUint32(at);
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

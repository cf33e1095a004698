// The order of two texts by their UTF-8 bytes, which is the order of their code points. JavaScript's
// own order is that of 16-bit units, in which an astral character stands before U+E000..U+FFFF.

const SURROGATE_MIN = 0xd800;
const AFTER_SURROGATES = 0xe000;

/** Below 0 when `one` comes first, above 0 when `other` does, 0 when they are equal. */
export function byteOrder(one: string, other: string): number {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at += 1) {
    const difference = one.charCodeAt(at) - other.charCodeAt(at);
    if (difference !== 0) return rank(one.charCodeAt(at)) - rank(other.charCodeAt(at));
  }
  return one.length - other.length;
}

/** A unit's place in the order of code points: surrogates stand for what is above all others. */
function rank(unit: number): number {
  if (unit < SURROGATE_MIN) return unit;
  return unit < AFTER_SURROGATES ? unit + 0x2000 : unit - 0x800;
}

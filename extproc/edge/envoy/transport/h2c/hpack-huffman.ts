// Decodes HPACK's Huffman code (RFC 7541, section 5.2 and appendix B). The code is canonical: codes of
// one length are consecutive and follow the order of their symbols, and a longer one continues where
// the shorter ones ended. So the lengths alone define it, and the tree is built from them at start.
// One bit at a time: the dynamic table spares most strings, so speed matters less than size.

/** Bits of the code of each byte, and of the end-of-string mark (symbol 256). */
const LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
  28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
  6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6,
  7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
  23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22,
  22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
  23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27,
  27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25,
  24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const END_OF_STRING = 256;
/** Padding is shorter than a byte. */
const PADDING_BITS_MAX = 7;

/** Nodes in pairs: [2n] and [2n + 1] are the children of n; >= 0: an inner node, < 0: ~symbol. */
const TREE = buildTree();

function buildTree(): Int16Array {
  const tree = new Int16Array(2 * LENGTHS.length);
  const symbols = LENGTHS.map((_length, symbol) => symbol).sort(
    (a, b) => (LENGTHS[a] ?? 0) - (LENGTHS[b] ?? 0) || a - b,
  );
  let nodes = 1;
  let code = 0;
  let bits = 0;
  for (const symbol of symbols) {
    const length = LENGTHS[symbol] ?? 0;
    code *= 2 ** (length - bits);
    bits = length;
    let node = 0;
    for (let bit = length - 1; bit > 0; bit -= 1) {
      const at = 2 * node + ((code >>> bit) & 1);
      if (tree[at] === 0) {
        tree[at] = nodes;
        nodes += 1;
      }
      node = tree[at] ?? 0;
    }
    tree[2 * node + (code & 1)] = ~symbol;
    code += 1;
  }
  return tree;
}

/** The text in bytes `start` to `end`, one character per byte; undefined when they are no such code. */
export function decodeHuffman(buffer: Buffer, start: number, end: number): string | undefined {
  // The shortest code has five bits.
  const text = Buffer.allocUnsafe(Math.ceil(((end - start) * 8) / 5));
  let length = 0;
  let node = 0;
  /** Bits since the last symbol, and whether all of them were ones. */
  let open = 0;
  let ones = true;
  for (let at = start; at < end; at += 1) {
    const byte = buffer[at] ?? 0;
    for (let bit = 7; bit >= 0; bit -= 1) {
      const value = (byte >>> bit) & 1;
      const next = TREE[2 * node + value] ?? 0;
      open += 1;
      ones &&= value === 1;
      if (next >= 0) {
        node = next;
        continue;
      }
      if (~next === END_OF_STRING) return undefined;
      text[length] = ~next;
      length += 1;
      node = 0;
      open = 0;
      ones = true;
    }
  }
  if (open > PADDING_BITS_MAX || !ones) return undefined;
  return text.toString("latin1", 0, length);
}

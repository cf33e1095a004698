// A keyed hash of 32-bit words: Chaskey-12 (N. Mouha and others, "Chaskey: An Efficient MAC Algorithm
// for 32-bit Microcontrollers", SAC 2014; ISO/IEC 29192-6) with its full tag of 128 bits. It needs
// nothing but 32-bit additions, rotations and exclusive ors, which JavaScript has; a MAC and not a
// plain hash, because clients choose what is hashed and must not be able to make two texts collide or
// to crowd one bucket of a table. State: the key, its two subkeys and one message buffer, which is
// reused, so that hashing allocates nothing. Messages are whole words; their bytes are little-endian.

/** Four unsigned 32-bit words: secret, made at start. */
export type HashKey = readonly [number, number, number, number];

/** Four signed 32-bit words. */
interface Quad {
  readonly a: number;
  readonly b: number;
  readonly c: number;
  readonly d: number;
}

const ROUNDS = 12;
const BLOCK_WORDS = 4;
/** Words that are appended to a message whose length is no multiple of a block, at most. */
const PADDING_WORDS = BLOCK_WORDS;

export class Chaskey {
  readonly #key: Quad;
  /** Masks the last block when it is full, and when it is padded. */
  readonly #fullMask: Quad;
  readonly #paddedMask: Quad;
  #message = new Int32Array(256);

  constructor(key: HashKey) {
    const [a, b, c, d] = key;
    this.#key = { a: a | 0, b: b | 0, c: c | 0, d: d | 0 };
    this.#fullMask = doubled(this.#key);
    this.#paddedMask = doubled(this.#fullMask);
  }

  /** Where to write a message of up to `words` words. Valid until the next call of this method. */
  message(words: number): Int32Array {
    if (this.#message.length < words + PADDING_WORDS) {
      const larger = new Int32Array(2 * words + PADDING_WORDS);
      larger.set(this.#message);
      this.#message = larger;
    }
    return this.#message;
  }

  /** Writes the tag of the first `words` words of the message to four words of `out` from `at` on. */
  mac(words: number, out: Uint32Array, at: number): void {
    const message = this.#message;
    const full = words > 0 && words % BLOCK_WORDS === 0;
    if (!full) {
      message[words] = 1;
      for (let pad = words + 1; pad % BLOCK_WORDS !== 0; pad += 1) message[pad] = 0;
    }
    const { a: m0, b: m1, c: m2, d: m3 } = full ? this.#fullMask : this.#paddedMask;
    const end = full ? words : words - (words % BLOCK_WORDS) + BLOCK_WORDS;
    let { a: v0, b: v1, c: v2, d: v3 } = this.#key;
    for (let from = 0; from < end; from += BLOCK_WORDS) {
      v0 ^= message[from] ?? 0;
      v1 ^= message[from + 1] ?? 0;
      v2 ^= message[from + 2] ?? 0;
      v3 ^= message[from + 3] ?? 0;
      if (from + BLOCK_WORDS === end) {
        v0 ^= m0;
        v1 ^= m1;
        v2 ^= m2;
        v3 ^= m3;
      }
      for (let round = 0; round < ROUNDS; round += 1) {
        v0 = (v0 + v1) | 0;
        v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
        v0 = (v0 << 16) | (v0 >>> 16);
        v2 = (v2 + v3) | 0;
        v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
        v0 = (v0 + v3) | 0;
        v3 = ((v3 << 13) | (v3 >>> 19)) ^ v0;
        v2 = (v2 + v1) | 0;
        v1 = ((v1 << 7) | (v1 >>> 25)) ^ v2;
        v2 = (v2 << 16) | (v2 >>> 16);
      }
    }
    out[at] = v0 ^ m0;
    out[at + 1] = v1 ^ m1;
    out[at + 2] = v2 ^ m2;
    out[at + 3] = v3 ^ m3;
  }
}

/** The key times two in the field of 2^128 elements that the algorithm uses. */
function doubled({ a, b, c, d }: Quad): Quad {
  return {
    a: (a << 1) ^ (d < 0 ? 0x87 : 0),
    b: (b << 1) | (a >>> 31),
    c: (c << 1) | (b >>> 31),
    d: (d << 1) | (c >>> 31),
  };
}

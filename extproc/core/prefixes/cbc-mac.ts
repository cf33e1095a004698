// A keyed hash of a chain of blocks: encrypted in CBC mode, each block of ciphertext depends on all that
// stands before it and on nothing else, so one pass over a prompt gives the keys of all its prefixes. As
// long as the ciphertext stays here, two messages share one with a probability of about 2^-128, whoever
// chose them (M. Bellare, J. Kilian and P. Rogaway, "The Security of the Cipher Block Chaining Message
// Authentication Code", 2000). The cipher itself belongs to the runtime and is handed in. State: the
// last block of ciphertext, and one message buffer, which is reused.

/** Bytes of a block of the cipher, and of a chain's value. */
export const CIPHER_BYTES = 16;
/** The same in 32-bit words. */
export const CIPHER_WORDS = 4;

/** How the units of a text are written: a byte each, for units below 256, or two, the lower one first. */
export type UnitEncoding = "latin1" | "utf16le";

/** What hashing asks of the runtime, which does it with the processor's own instructions. */
export interface PrefixCipher {
  /**
   * Encrypts whole blocks of 16 bytes in CBC mode, with a secret key and without padding. Each call goes
   * on where the last one ended; the first one begins with 16 zeros.
   */
  readonly encrypt: (bytes: Uint8Array) => Uint8Array;
  /** Writes a text from the byte `at` on. */
  readonly write: (text: string, encoding: UnitEncoding, into: Uint8Array, at: number) => void;
}

export class CbcMac {
  readonly #cipher: PrefixCipher;
  readonly #last = new Uint32Array(CIPHER_WORDS);
  #words = new Uint32Array(256);
  #bytes = new Uint8Array(this.#words.buffer);

  constructor(cipher: PrefixCipher) {
    this.#cipher = cipher;
  }

  /** The message as words. Valid until the next call of `reserve`. */
  get words(): Uint32Array {
    return this.#words;
  }

  /** The chain's value behind what was encrypted last: four words. Overwritten by the next `encrypt`. */
  get value(): Readonly<Uint32Array> {
    return this.#last;
  }

  /** Writes a text into the message from the byte `at` on. */
  write(text: string, encoding: UnitEncoding, at: number): void {
    this.#cipher.write(text, encoding, this.#bytes, at);
  }

  /** Writes zeros into the message. */
  clear(from: number, to: number): void {
    this.#bytes.fill(0, from, to);
  }

  /** Makes room for a message of so many bytes; what was written before stays. */
  reserve(bytes: number): void {
    if (bytes <= this.#bytes.length) return;
    const words = new Uint32Array(2 * Math.ceil(bytes / 4));
    words.set(this.#words);
    this.#words = words;
    this.#bytes = new Uint8Array(words.buffer);
  }

  /**
   * The ciphertext of the first `bytes` bytes of the message, a multiple of 16 and at least 16, as what
   * follows the chain's value at `at` of `from`; without one, as what begins a chain. The message is
   * spoilt.
   */
  encrypt(bytes: number, from?: Uint32Array, at = 0): Uint8Array {
    const words = this.#words;
    const last = this.#last;
    // The cipher adds its last block to the first one of the message. That is taken off beforehand.
    for (let word = 0; word < CIPHER_WORDS; word += 1) {
      const before = (last[word] ?? 0) ^ (from?.[at + word] ?? 0);
      words[word] = (words[word] ?? 0) ^ before;
    }
    const ciphertext = this.#cipher.encrypt(this.#bytes.subarray(0, bytes));
    readWords(ciphertext, bytes - CIPHER_BYTES, last, 0);
    return ciphertext;
  }
}

/** Copies the block of ciphertext at `from` to four words of `out`. */
export function readWords(
  ciphertext: Uint8Array,
  from: number,
  out: Uint32Array,
  at: number,
): void {
  for (let word = 0; word < CIPHER_WORDS; word += 1) {
    const byte = from + 4 * word;
    out[at + word] =
      (ciphertext[byte] ?? 0) |
      ((ciphertext[byte + 1] ?? 0) << 8) |
      ((ciphertext[byte + 2] ?? 0) << 16) |
      ((ciphertext[byte + 3] ?? 0) << 24);
  }
}

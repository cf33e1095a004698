// The last bytes of an answer, whatever its length. Usage stands at the end of a body, so the end is
// all that settlement has to keep, and one request can never hold more than 64 KiB of it.
//
// The buffer is allocated with the first byte and doubles until it has its full size, so that short
// answers stay small; from there on it is written in a circle. Bytes are copied in, because the
// caller's chunk is a view of a larger network buffer that must not be kept alive.

/**
 * Most bytes of one answer that are held. A final usage event and everything after it fit many
 * times; 10,000 answers in flight stay below 640 MiB in the worst case.
 */
export const TAIL_RING_BYTES = 65_536;

const FIRST_ALLOCATION_BYTES = 1_024;

export class TailRing {
  #buffer = new Uint8Array(0);
  // Where the next byte goes once the buffer has its full size; before that it equals #size.
  #next = 0;
  #size = 0;
  #seen = 0;

  /** Bytes held now, 0..TAIL_RING_BYTES. */
  get size(): number {
    return this.#size;
  }

  /** Bytes of memory allocated now: 0 before the first byte, then a power of two. */
  get capacity(): number {
    return this.#buffer.length;
  }

  /** True when the head of the answer is gone, so that the held bytes begin somewhere inside it. */
  get cut(): boolean {
    return this.#seen > TAIL_RING_BYTES;
  }

  push(chunk: Uint8Array): void {
    const length = chunk.length;
    if (length === 0) return;
    this.#seen += length;
    this.#reserve(Math.min(TAIL_RING_BYTES, this.#size + length));
    if (length >= TAIL_RING_BYTES) {
      this.#buffer.set(chunk.subarray(length - TAIL_RING_BYTES));
      this.#next = 0;
      this.#size = TAIL_RING_BYTES;
      return;
    }
    const room = this.#buffer.length - this.#next;
    if (length <= room) {
      this.#buffer.set(chunk, this.#next);
      this.#next += length;
    } else {
      this.#buffer.set(chunk.subarray(0, room), this.#next);
      this.#buffer.set(chunk.subarray(room));
      this.#next = length - room;
    }
    this.#size = Math.min(TAIL_RING_BYTES, this.#size + length);
  }

  /** The held bytes in order. May be a view of the ring: read it before the next push. */
  bytes(): Uint8Array {
    if (this.#size < TAIL_RING_BYTES) return this.#buffer.subarray(0, this.#size);
    const ordered = new Uint8Array(TAIL_RING_BYTES);
    const oldest = this.#buffer.subarray(this.#next);
    ordered.set(oldest);
    ordered.set(this.#buffer.subarray(0, this.#next), oldest.length);
    return ordered;
  }

  #reserve(bytes: number): void {
    let capacity = this.#buffer.length;
    if (bytes <= capacity) return;
    if (capacity === 0) capacity = FIRST_ALLOCATION_BYTES;
    while (capacity < bytes) capacity *= 2;
    // A buffer below full size was never wrapped, so its bytes are in order from 0.
    const grown = new Uint8Array(capacity);
    grown.set(this.#buffer.subarray(0, this.#size));
    this.#buffer = grown;
  }
}

// Cuts the bytes of one gRPC stream into messages: a flag (1 = compressed), a length of four bytes,
// then the message. A message that lies whole in what arrived is handed on in place. One that is
// split is put together in a buffer of its own, each byte copied once; past the first 256 KiB (which
// the peer has sent by then) the whole announced length is reserved at a time.
//
// Bounds: the length of a message, and the bytes all unfinished messages of a connection hold.

import { RESOURCE_EXHAUSTED, UNIMPLEMENTED, OK } from "./grpc-status.js";

export const MESSAGE_HEAD_BYTES = 5;
/** Reserved at once for a message that has only been announced. */
const FIRST_RESERVE_BYTES = 256 * 1024;
/**
 * Bytes of unfinished messages of one connection. Envoy sends a body when it has it whole, so those
 * of few streams are on the way at once: 16 of the largest that the default body limit allows.
 */
export const UNFINISHED_BYTES_MAX = 512 * 1024 * 1024;

/** What the unfinished messages of one connection may still take. */
export interface UnfinishedBudget {
  bytesLeft: number;
}

export function unfinishedBudget(): UnfinishedBudget {
  return { bytesLeft: UNFINISHED_BYTES_MAX };
}

export interface MessageSink {
  message(bytes: Buffer): void;
}

export class MessageReader {
  readonly #maxMessageBytes: number;
  readonly #budget: UnfinishedBudget;
  /** Bytes of the next head that have been read, flag and length as far as they are known. */
  #headBytes = 0;
  #flag = 0;
  #length = 0;
  /** The message in the making; undefined between messages. */
  #buffer: Buffer | undefined;
  #filled = 0;
  #stopped = false;

  constructor(maxMessageBytes: number, budget: UnfinishedBudget) {
    this.#maxMessageBytes = maxMessageBytes;
    this.#budget = budget;
  }

  /** True when no message is half there. */
  get between(): boolean {
    return this.#headBytes === 0;
  }

  /**
   * Takes bytes `start` to `end` of `data` and hands on each message that is complete. Returns OK, or
   * the status the call must end with; then nothing more may be pushed.
   */
  push(data: Buffer, start: number, end: number, sink: MessageSink): number {
    let at = start;
    while (at < end && !this.#stopped) {
      if (this.#headBytes < MESSAGE_HEAD_BYTES) {
        at = this.#readHead(data, at, end);
        if (this.#headBytes < MESSAGE_HEAD_BYTES) return OK;
        if (this.#flag !== 0) return UNIMPLEMENTED;
        if (this.#length > this.#maxMessageBytes) return RESOURCE_EXHAUSTED;
        if (this.#length <= end - at) {
          const message = data.subarray(at, at + this.#length);
          at += this.#length;
          this.#headBytes = 0;
          sink.message(message);
          continue;
        }
        if (at === end) return OK;
      }
      const taken = Math.min(end - at, this.#length - this.#filled);
      const buffer = this.#reserve(taken);
      if (buffer === undefined) return RESOURCE_EXHAUSTED;
      data.copy(buffer, this.#filled, at, at + taken);
      this.#filled += taken;
      at += taken;
      if (this.#filled === this.#length) this.#complete(sink);
    }
    return OK;
  }

  /** Gives up an unfinished message and takes no more, also when called by the sink. */
  stop(): void {
    this.#stopped = true;
    this.#clear();
  }

  #clear(): void {
    this.#budget.bytesLeft += this.#buffer?.length ?? 0;
    this.#buffer = undefined;
    this.#filled = 0;
    this.#headBytes = 0;
  }

  #readHead(data: Buffer, start: number, end: number): number {
    let at = start;
    while (at < end && this.#headBytes < MESSAGE_HEAD_BYTES) {
      const byte = data[at] ?? 0;
      if (this.#headBytes === 0) {
        this.#flag = byte;
        this.#length = 0;
      } else {
        this.#length = this.#length * 256 + byte;
      }
      this.#headBytes += 1;
      at += 1;
    }
    return at;
  }

  /** A buffer with room for that many more bytes; undefined when the connection holds too much. */
  #reserve(bytes: number): Buffer | undefined {
    const held = this.#buffer;
    const heldBytes = held?.length ?? 0;
    if (this.#filled + bytes <= heldBytes) return held;
    const first = this.#filled + bytes <= FIRST_RESERVE_BYTES;
    const size = first ? Math.min(this.#length, FIRST_RESERVE_BYTES) : this.#length;
    if (size - heldBytes > this.#budget.bytesLeft) return undefined;
    this.#budget.bytesLeft -= size - heldBytes;
    this.#buffer = Buffer.allocUnsafe(size);
    held?.copy(this.#buffer, 0, 0, this.#filled);
    return this.#buffer;
  }

  #complete(sink: MessageSink): void {
    const message = this.#buffer;
    this.#clear();
    if (message !== undefined) sink.message(message);
  }
}

/** Writes the head of an uncompressed message; returns the offset behind it. */
export function writeMessageHead(buffer: Buffer, offset: number, length: number): number {
  buffer[offset] = 0;
  return buffer.writeUInt32BE(length, offset + 1);
}

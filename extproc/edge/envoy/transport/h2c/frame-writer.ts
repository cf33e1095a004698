// Collects the frames up to the next flush, so that they leave in one write. Frames are
// written behind each other into a block; what has been taken out of it is never written again, so
// the socket may keep it for as long as it likes.

import { MESSAGE_HEAD_BYTES, writeMessageHead } from "../message-reader.js";
import { DATA, FRAME_HEAD_BYTES, writeFrameHead } from "./frames.js";

/** Room for some hundred replies. */
const BLOCK_BYTES = 32_768;
/** A payload above this is passed on as it is instead of being copied. */
const COPY_BYTES_MAX = 4_096;

export class FrameWriter {
  readonly #onFirst: () => void;
  readonly #full: Buffer[] = [];
  #block: Buffer = Buffer.alloc(0);
  /** Written bytes of the block that nobody has taken yet: from `#from` to `#at`. */
  #from = 0;
  #at = 0;

  /** `onFirst` is called when there is something to take after there was nothing. */
  constructor(onFirst: () => void) {
    this.#onFirst = onFirst;
  }

  get empty(): boolean {
    return this.#from === this.#at && this.#full.length === 0;
  }

  frame(type: number, flags: number, streamId: number, payload: Buffer): void {
    this.#head(type, flags, streamId, payload.length, 0);
    this.#append(payload);
  }

  /** A frame whose payload is one number of 32 bits. */
  number(type: number, streamId: number, value: number): void {
    this.#head(type, 0, streamId, 4, 4);
    this.#at = this.#block.writeUInt32BE(value, this.#at);
  }

  /** A DATA frame with one whole gRPC message. */
  message(streamId: number, message: Buffer): void {
    this.#head(DATA, 0, streamId, MESSAGE_HEAD_BYTES + message.length, MESSAGE_HEAD_BYTES);
    this.#at = writeMessageHead(this.#block, this.#at, message.length);
    this.#append(message);
  }

  /** Everything that was written since the last call, in order. */
  take(): Buffer[] {
    this.#cut();
    return this.#full.splice(0);
  }

  #head(type: number, flags: number, streamId: number, length: number, more: number): void {
    if (this.empty) this.#onFirst();
    this.#reserve(FRAME_HEAD_BYTES + more);
    this.#at = writeFrameHead(this.#block, this.#at, { length, type, flags, streamId });
  }

  #append(bytes: Buffer): void {
    if (bytes.length > COPY_BYTES_MAX) {
      this.#cut();
      this.#full.push(bytes);
      return;
    }
    this.#reserve(bytes.length);
    bytes.copy(this.#block, this.#at);
    this.#at += bytes.length;
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#block.length) return;
    this.#cut();
    this.#block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
    this.#from = 0;
    this.#at = 0;
  }

  #cut(): void {
    if (this.#from === this.#at) return;
    this.#full.push(this.#block.subarray(this.#from, this.#at));
    this.#from = this.#at;
  }
}

// Cuts the bytes of a connection into frames. A frame that lies whole in what arrived is handed on in
// place, as a range of that buffer; one that is split over several arrivals is put together once, in a
// buffer of its own. Memory: one frame per connection.

import { ConnectionError, FRAME_HEAD_BYTES, FRAME_SIZE_ERROR, MAX_31_BITS } from "./frames.js";
import { FRAME_BYTES_MAX } from "./limits.js";

export interface FrameSink {
  /** One frame; its payload is bytes `start` to `end` of `buffer`. Throws ConnectionError. */
  frame(
    type: number,
    flags: number,
    streamId: number,
    buffer: Buffer,
    start: number,
    end: number,
  ): void;
}

export class FrameReader {
  readonly #sink: FrameSink;
  readonly #head = Buffer.alloc(FRAME_HEAD_BYTES);
  #headFilled = 0;
  /** The frame in the making, with its head; undefined until its head is whole. */
  #frame: Buffer | undefined;
  #filled = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Takes the bytes from `start` on. Throws ConnectionError; then nothing more may be pushed. */
  push(chunk: Buffer, start: number): void {
    let at = start;
    while (at < chunk.length) {
      if (this.#frame !== undefined) {
        at = this.#fill(this.#frame, chunk, at);
      } else if (this.#headFilled > 0 || chunk.length - at < FRAME_HEAD_BYTES) {
        at = this.#fillHead(chunk, at);
      } else {
        const end = at + FRAME_HEAD_BYTES + payloadLength(chunk, at);
        if (end <= chunk.length) {
          this.#emit(chunk, at, end);
          at = end;
        } else {
          this.#begin(end - at);
        }
      }
    }
  }

  #fillHead(chunk: Buffer, start: number): number {
    const end = Math.min(chunk.length, start + FRAME_HEAD_BYTES - this.#headFilled);
    chunk.copy(this.#head, this.#headFilled, start, end);
    this.#headFilled += end - start;
    if (this.#headFilled === FRAME_HEAD_BYTES) {
      const frame = this.#begin(FRAME_HEAD_BYTES + payloadLength(this.#head, 0));
      this.#head.copy(frame);
      this.#filled = FRAME_HEAD_BYTES;
      this.#headFilled = 0;
      this.#emitFilled(frame);
    }
    return end;
  }

  #begin(length: number): Buffer {
    this.#filled = 0;
    this.#frame = Buffer.allocUnsafe(length);
    return this.#frame;
  }

  #fill(frame: Buffer, chunk: Buffer, start: number): number {
    const end = Math.min(chunk.length, start + frame.length - this.#filled);
    chunk.copy(frame, this.#filled, start, end);
    this.#filled += end - start;
    this.#emitFilled(frame);
    return end;
  }

  #emitFilled(frame: Buffer): void {
    if (this.#filled < frame.length) return;
    this.#frame = undefined;
    this.#emit(frame, 0, frame.length);
  }

  #emit(buffer: Buffer, at: number, end: number): void {
    const streamId = buffer.readUInt32BE(at + 5) & MAX_31_BITS;
    const [type = 0, flags = 0] = [buffer[at + 3], buffer[at + 4]];
    this.#sink.frame(type, flags, streamId, buffer, at + FRAME_HEAD_BYTES, end);
  }
}

/** Refused at its head, before any of a frame that is too long is kept. */
function payloadLength(buffer: Buffer, at: number): number {
  const length = buffer.readUIntBE(at, 3);
  if (length > FRAME_BYTES_MAX) {
    throw new ConnectionError(FRAME_SIZE_ERROR, "a frame is longer than MAX_FRAME_SIZE");
  }
  return length;
}

// Opens the peer's windows again, per stream and for the connection. What arrives is read in the same
// turn, so a window protects nothing here, and each update costs Envoy time: a window is opened again
// when half of it is used. The other half is longer than any frame, so no frame can overrun a window,
// and what a peer sends without asking is read like the rest.

import type { FrameWriter } from "./frame-writer.js";
import { WINDOW_UPDATE } from "./frames.js";
import { CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES } from "./limits.js";

/** The receiving half of a stream. */
export interface Incoming {
  readonly id: number;
  /** Bytes the peer may still send. */
  receiveBytes: number;
}

export class ReceiveSide {
  readonly #writer: FrameWriter;
  #bytes = CONNECTION_WINDOW_BYTES;

  constructor(writer: FrameWriter) {
    this.#writer = writer;
  }

  /** Counts a DATA frame on the connection, padding included, also one that nobody reads. */
  countConnection(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes > CONNECTION_WINDOW_BYTES / 2) return;
    this.#writer.number(WINDOW_UPDATE, 0, CONNECTION_WINDOW_BYTES - this.#bytes);
    this.#bytes = CONNECTION_WINDOW_BYTES;
  }

  /** Counts a DATA frame on its stream, which goes on behind it. */
  countStream(stream: Incoming, bytes: number): void {
    stream.receiveBytes -= bytes;
    if (stream.receiveBytes > STREAM_WINDOW_BYTES / 2) return;
    this.#writer.number(WINDOW_UPDATE, stream.id, STREAM_WINDOW_BYTES - stream.receiveBytes);
    stream.receiveBytes = STREAM_WINDOW_BYTES;
  }
}

// One call on one HTTP/2 stream: its messages on the way in, its windows, and how far each side is.
// The stream knows what it holds; what happens to it is decided in streams.ts.

import type { Call, CallHandler } from "../call.js";
import { MessageReader, type UnfinishedBudget } from "../message-reader.js";
import { STREAM_WINDOW_BYTES } from "./limits.js";
import type { Incoming } from "./receive-side.js";
import type { Outgoing } from "./send-side.js";

/** What a stream asks of its connection. */
export interface StreamHost {
  /** Sends a message of a stream that is not over. */
  reply(stream: H2cStream, message: Buffer): void;
  /** Ends a stream that is not over. */
  finish(stream: H2cStream, status: number): void;
  /** The last frame of the answer has been written. */
  sent(stream: H2cStream): void;
}

export interface StreamOptions {
  readonly id: number;
  readonly windowBytes: number;
  readonly contentLength: number | undefined;
  readonly maxMessageBytes: number;
  readonly budget: UnfinishedBudget;
}

export class H2cStream implements Call, Incoming, Outgoing {
  readonly id: number;
  readonly messages: MessageReader;
  /** Set directly after construction, because the handler is made with the stream. */
  handler!: CallHandler;
  begun = false;
  windowBytes: number;
  queue: Buffer[] | undefined;
  queueHead = 0;
  endStatus: number | undefined;
  receiveBytes = STREAM_WINDOW_BYTES;
  /** Bytes of the body that are still to come; undefined when none were announced. */
  bodyBytes: number | undefined;
  /** The peer has said its last word. */
  peerEnded = false;
  /** The handler has finished or been told: nothing reaches it any more, and nothing it says is sent. */
  over = false;
  readonly #host: StreamHost;

  constructor(host: StreamHost, options: StreamOptions) {
    this.#host = host;
    this.id = options.id;
    this.windowBytes = options.windowBytes;
    this.bodyBytes = options.contentLength;
    this.messages = new MessageReader(options.maxMessageBytes, options.budget);
  }

  reply(message: Buffer): void {
    if (!this.over) this.#host.reply(this, message);
  }

  finish(status: number): void {
    if (!this.over) this.#host.finish(this, status);
  }

  sent(): void {
    this.#host.sent(this);
  }

  message(bytes: Buffer): void {
    if (!this.over) this.handler.message(bytes);
  }
}

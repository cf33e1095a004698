// Sends replies under the peer's flow control: a window per stream, one for the connection, and a
// largest frame. What fits goes out at once, which is nearly always; what does not waits with its
// stream, and the whole connection may hold no more than QUEUED_BYTES_MAX of it.
//
// Invariant: while the connection's window is open, a stream waits only for its own window. So a
// change of one stream's window concerns that stream, and when the connection's window opens only those
// are looked through that wait for nothing else: each of them sends something, or the window is shut
// again.

import { MESSAGE_HEAD_BYTES, writeMessageHead } from "../message-reader.js";
import type { FrameWriter } from "./frame-writer.js";
import {
  ConnectionError,
  DATA,
  DEFAULT_FRAME_BYTES,
  DEFAULT_WINDOW_BYTES,
  END_HEADERS,
  END_STREAM,
  FLOW_CONTROL_ERROR,
  HEADERS,
  MAX_31_BITS,
  type PeerSettings,
} from "./frames.js";
import { QUEUED_BYTES_MAX } from "./limits.js";
import { endBlock, HEAD_BLOCK } from "./response-blocks.js";

/** What a queued reply costs besides its bytes. */
const QUEUED_REPLY_BYTES = 128;
/** Sent replies that may stand before those that wait. */
const PASSED_MAX = 1_024;

/** The sending half of a stream. */
export interface Outgoing {
  readonly id: number;
  /** The head of the answer is out. */
  begun: boolean;
  /** Bytes the peer lets us send; below 0 after it has taken some back. */
  windowBytes: number;
  /** Framed messages that wait for a window; those before `queueHead` have been sent. */
  queue: Buffer[] | undefined;
  queueHead: number;
  /** The status to end with once the queue is empty. */
  endStatus: number | undefined;
  /** The end has been written. */
  sent(): void;
}

export class SendSide {
  readonly #writer: FrameWriter;
  /** Streams that wait for the connection's window and not for their own. */
  readonly #waiting = new Set<Outgoing>();
  readonly #settings: PeerSettings = {
    initialWindowBytes: DEFAULT_WINDOW_BYTES,
    maxFrameBytes: DEFAULT_FRAME_BYTES,
  };
  #windowBytes = DEFAULT_WINDOW_BYTES;
  #queuedBytes = 0;

  constructor(writer: FrameWriter) {
    this.#writer = writer;
  }

  /** The window a new stream begins with. */
  get initialWindowBytes(): number {
    return this.#settings.initialWindowBytes;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Sends a message or queues it; false when the connection holds too much already. */
  message(stream: Outgoing, message: Buffer): boolean {
    if (!stream.begun) {
      stream.begun = true;
      this.#writer.frame(HEADERS, END_HEADERS, stream.id, HEAD_BLOCK);
    }
    const length = MESSAGE_HEAD_BYTES + message.length;
    if (stream.queue === undefined && length <= this.#room(stream)) {
      this.#spend(stream, length);
      this.#writer.message(stream.id, message);
      return true;
    }
    if (this.#queuedBytes + length + QUEUED_REPLY_BYTES > QUEUED_BYTES_MAX) return false;
    const framed = Buffer.allocUnsafe(length);
    message.copy(framed, writeMessageHead(framed, 0, message.length));
    this.#queuedBytes += length + QUEUED_REPLY_BYTES;
    stream.queue ??= [];
    stream.queue.push(framed);
    this.#pump(stream);
    return true;
  }

  /** Ends the answer, behind what is queued. */
  end(stream: Outgoing, status: number): void {
    if (stream.queue === undefined) this.#writeEnd(stream, status);
    else stream.endStatus = status;
  }

  /** Forgets what a stream still had to send. */
  drop(stream: Outgoing): void {
    const { queue = [] } = stream;
    for (let at = stream.queueHead; at < queue.length; at += 1) {
      this.#queuedBytes -= (queue[at]?.length ?? 0) + QUEUED_REPLY_BYTES;
    }
    stream.queue = undefined;
    stream.queueHead = 0;
    this.#waiting.delete(stream);
  }

  /** The peer opens a stream's window; false when that is more than a window can be. */
  openStream(stream: Outgoing, bytes: number): boolean {
    stream.windowBytes += bytes;
    if (stream.windowBytes > MAX_31_BITS) return false;
    this.#pump(stream);
    return true;
  }

  /** The peer opens the connection's window. Throws ConnectionError. */
  openConnection(bytes: number): void {
    const wasShut = this.#windowBytes <= 0;
    this.#windowBytes += bytes;
    if (this.#windowBytes > MAX_31_BITS) throw windowTooLarge();
    if (wasShut) this.#pumpAll();
  }

  /** Takes new settings of the peer, which also move the window of every open stream. */
  configure(read: (settings: PeerSettings) => void, streams: Iterable<Outgoing>): void {
    const before = this.#settings.initialWindowBytes;
    read(this.#settings);
    const change = this.#settings.initialWindowBytes - before;
    if (change === 0) return;
    const open = [...streams];
    for (const stream of open) {
      stream.windowBytes += change;
      if (stream.windowBytes > MAX_31_BITS) throw windowTooLarge();
    }
    if (change > 0) for (const stream of open) this.#pump(stream);
  }

  #pumpAll(): void {
    for (const stream of this.#waiting) {
      if (this.#windowBytes <= 0) return;
      this.#pump(stream);
    }
  }

  /** Sends of a stream's queue what the windows allow. */
  #pump(stream: Outgoing): void {
    const { queue } = stream;
    if (queue === undefined) return;
    for (
      let first = queue[stream.queueHead];
      first !== undefined;
      first = queue[stream.queueHead]
    ) {
      const room = this.#room(stream);
      if (room <= 0) {
        if (stream.windowBytes > 0) this.#waiting.add(stream);
        else this.#waiting.delete(stream);
        return;
      }
      const piece = first.length > room ? first.subarray(0, room) : first;
      if (piece === first) this.#shift(stream, queue);
      else queue[stream.queueHead] = first.subarray(room);
      this.#spend(stream, piece.length);
      this.#queuedBytes -= piece.length;
      this.#writer.frame(DATA, 0, stream.id, piece);
    }
    stream.queue = undefined;
    stream.queueHead = 0;
    this.#waiting.delete(stream);
    if (stream.endStatus !== undefined) this.#writeEnd(stream, stream.endStatus);
  }

  /** Taking the first of a long array moves all others, so it is only passed, and passed ones go now and then. */
  #shift(stream: Outgoing, queue: Buffer[]): void {
    this.#queuedBytes -= QUEUED_REPLY_BYTES;
    stream.queueHead += 1;
    if (stream.queueHead < PASSED_MAX || 2 * stream.queueHead < queue.length) return;
    queue.splice(0, stream.queueHead);
    stream.queueHead = 0;
  }

  #room(stream: Outgoing): number {
    return Math.min(this.#windowBytes, stream.windowBytes, this.#settings.maxFrameBytes);
  }

  #spend(stream: Outgoing, bytes: number): void {
    this.#windowBytes -= bytes;
    stream.windowBytes -= bytes;
  }

  #writeEnd(stream: Outgoing, status: number): void {
    const block = endBlock(status, stream.begun);
    this.#writer.frame(HEADERS, END_HEADERS | END_STREAM, stream.id, block);
    stream.sent();
  }
}

function windowTooLarge(): ConnectionError {
  return new ConnectionError(FLOW_CONTROL_ERROR, "a window is above 2^31 - 1");
}

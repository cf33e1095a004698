// One HTTP/2 connection of the h2c server, as a machine over bytes: `receive` takes what the peer
// sent, and what is to be sent is collected and handed over by `flush`: behind each `receive`, and for
// what is sent at other times once per turn of the event loop. It owns no socket and no timer, so it
// can be tested byte by byte. A ConnectionError ends it with a GOAWAY; anything else that is thrown is
// a fault of ours and ends it too, and no other one.

import type { Services } from "../calls.js";
import { FrameReader } from "./frame-reader.js";
import { FrameWriter } from "./frame-writer.js";
import {
  ACK,
  checkLength,
  ConnectionError,
  CONTINUATION,
  DATA,
  DEFAULT_WINDOW_BYTES,
  END_STREAM,
  ENHANCE_YOUR_CALM,
  FRAME_SIZE_ERROR,
  GOAWAY,
  goawayPayload,
  HEADERS,
  INTERNAL_ERROR,
  MAX_31_BITS,
  NO_ERROR,
  PING,
  PREFACE,
  PRIORITY,
  PROTOCOL_ERROR,
  PUSH_PROMISE,
  readSettings,
  RST_STREAM,
  SETTINGS,
  SETTINGS_INITIAL_WINDOW_SIZE,
  SETTINGS_MAX_CONCURRENT_STREAMS,
  SETTINGS_MAX_FRAME_SIZE,
  SETTINGS_MAX_HEADER_LIST_SIZE,
  settingsPayload,
  WINDOW_UPDATE,
} from "./frames.js";
import { HeaderBlocks } from "./header-blocks.js";
import {
  CONNECTION_WINDOW_BYTES,
  FRAME_BYTES_MAX,
  HEADER_BLOCK_BYTES_MAX,
  IDLE_FRAMES_BURST_MAX,
  IDLE_FRAMES_PER_SECOND_MAX,
  STREAM_WINDOW_BYTES,
  STREAMS_MAX,
} from "./limits.js";
import { RateBucket } from "./rate-bucket.js";
import { SendSide } from "./send-side.js";
import { Streams } from "./streams.js";

const OWN_SETTINGS = settingsPayload([
  [SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX],
  [SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES],
  [SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES_MAX],
  [SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BLOCK_BYTES_MAX],
]);
const NOTHING = Buffer.alloc(0);
/** Its answer shows that the peer has read our first GOAWAY. */
const DRAIN_PING = Buffer.from("draining", "latin1");

export interface ConnectionDeps {
  readonly services: Services;
  readonly maxMessageBytes: number;
  readonly now: () => number;
  /** Asks for a `flush` later in this turn. */
  readonly flushLater: () => void;
  /** Sends; called by `flush` only. */
  readonly write: (chunks: readonly Buffer[]) => void;
  /** Nothing more will be written: close when all is sent. */
  readonly end: () => void;
  readonly onFault: (error: unknown) => void;
}

export class H2cConnection {
  readonly #deps: ConnectionDeps;
  readonly #writer: FrameWriter;
  readonly #sender: SendSide;
  readonly #streams: Streams;
  readonly #reader: FrameReader;
  readonly #blocks = new HeaderBlocks();
  readonly #idleFrames: RateBucket;
  #prefaceBytes = 0;
  #sawSettings = false;
  #draining = false;
  /** The last GOAWAY is written; the connection ends when its streams have. */
  #announced = false;
  /** Nothing is read or begun any more. */
  #over = false;
  #ended = false;

  constructor(deps: ConnectionDeps) {
    this.#deps = deps;
    this.#writer = new FrameWriter(deps.flushLater);
    this.#sender = new SendSide(this.#writer);
    this.#idleFrames = new RateBucket(
      IDLE_FRAMES_BURST_MAX,
      IDLE_FRAMES_PER_SECOND_MAX,
      deps.now(),
    );
    this.#streams = new Streams({
      services: deps.services,
      maxMessageBytes: deps.maxMessageBytes,
      now: deps.now,
      writer: this.#writer,
      sender: this.#sender,
      onIdle: () => {
        if (this.#announced) this.#close();
      },
    });
    this.#reader = new FrameReader(this);
    this.#writer.frame(SETTINGS, 0, 0, OWN_SETTINGS);
    this.#writer.number(WINDOW_UPDATE, 0, CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
  }

  /** True from the peer's whole preface on. */
  get greeted(): boolean {
    return this.#prefaceBytes === PREFACE.length;
  }

  get openStreams(): number {
    return this.#streams.size;
  }

  /** Bytes of replies that wait for the peer's windows. */
  get queuedBytes(): number {
    return this.#sender.queuedBytes;
  }

  /** Takes what the peer sent, in pieces of any size. Never throws. */
  receive(chunk: Buffer): void {
    if (this.#over) return;
    try {
      this.#reader.push(chunk, this.greeted ? 0 : this.#readPreface(chunk));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Sends all that was written since the last flush. */
  flush(): void {
    this.#streams.tellGivenUp();
    const chunks = this.#writer.take();
    if (chunks.length > 0) this.#deps.write(chunks);
    if (!this.#over || this.#ended) return;
    this.#ended = true;
    this.#deps.end();
  }

  /**
   * Lets the connection end once its streams have. The first GOAWAY only asks the peer to open no
   * more; those it opened meanwhile are served, and its answer to a PING tells when there are none.
   */
  drain(): void {
    if (this.#draining || this.#over) return;
    this.#draining = true;
    this.#goaway(MAX_31_BITS, NO_ERROR, "");
    this.#writer.frame(PING, 0, 0, DRAIN_PING);
  }

  /** The peer is gone. */
  lost(): void {
    this.#over = true;
    this.#ended = true;
    this.#streams.lost();
  }

  /** One frame of the peer; for the reader. Throws ConnectionError. */
  frame(
    type: number,
    flags: number,
    streamId: number,
    buffer: Buffer,
    start: number,
    end: number,
  ): void {
    if (this.#over) return;
    if (this.#blocks.open && type !== CONTINUATION) {
      throw new ConnectionError(PROTOCOL_ERROR, "a frame between the frames of a header block");
    }
    if (!this.#sawSettings) this.#checkFirst(type, flags);
    if (type === DATA) {
      if (streamId === 0) throw wrongStream("DATA");
      if (start === end && (flags & END_STREAM) === 0) this.#countIdle();
      this.#streams.data(flags, streamId, buffer, start, end);
    } else if (type === HEADERS) {
      if (streamId === 0) throw wrongStream("HEADERS");
      const block = this.#blocks.headers(flags, streamId, buffer, start, end);
      if (block !== undefined) this.#streams.headers(block);
    } else {
      this.#otherFrame(type, flags, streamId, buffer.subarray(start, end));
    }
  }

  #otherFrame(type: number, flags: number, streamId: number, payload: Buffer): void {
    switch (type) {
      case CONTINUATION: {
        const block = this.#blocks.continuation(flags, streamId, payload);
        if (block !== undefined) this.#streams.headers(block);
        return;
      }
      case PRIORITY:
        this.#priority(streamId, payload);
        return;
      case RST_STREAM:
        if (streamId === 0) throw wrongStream("RST_STREAM");
        checkLength(payload, 4);
        this.#streams.resetByPeer(streamId);
        return;
      case SETTINGS:
        if (streamId !== 0) throw wrongStream("SETTINGS");
        this.#settings(flags, payload);
        return;
      case PUSH_PROMISE:
        throw new ConnectionError(PROTOCOL_ERROR, "a client cannot push");
      case PING:
        if (streamId !== 0) throw wrongStream("PING");
        checkLength(payload, 8);
        this.#ping(flags, payload);
        return;
      case GOAWAY:
        // The peer will open no more streams; those that are open go on.
        if (streamId !== 0) throw wrongStream("GOAWAY");
        if (payload.length < 8) checkLength(payload, 8);
        return;
      case WINDOW_UPDATE:
        this.#windowUpdate(streamId, payload);
        return;
      default:
      // Unknown frames are ignored, so that the protocol can be extended.
    }
  }

  #readPreface(chunk: Buffer): number {
    const end = Math.min(chunk.length, PREFACE.length - this.#prefaceBytes);
    const expected = PREFACE.subarray(this.#prefaceBytes, this.#prefaceBytes + end);
    if (!chunk.subarray(0, end).equals(expected)) {
      throw new ConnectionError(PROTOCOL_ERROR, "this is not HTTP/2 with prior knowledge");
    }
    this.#prefaceBytes += end;
    return end;
  }

  #checkFirst(type: number, flags: number): void {
    if (type !== SETTINGS || (flags & ACK) !== 0) {
      throw new ConnectionError(PROTOCOL_ERROR, "the first frame is not SETTINGS");
    }
    this.#sawSettings = true;
  }

  #settings(flags: number, payload: Buffer): void {
    if ((flags & ACK) !== 0) {
      checkLength(payload, 0);
      return;
    }
    this.#countIdle();
    this.#sender.configure((settings) => {
      readSettings(payload, settings);
    }, this.#streams.all());
    this.#writer.frame(SETTINGS, ACK, 0, NOTHING);
  }

  #ping(flags: number, payload: Buffer): void {
    if ((flags & ACK) === 0) {
      this.#countIdle();
      this.#writer.frame(PING, ACK, 0, payload);
    } else if (this.#draining && payload.equals(DRAIN_PING)) {
      this.#announceLast();
    }
  }

  #priority(streamId: number, payload: Buffer): void {
    if (streamId === 0) throw wrongStream("PRIORITY");
    if (payload.length !== 5) this.#streams.resetById(streamId, FRAME_SIZE_ERROR);
    else if ((payload.readUInt32BE() & MAX_31_BITS) === streamId) {
      this.#streams.resetById(streamId, PROTOCOL_ERROR);
    }
  }

  #windowUpdate(streamId: number, payload: Buffer): void {
    checkLength(payload, 4);
    const bytes = payload.readUInt32BE() & MAX_31_BITS;
    if (streamId !== 0) this.#streams.windowUpdate(streamId, bytes);
    else if (bytes > 0) this.#sender.openConnection(bytes);
    else throw new ConnectionError(PROTOCOL_ERROR, "WINDOW_UPDATE by 0");
  }

  #countIdle(): void {
    if (this.#idleFrames.take(this.#deps.now())) return;
    throw new ConnectionError(ENHANCE_YOUR_CALM, "too many frames that carry nothing");
  }

  #announceLast(): void {
    if (this.#announced) return;
    this.#announced = true;
    this.#streams.stopServing();
    this.#goaway(this.#streams.lastId, NO_ERROR, "");
    if (this.#streams.size === 0) this.#close();
  }

  #fail(error: unknown): void {
    if (!(error instanceof ConnectionError)) this.#deps.onFault(error);
    const known = error instanceof ConnectionError ? error : undefined;
    this.#over = true;
    this.#goaway(this.#streams.lastId, known?.code ?? INTERNAL_ERROR, known?.message ?? "");
    this.#streams.lost();
  }

  /** The next flush is the last one. */
  #close(): void {
    this.#over = true;
    this.#deps.flushLater();
  }

  #goaway(lastId: number, code: number, reason: string): void {
    this.#writer.frame(GOAWAY, 0, 0, goawayPayload(lastId, code, reason));
  }
}

function wrongStream(frame: string): ConnectionError {
  return new ConnectionError(PROTOCOL_ERROR, `${frame} on a stream it cannot be on`);
}

// The open streams of one connection: what opens, feeds, resets and ends them, and what is done with
// frames for streams that are not open. Rules that must not break:
//
// - each call's handler hears of its end exactly once, or has asked for it itself.
// - a fault of one stream is answered by a reset of that stream; the connection goes on.
// - the connection's receive window counts every DATA frame, also those nobody reads.
// - a handler is never told of its end from inside its own reply, because it is in the middle of
//   something then: a stream that is given up there is told at the next flush.

import { TransientMap } from "../../../../core/model/transient-map.js";
import { handlerOf, type Services } from "../calls.js";
import { INTERNAL, OK } from "../grpc-status.js";
import { unfinishedBudget } from "../message-reader.js";
import { ClosedStreams, type StreamEnd } from "./closed-streams.js";
import type { FrameWriter } from "./frame-writer.js";
import {
  ConnectionError,
  END_STREAM,
  ENHANCE_YOUR_CALM,
  FLOW_CONTROL_ERROR,
  NO_ERROR,
  PADDED,
  PROTOCOL_ERROR,
  REFUSED_STREAM,
  RST_STREAM,
  STREAM_CLOSED,
} from "./frames.js";
import { unpadded, type HeaderBlock } from "./header-blocks.js";
import { RESETS_BURST_MAX, RESETS_PER_SECOND_MAX, STREAMS_MAX } from "./limits.js";
import { RateBucket } from "./rate-bucket.js";
import { ReceiveSide } from "./receive-side.js";
import { RequestHeads, type RequestHead } from "./request-heads.js";
import type { SendSide } from "./send-side.js";
import { H2cStream, type StreamHost } from "./stream.js";

export interface StreamsDeps {
  readonly services: Services;
  readonly maxMessageBytes: number;
  readonly writer: FrameWriter;
  readonly sender: SendSide;
  readonly now: () => number;
  /** The last stream has gone. */
  readonly onIdle: () => void;
}

export class Streams implements StreamHost {
  readonly #deps: StreamsDeps;
  readonly #open = new TransientMap<number, H2cStream>();
  readonly #closed = new ClosedStreams();
  readonly #heads = new RequestHeads();
  readonly #budget = unfinishedBudget();
  readonly #receiver: ReceiveSide;
  readonly #resets: RateBucket;
  /** Given up from inside of a reply; their handlers are told at the next flush. */
  readonly #givenUp: H2cStream[] = [];
  #lastId = 0;
  /** Streams above this are not served any more. */
  #lastServedId = Number.POSITIVE_INFINITY;

  constructor(deps: StreamsDeps) {
    this.#deps = deps;
    this.#receiver = new ReceiveSide(deps.writer);
    this.#resets = new RateBucket(RESETS_BURST_MAX, RESETS_PER_SECOND_MAX, deps.now());
  }

  get size(): number {
    return this.#open.size;
  }

  /** The highest stream the peer has opened. */
  get lastId(): number {
    return Math.min(this.#lastId, this.#lastServedId);
  }

  all(): Iterable<H2cStream> {
    return this.#open.values();
  }

  /** From now on new streams are left unanswered: the peer has been told which one was the last. */
  stopServing(): void {
    this.#lastServedId = this.#lastId;
  }

  // --- Frames of the peer. Each throws ConnectionError. ---

  headers(block: HeaderBlock): void {
    const { streamId } = block;
    const stream = this.#open.get(streamId);
    if (stream !== undefined) this.#trailers(stream, block);
    else if (streamId > this.#lastId) this.#begin(block);
    else this.#lateHeaders(block);
  }

  data(flags: number, streamId: number, buffer: Buffer, start: number, end: number): void {
    const length = end - start;
    this.#receiver.countConnection(length);
    let from = start;
    let to = end;
    if ((flags & PADDED) !== 0) ({ start: from, end: to } = unpadded(flags, buffer, start, end));
    const stream = this.#open.get(streamId);
    if (stream === undefined) {
      this.#lateData(streamId);
      return;
    }
    if (stream.peerEnded) {
      this.#reset(stream, STREAM_CLOSED);
      return;
    }
    const last = (flags & END_STREAM) !== 0;
    if (!this.#countBody(stream, to - from, last)) return;
    if (!last) this.#receiver.countStream(stream, length);
    // Before the messages: an end that is asked for by one of them needs no reset then.
    stream.peerEnded = last;
    if (!stream.over) {
      const status = stream.messages.push(buffer, from, to, stream);
      if (status !== OK) this.#giveBack(stream, status);
    }
    if (last) this.#peerEnded(stream);
  }

  /** The peer gives a stream up. */
  resetByPeer(streamId: number): void {
    this.#countReset();
    const stream = this.#open.get(streamId);
    if (stream !== undefined) this.#drop(stream, "theirs");
    else if (streamId > this.#lastId) throw idle("RST_STREAM");
  }

  windowUpdate(streamId: number, bytes: number): void {
    const stream = this.#open.get(streamId);
    if (stream === undefined) {
      if (streamId > this.#lastId) throw idle("WINDOW_UPDATE");
      return;
    }
    if (bytes === 0) this.#reset(stream, PROTOCOL_ERROR);
    else if (!this.#deps.sender.openStream(stream, bytes)) this.#reset(stream, FLOW_CONTROL_ERROR);
  }

  /** A frame that is wrong for its stream only. */
  resetById(streamId: number, code: number): void {
    const stream = this.#open.get(streamId);
    if (stream !== undefined) {
      this.#reset(stream, code);
      return;
    }
    this.#countReset();
    this.#writeReset(streamId, code);
  }

  // --- The ends ---

  /** Tells the handlers of streams that were given up from inside of a reply. */
  tellGivenUp(): void {
    for (const stream of this.#givenUp.splice(0)) stream.handler.closed();
  }

  /** The connection is gone: every open call is closed, and none is sent anything any more. */
  lost(): void {
    const streams = this.#open.values();
    this.#open.clear();
    // First all of them: one that closes may let another one go on, which must not be sent to.
    const open = streams.filter((stream) => !stream.over);
    for (const stream of streams) {
      stream.over = true;
      this.#release(stream);
    }
    this.tellGivenUp();
    for (const stream of open) stream.handler.closed();
  }

  // --- What the streams ask for ---

  reply(stream: H2cStream, message: Buffer): void {
    if (this.#deps.sender.message(stream, message)) return;
    stream.over = true;
    this.#givenUp.push(stream);
    this.#writeReset(stream.id, ENHANCE_YOUR_CALM);
    this.#remove(stream, "ours");
  }

  finish(stream: H2cStream, status: number): void {
    stream.over = true;
    stream.messages.stop();
    this.#deps.sender.end(stream, status);
  }

  sent(stream: H2cStream): void {
    // The answer is whole: the peer need not say the rest.
    if (!stream.peerEnded) this.#writeReset(stream.id, NO_ERROR);
    this.#remove(stream, stream.peerEnded ? "theirs" : "ours");
  }

  // --- Opening ---

  #begin(block: HeaderBlock): void {
    const { streamId } = block;
    if (streamId % 2 === 0) {
      throw new ConnectionError(PROTOCOL_ERROR, "a client's streams have odd numbers");
    }
    this.#lastId = streamId;
    const head = this.#heads.read(block.bytes);
    if (streamId > this.#lastServedId) {
      this.#closed.add(streamId, "ours");
    } else if (head === "malformed" || block.selfDependent || bodyMissing(head, block)) {
      this.resetById(streamId, PROTOCOL_ERROR);
    } else if (this.#open.size >= STREAMS_MAX) {
      this.resetById(streamId, REFUSED_STREAM);
    } else {
      this.#serve(head, block);
    }
  }

  #serve(head: RequestHead, block: HeaderBlock): void {
    const { services, sender, maxMessageBytes } = this.#deps;
    const stream = new H2cStream(this, {
      id: block.streamId,
      windowBytes: sender.initialWindowBytes,
      contentLength: head.contentLength,
      maxMessageBytes,
      budget: this.#budget,
    });
    this.#open.set(stream.id, stream);
    stream.handler = handlerOf(services, head.path, stream);
    if (!block.endStream) return;
    stream.peerEnded = true;
    this.#peerEnded(stream);
  }

  // --- Feeding ---

  #trailers(stream: H2cStream, block: HeaderBlock): void {
    const sound = this.#heads.readTrailers(block.bytes) && !block.selfDependent;
    if (stream.peerEnded) {
      this.#reset(stream, STREAM_CLOSED);
    } else if (!sound || !block.endStream || (stream.bodyBytes ?? 0) !== 0) {
      this.#reset(stream, PROTOCOL_ERROR);
    } else {
      stream.peerEnded = true;
      this.#peerEnded(stream);
    }
  }

  #peerEnded(stream: H2cStream): void {
    if (stream.over) return;
    if (stream.messages.between) stream.handler.ended();
    else this.#giveBack(stream, INTERNAL);
  }

  /** Ends a call because of its bytes. */
  #giveBack(stream: H2cStream, status: number): void {
    if (stream.over) return;
    stream.finish(status);
    stream.handler.closed();
  }

  /** Counts what was announced of a body; false when it is not what comes, and the stream is gone. */
  #countBody(stream: H2cStream, bytes: number, last: boolean): boolean {
    if (stream.bodyBytes === undefined) return true;
    stream.bodyBytes -= bytes;
    if (stream.bodyBytes >= 0 && (!last || stream.bodyBytes === 0)) return true;
    this.#reset(stream, PROTOCOL_ERROR);
    return false;
  }

  // --- Streams that are not open ---

  #lateHeaders(block: HeaderBlock): void {
    const end = this.#closed.endOf(block.streamId);
    if (end === undefined) {
      throw new ConnectionError(PROTOCOL_ERROR, "a stream below those that were opened before");
    }
    if (end === "theirs") throw new ConnectionError(STREAM_CLOSED, "HEADERS on a closed stream");
    // Ours: nobody reads it, but the tables have to follow.
    this.#heads.readTrailers(block.bytes);
  }

  #lateData(streamId: number): void {
    if (streamId > this.#lastId) throw idle("DATA");
    if (this.#closed.endOf(streamId) !== "ours") this.resetById(streamId, STREAM_CLOSED);
  }

  // --- Closing ---

  /** Ends a stream because of what the peer did on it. */
  #reset(stream: H2cStream, code: number): void {
    this.#countReset();
    this.#writeReset(stream.id, code);
    this.#drop(stream, "ours");
  }

  #drop(stream: H2cStream, end: StreamEnd): void {
    const { over } = stream;
    stream.over = true;
    this.#remove(stream, end);
    if (!over) stream.handler.closed();
  }

  #remove(stream: H2cStream, end: StreamEnd): void {
    this.#release(stream);
    this.#open.delete(stream.id);
    this.#closed.add(stream.id, end);
    if (this.#open.size === 0) this.#deps.onIdle();
  }

  #release(stream: H2cStream): void {
    stream.messages.stop();
    this.#deps.sender.drop(stream);
  }

  #countReset(): void {
    if (this.#resets.take(this.#deps.now())) return;
    throw new ConnectionError(ENHANCE_YOUR_CALM, "too many streams are reset");
  }

  #writeReset(streamId: number, code: number): void {
    this.#closed.add(streamId, "ours");
    this.#deps.writer.number(RST_STREAM, streamId, code);
  }
}

/** A body was announced, and the head already ends the request. */
function bodyMissing(head: RequestHead, block: HeaderBlock): boolean {
  return block.endStream && (head.contentLength ?? 0) > 0;
}

function idle(frame: string): ConnectionError {
  return new ConnectionError(PROTOCOL_ERROR, `${frame} on a stream that was never opened`);
}

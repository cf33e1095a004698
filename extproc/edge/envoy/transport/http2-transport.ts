// Transport over node:http2, with gRPC's framing done by hand: the well-proved protocol engine of the
// runtime, without the interceptors and streams grpc-js puts on top of it.
//
// Three settings shape it. `maxSessionMemory` is 10 MB by default and refuses streams above it. The
// windows are wide, because each update of one costs Envoy time. And the engine gives up a connection
// after about a thousand resets by the peer, which nothing can change; the peer then opens another.

import * as http2 from "node:http2";
import { TransientMap } from "../../../core/model/transient-map.js";
import type { ListenAddress } from "../../../core/model/config.js";
import type { Call, CallHandler } from "./call.js";
import { handlerOf, type Services } from "./calls.js";
import { INTERNAL, OK, STATUS_TEXTS } from "./grpc-status.js";
import {
  CONNECTION_WINDOW_BYTES,
  FRAME_BYTES_MAX,
  STREAM_WINDOW_BYTES,
  STREAMS_MAX,
} from "./h2c/limits.js";
import { HealthService } from "./health-service.js";
import { listenOn } from "./listen-on.js";
import {
  MESSAGE_HEAD_BYTES,
  MessageReader,
  unfinishedBudget,
  writeMessageHead,
  type UnfinishedBudget,
} from "./message-reader.js";
import type { OpenExchange, Transport, TransportOptions } from "./transport.js";

/** Megabytes a session may hold; the largest streams are bounded by other limits long before. */
const SESSION_MEMORY_MB = 4_096;
/** Replies of one stream that wait for the peer's window; then the stream is given up. */
const QUEUED_BYTES_MAX = 1_048_576;

const HEAD = { ":status": 200, "content-type": "application/grpc" } as const;

export class Http2Transport implements Transport {
  readonly #server: http2.Http2Server;
  readonly #services: Services;
  readonly #sessions = new Map<http2.ServerHttp2Session, UnfinishedBudget>();
  readonly #calls = new TransientMap<Http2Call, true>();

  constructor(open: OpenExchange, options: TransportOptions) {
    this.#services = { open, health: new HealthService() };
    this.#server = http2.createServer({
      maxSessionMemory: SESSION_MEMORY_MB,
      settings: {
        maxConcurrentStreams: STREAMS_MAX,
        initialWindowSize: STREAM_WINDOW_BYTES,
        maxFrameSize: FRAME_BYTES_MAX,
      },
    });
    this.#server.on("session", (session) => {
      this.#sessions.set(session, unfinishedBudget());
      session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
      session.on("error", () => undefined);
      session.on("close", () => this.#sessions.delete(session));
    });
    this.#server.on("stream", (stream, headers) => {
      const session = stream.session as http2.ServerHttp2Session | undefined;
      const budget = session === undefined ? undefined : this.#sessions.get(session);
      const messages = new MessageReader(options.maxReceiveBytes, budget ?? unfinishedBudget());
      const call = new Http2Call(stream, messages);
      this.#calls.set(call, true);
      stream.on("close", () => {
        this.#calls.delete(call);
        call.lost();
      });
      call.serve(handlerOf(this.#services, grpcPath(headers), call));
    });
  }

  listen(address: ListenAddress): Promise<ListenAddress> {
    return listenOn(this.#server, address);
  }

  setReady(ready: boolean): void {
    this.#services.health.setReady(ready);
  }

  close(graceMs: number): Promise<void> {
    this.#services.health.close();
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        for (const session of this.#sessions.keys()) session.destroy();
      }, graceMs);
      this.#server.close(() => {
        clearTimeout(timer);
        // A server has closed before its streams say so, and every exchange is to hear of its end first.
        for (const call of this.#calls.keys()) call.lost();
        resolve();
      });
      for (const session of this.#sessions.keys()) session.close();
    });
  }
}

/** The path of a gRPC request; undefined for any other. */
function grpcPath(headers: http2.IncomingHttpHeaders): string | undefined {
  const isGrpc = headers["content-type"]?.startsWith("application/grpc") === true;
  return isGrpc && headers[":method"] === "POST" ? headers[":path"] : undefined;
}

class Http2Call implements Call {
  readonly #stream: http2.ServerHttp2Stream;
  readonly #messages: MessageReader;
  #handler: CallHandler | undefined;
  #over = false;

  constructor(stream: http2.ServerHttp2Stream, messages: MessageReader) {
    this.#stream = stream;
    this.#messages = messages;
  }

  /** Feeds the handler that was made with this call. */
  serve(handler: CallHandler): void {
    const stream = this.#stream;
    this.#handler = handler;
    stream.on("data", (data: Buffer) => {
      if (this.#over) return;
      const status = this.#messages.push(data, 0, data.length, handler);
      if (status !== OK) this.#giveBack(status);
    });
    stream.on("end", () => {
      if (this.#over) return;
      if (this.#messages.between) handler.ended();
      else this.#giveBack(INTERNAL);
    });
    // Every error is followed by "close".
    stream.on("error", () => undefined);
  }

  reply(message: Buffer): void {
    const stream = this.#stream;
    if (this.#over || stream.destroyed) return;
    if (stream.writableLength > QUEUED_BYTES_MAX) {
      // The end is told by "close", not from inside of a reply.
      stream.close(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
      return;
    }
    if (!stream.headersSent) stream.respond(HEAD, { waitForTrailers: true });
    const framed = Buffer.allocUnsafe(MESSAGE_HEAD_BYTES + message.length);
    message.copy(framed, writeMessageHead(framed, 0, message.length));
    stream.write(framed);
  }

  finish(status: number): void {
    const stream = this.#stream;
    if (this.#over) return;
    this.#over = true;
    this.#messages.stop();
    if (stream.destroyed) return;
    const text = STATUS_TEXTS.get(status) ?? "";
    const trailers = { "grpc-status": String(status), ...(text && { "grpc-message": text }) };
    if (stream.headersSent) {
      stream.once("wantTrailers", () => {
        stream.sendTrailers(trailers);
      });
      stream.end();
    } else {
      stream.respond({ ...HEAD, ...trailers }, { endStream: true });
    }
    // What the peer still sends is dropped, or the stream would never close.
    stream.resume();
  }

  /** The stream is gone. */
  lost(): void {
    this.#messages.stop();
    if (this.#over) return;
    this.#over = true;
    this.#handler?.closed();
  }

  /** Ends the call because of its bytes. */
  #giveBack(status: number): void {
    if (this.#over) return;
    this.finish(status);
    this.#handler?.closed();
  }
}

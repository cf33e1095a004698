// Transport over an HTTP/2 server of our own, for one trusted peer on a unix socket or on loopback. It
// serves ext_proc and the health service and knows nothing else of HTTP/2 than they need, which makes
// it several times cheaper than a general server. This file owns the sockets: when they are read, when
// what was collected is written, and when they are given up.

import { createServer, type Server, type Socket } from "node:net";
import type { ListenAddress } from "../../../../core/model/config.js";
import { now } from "../../../runtime/clock.js";
import type { Services } from "../calls.js";
import { HealthService } from "../health-service.js";
import { listenOn } from "../listen-on.js";
import type { OpenExchange, Transport, TransportOptions } from "../transport.js";
import { H2cConnection } from "./connection.js";
import { SOCKET_LIMITS, type SocketLimits } from "./limits.js";

export class H2cTransport implements Transport {
  readonly #server: Server;
  readonly #services: Services;
  readonly #options: TransportOptions;
  readonly #limits: SocketLimits;
  readonly #peers = new Set<Peer>();

  /** `limits` are for tests. */
  constructor(open: OpenExchange, options: TransportOptions, limits: SocketLimits = SOCKET_LIMITS) {
    this.#services = { open, health: new HealthService() };
    this.#options = options;
    this.#limits = limits;
    const socketOptions = { noDelay: true, highWaterMark: limits.readPauseBytes };
    this.#server = createServer(socketOptions, (socket) => {
      this.#accept(socket);
    });
    this.#server.maxConnections = limits.connectionsMax;
  }

  listen(address: ListenAddress): Promise<ListenAddress> {
    return listenOn(this.#server, address);
  }

  setReady(ready: boolean): void {
    this.#services.health.setReady(ready);
  }

  close(graceMs: number): Promise<void> {
    this.#services.health.close();
    for (const peer of this.#peers) peer.drain();
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        for (const peer of this.#peers) peer.cut();
      }, graceMs);
      this.#server.close(() => {
        clearTimeout(timer);
        // A server has closed before its sockets say so, and every exchange is to hear of its end first.
        for (const peer of this.#peers) peer.cut();
        resolve();
      });
    });
  }

  #accept(socket: Socket): void {
    const peer = new Peer(socket, this.#services, this.#options, this.#limits);
    this.#peers.add(peer);
    socket.on("close", () => {
      this.#peers.delete(peer);
    });
  }
}

/** A connection and its socket. */
class Peer {
  readonly #socket: Socket;
  readonly #limits: SocketLimits;
  readonly #connection: H2cConnection;
  #flushAsked = false;
  #timer: NodeJS.Timeout;
  /** Runs while the peer does not read what was written. */
  #stalled: NodeJS.Timeout | undefined;

  constructor(socket: Socket, services: Services, options: TransportOptions, limits: SocketLimits) {
    this.#socket = socket;
    this.#limits = limits;
    this.#connection = new H2cConnection({
      services,
      maxMessageBytes: options.maxReceiveBytes,
      onFault: options.onFault,
      now,
      flushLater: () => {
        this.#flushLater();
      },
      write: (chunks) => {
        this.#write(chunks);
      },
      end: () => {
        this.#end();
      },
    });
    this.#timer = setTimeout(() => {
      if (!this.#connection.greeted) this.cut();
    }, limits.prefaceTimeoutMs).unref();
    socket.on("data", (chunk) => {
      this.#receive(chunk);
    });
    socket.on("drain", () => {
      clearTimeout(this.#stalled);
      this.#stalled = undefined;
      socket.resume();
    });
    // Every error is followed by "close".
    socket.on("error", () => undefined);
    socket.on("close", () => {
      clearTimeout(this.#timer);
      clearTimeout(this.#stalled);
      this.#connection.lost();
    });
  }

  drain(): void {
    this.#connection.drain();
  }

  /** Tells every open exchange at once, and closes. */
  cut(): void {
    this.#connection.lost();
    this.#socket.destroy();
  }

  /** What a chunk is answered with leaves at once, in one write, before anything that can wait. */
  #receive(chunk: Buffer): void {
    this.#flushAsked = true;
    this.#connection.receive(chunk);
    this.#flushAsked = false;
    this.#connection.flush();
  }

  /** At the end of the turn, so that all frames of a turn leave in one write. */
  #flushLater(): void {
    if (this.#flushAsked) return;
    this.#flushAsked = true;
    setImmediate(() => {
      this.#flushAsked = false;
      this.#connection.flush();
    });
  }

  #write(chunks: readonly Buffer[]): void {
    const socket = this.#socket;
    socket.cork();
    for (const chunk of chunks) socket.write(chunk);
    socket.uncork();
    if (socket.writableLength > this.#limits.unsentBytesMax) this.cut();
    // A peer that does not read is not read either: it cannot make us answer for ever.
    else if (socket.writableNeedDrain) {
      socket.pause();
      this.#stalled ??= setTimeout(() => {
        this.cut();
      }, this.#limits.stalledMs).unref();
    }
  }

  /** The peer has a moment to read our last words; what it still sends is read and dropped. */
  #end(): void {
    this.#socket.resume();
    this.#socket.end();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.cut();
    }, this.#limits.lingerMs).unref();
  }
}

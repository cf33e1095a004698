// What a session needs of the wire below it: one exchange per HTTP request, messages in, replies out.
// The session knows nothing of gRPC, so one server can take another one's place. There are three
// (docs/transports.md), and one suite of contract tests holds them to this contract.

import type { ListenAddress } from "../../../core/model/config.js";

/** The way back to Envoy for one request. Calls after the exchange has closed do nothing. */
export interface Exchange {
  /** Sends one encoded ProcessingResponse. The bytes must not be changed afterwards. */
  send(reply: Buffer): void;
  /** Gives the stream up with an error; Envoy goes on without Weir. */
  abort(): void;
}

/** Receives what Envoy sends for one request. It must not throw. */
export interface ExchangeHandler {
  /**
   * One encoded ProcessingRequest. The bytes never change, but they may share memory with what came
   * in with them, up to a megabyte: who keeps any for longer than the call copies them.
   */
  message(bytes: Buffer): void;
  /** Envoy will send nothing more; called exactly once, however the exchange ended. */
  closed(): void;
}

export type OpenExchange = (exchange: Exchange) => ExchangeHandler;

export interface TransportOptions {
  /** Largest message taken, in bytes: the largest body plus room for its framing. */
  readonly maxReceiveBytes: number;
  /** Hears of a fault of the transport itself, which must not end the process. It must not throw. */
  readonly onFault: (error: unknown) => void;
}

export interface Transport {
  /** Binds and serves. Returns the address, with the port that was chosen for port 0. */
  listen(address: ListenAddress): Promise<ListenAddress>;
  /** Publishes readiness on the gRPC health service; liveness does not change. */
  setReady(ready: boolean): void;
  /** Takes no new connections, lets open exchanges end for at most `graceMs`, then cuts them. */
  close(graceMs: number): Promise<void>;
}

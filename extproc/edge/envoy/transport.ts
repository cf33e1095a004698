// What a session needs of the wire below it: one exchange per HTTP request, messages in, replies out.
// The session knows nothing of gRPC, so another server can take this one's place.

import type { ListenAddress } from "../../core/model/config.js";

/** The way back to Envoy for one request. Calls after the exchange has closed do nothing. */
export interface Exchange {
  /** Sends one encoded ProcessingResponse. */
  send(reply: Buffer): void;
  /** Gives the stream up with an error; Envoy goes on without Weir. */
  abort(): void;
}

/** Receives what Envoy sends for one request. */
export interface ExchangeHandler {
  /** One encoded ProcessingRequest. */
  message(bytes: Buffer): void;
  /** Envoy will send nothing more; called exactly once, however the exchange ended. */
  closed(): void;
}

export type OpenExchange = (exchange: Exchange) => ExchangeHandler;

export interface Transport {
  /** Binds and serves. Returns the address, with the port that was chosen for port 0. */
  listen(address: ListenAddress): Promise<ListenAddress>;
  /** Publishes readiness on the gRPC health service; liveness does not change. */
  setReady(ready: boolean): void;
  /** Takes no new connections, lets open exchanges end for at most `graceMs`, then cuts them. */
  close(graceMs: number): Promise<void>;
}

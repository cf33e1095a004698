// What a gRPC call is to the own servers: messages in, messages and one status out. Carriers (h2c,
// node:http2) make calls, services handle them, and neither knows the other.

export const EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor";
export const PROCESS_PATH = `/${EXT_PROC_SERVICE}/Process`;
export const HEALTH_CHECK_PATH = "/grpc.health.v1.Health/Check";
export const HEALTH_WATCH_PATH = "/grpc.health.v1.Health/Watch";

/** The way back of one call. Calls after `finish`, or after the call was closed, do nothing. */
export interface Call {
  reply(message: Buffer): void;
  /** Ends the call after what was replied. Whatever the peer still sends is not read. */
  finish(status: number): void;
}

/** Receives one call. Nothing is called any more after `finish` or `closed`. */
export interface CallHandler {
  message(bytes: Buffer): void;
  /** The peer sends no more messages and waits for the end. */
  ended(): void;
  /** The call is over without a `finish`: reset by the peer, its connection gone, a broken message. */
  closed(): void;
}

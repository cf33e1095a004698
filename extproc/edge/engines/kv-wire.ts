// What do the sockets of a feed have in common? Options of every connection, how many there may be, the
// eight-byte sequence, the port of a rank, and the turn of the event loop that is given up between two
// messages: a socket with messages in stock resolves at once, and an engine that floods would otherwise
// hold up everything else.

import { context } from "zeromq";

/** A heartbeat finds a connection whose other end has vanished without a word. */
const HEARTBEAT_INTERVAL_MS = 10_000;
const HEARTBEAT_TIMEOUT_MS = 30_000;

/**
 * What ZeroMQ itself refuses to receive, for memory's sake: it ends the connection. More than twice what a
 * feed takes, so that a message that is too large but not absurd is refused alone.
 */
export const MESSAGE_MAX_WIRE_BYTES = 10 * 1024 * 1024;

/**
 * Messages in stock on a connection, which with the largest messages are 80 MiB. So few are enough: when
 * they are not taken at once, the connection's own buffers fill up and then the engine's queue, of 100,000
 * batches by default. What that loses is a gap like any other.
 */
export const RECEIVE_HIGH_WATER_MESSAGES = 8;

/**
 * Sockets of the process: two for each feed and one for each replay, for some 20,000 feeds. ZeroMQ's own
 * limit is 1,023, and it is read when the first socket is made; each one costs it twelve bytes.
 */
export const SOCKETS_MAX = 65_535;
context.maxSockets = SOCKETS_MAX;

export interface ConnectOptions {
  readonly linger: number;
  readonly ipv6: boolean;
  readonly heartbeatInterval: number;
  readonly heartbeatTimeout: number;
  readonly receiveHighWaterMark: number;
}

export function connectOptions(endpoint: string): ConnectOptions {
  return {
    linger: 0,
    ipv6: endpoint.includes("["),
    heartbeatInterval: HEARTBEAT_INTERVAL_MS,
    heartbeatTimeout: HEARTBEAT_TIMEOUT_MS,
    receiveHighWaterMark: RECEIVE_HIGH_WATER_MESSAGES,
  };
}

/** The sequence in a frame; undefined when it is none, or above 2^53 - 1. */
export function readSequence(frame: Buffer): number | undefined {
  if (frame.length !== 8) return undefined;
  const sequence = Number(frame.readBigUInt64BE());
  return Number.isSafeInteger(sequence) ? sequence : undefined;
}

/** The endpoint of a rank: engines add the rank to the port. */
export function endpointOf(endpoint: string, rank: number): string {
  const colon = endpoint.lastIndexOf(":");
  const port = Number(endpoint.slice(colon + 1));
  return `${endpoint.slice(0, colon + 1)}${String(port + rank)}`;
}

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** What went wrong with a socket, and what can be done when there are none left. */
export function faultOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (!hasCode(error, "EMFILE")) return error.message;
  return `no further socket can be had (${error.message}); raise the limit of open files`;
}

/** Whether an error of ZeroMQ has this code of the system's. */
export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

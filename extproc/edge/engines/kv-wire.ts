// What do the sockets of a feed have in common? Options of every connection, the eight-byte sequence, the
// port of a rank, and the turn of the event loop that is given up between two messages: a socket with
// messages in stock resolves at once, and an engine that floods would otherwise hold up everything else.

/** A heartbeat finds a connection whose other end has vanished without a word. */
const HEARTBEAT_INTERVAL_MS = 10_000;
const HEARTBEAT_TIMEOUT_MS = 30_000;

/**
 * What ZeroMQ itself refuses to receive, for memory's sake: it ends the connection. Four times what a feed
 * takes, so that a message that is too large but not absurd is refused alone.
 */
export const MESSAGE_MAX_WIRE_BYTES = 16 * 1024 * 1024;

export interface ConnectOptions {
  readonly linger: number;
  readonly ipv6: boolean;
  readonly heartbeatInterval: number;
  readonly heartbeatTimeout: number;
}

export function connectOptions(endpoint: string): ConnectOptions {
  return {
    linger: 0,
    ipv6: endpoint.includes("["),
    heartbeatInterval: HEARTBEAT_INTERVAL_MS,
    heartbeatTimeout: HEARTBEAT_TIMEOUT_MS,
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

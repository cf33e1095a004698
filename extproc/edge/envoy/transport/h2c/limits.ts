// Every bound of the h2c server, with the reason for its default; the other servers share those of
// streams, windows and frames. The peer is trusted, so a bound is
// no rate plan: it is set where only a broken peer gets, and keeps such a one from taking the process
// with it.

/** Longest frame that is taken. Envoy fills frames up to it, so most bodies come in one piece. */
export const FRAME_BYTES_MAX = 1_048_576;
/** Bytes of one header block as sent, and as counted by HPACK once decoded. Envoy's have about 200. */
export const HEADER_BLOCK_BYTES_MAX = 16_384;
/** Frames of one header block: more than this many are padding for its own sake. */
export const HEADER_BLOCK_FRAMES_MAX = 16;
/** HPACK's dynamic table as the protocol sets it out; Envoy's headers fill a tenth of it. */
export const HEADER_TABLE_BYTES_MAX = 4_096;
/** Open streams of a connection: as many requests as Envoy is configured to have in flight. */
export const STREAMS_MAX = 100_000;
/**
 * Bytes a peer may send on one stream, and on all together, before it must wait for a window update.
 * Wide, because what arrives is read in the same turn and each update costs Envoy time.
 */
export const STREAM_WINDOW_BYTES = 16 * 1024 * 1024;
export const CONNECTION_WINDOW_BYTES = 1024 * 1024 * 1024;
/**
 * Replies of a connection that wait for the peer's windows. A reply has some hundred bytes, so this
 * is the answer to more than ten thousand messages the peer has sent and not let us answer.
 */
export const QUEUED_BYTES_MAX = 16 * 1024 * 1024;
/**
 * Streams reset by the peer, or because of it, as a burst and per second. An Envoy without graceful
 * close resets each stream it ends, so the limit lies above any rate of requests one process serves.
 */
export const RESETS_BURST_MAX = 50_000;
export const RESETS_PER_SECOND_MAX = 20_000;
/**
 * Frames that only cost (SETTINGS, PING, DATA without a byte or an end), as a burst and per second.
 * Envoy sends a PING every few seconds and SETTINGS once.
 */
export const IDLE_FRAMES_BURST_MAX = 1_000;
export const IDLE_FRAMES_PER_SECOND_MAX = 100;

/** Bounds of the sockets under the connections. */
export interface SocketLimits {
  /** Open connections. Envoy has one per worker thread, and a second one in a change-over. */
  readonly connectionsMax: number;
  /** Bytes that were written and that the peer has not taken, from which on it is not read either. */
  readonly readPauseBytes: number;
  /** The same, and the connection is given up: held requests may be answered without being read. */
  readonly unsentBytesMax: number;
  /** Time a new connection has for its preface. A local peer sends it with the first packet. */
  readonly prefaceTimeoutMs: number;
  /** Time between our last frame and the end of the socket, in which the peer may read it. */
  readonly lingerMs: number;
  /** Time in which a peer may read nothing of what was written: then it is as good as gone. */
  readonly stalledMs: number;
}

export const SOCKET_LIMITS: SocketLimits = {
  connectionsMax: 1_024,
  readPauseBytes: 1_048_576,
  unsentBytesMax: 64 * 1024 * 1024,
  prefaceTimeoutMs: 10_000,
  lingerMs: 1_000,
  stalledMs: 60_000,
};

// The numbers of HTTP/2 (RFC 9113, section 6, 7 and 11) as far as the h2c server speaks it, and the
// error that ends a connection.

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
export const FRAME_HEAD_BYTES = 9;
/** Largest window, and largest stream id. */
export const MAX_31_BITS = 0x7fff_ffff;
/** What holds for both sides until SETTINGS say otherwise. */
export const DEFAULT_WINDOW_BYTES = 65_535;
export const DEFAULT_FRAME_BYTES = 16_384;
const FRAME_BYTES_LIMIT = 16_777_215;

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

export const ACK = 0x1;
export const END_STREAM = 0x1;
export const END_HEADERS = 0x4;
export const PADDED = 0x8;
export const HAS_PRIORITY = 0x20;

export const SETTINGS_ENABLE_PUSH = 2;
export const SETTINGS_MAX_CONCURRENT_STREAMS = 3;
export const SETTINGS_INITIAL_WINDOW_SIZE = 4;
export const SETTINGS_MAX_FRAME_SIZE = 5;
export const SETTINGS_MAX_HEADER_LIST_SIZE = 6;

export const NO_ERROR = 0;
export const PROTOCOL_ERROR = 1;
export const INTERNAL_ERROR = 2;
export const FLOW_CONTROL_ERROR = 3;
export const STREAM_CLOSED = 5;
export const FRAME_SIZE_ERROR = 6;
export const REFUSED_STREAM = 7;
export const COMPRESSION_ERROR = 9;
export const ENHANCE_YOUR_CALM = 11;

/** The connection cannot go on; the peer is told the code in a GOAWAY. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  readonly code: number;

  constructor(code: number, reason: string) {
    super(reason);
    this.code = code;
  }
}

/** Writes the head of a frame; returns the offset behind it. */
export function writeFrameHead(
  buffer: Buffer,
  offset: number,
  frame: {
    readonly length: number;
    readonly type: number;
    readonly flags: number;
    readonly streamId: number;
  },
): number {
  buffer.writeUInt32BE(frame.length * 256 + frame.type, offset);
  buffer[offset + 4] = frame.flags;
  return buffer.writeUInt32BE(frame.streamId, offset + 5);
}

/** The payload of a SETTINGS frame. */
export function settingsPayload(settings: readonly (readonly [number, number])[]): Buffer {
  const payload = Buffer.alloc(settings.length * 6);
  settings.forEach(([id, value], index) => {
    payload.writeUInt16BE(id, index * 6);
    payload.writeUInt32BE(value, index * 6 + 2);
  });
  return payload;
}

/** The payload of a GOAWAY frame; the reason is for whoever reads the peer's log. */
export function goawayPayload(lastId: number, code: number, reason: string): Buffer {
  const payload = Buffer.alloc(8);
  payload.writeUInt32BE(lastId);
  payload.writeUInt32BE(code, 4);
  return Buffer.concat([payload, Buffer.from(reason, "latin1")]);
}

/** Throws ConnectionError unless a payload has the one length its type allows. */
export function checkLength(payload: Buffer, bytes: number): void {
  if (payload.length !== bytes) {
    throw new ConnectionError(FRAME_SIZE_ERROR, "a frame is not as long as its type asks for");
  }
}

/** Settings of the peer that change what we send. */
export interface PeerSettings {
  initialWindowBytes: number;
  maxFrameBytes: number;
}

/** Reads a SETTINGS payload into `settings`. Unknown settings are passed over, as the protocol asks. */
export function readSettings(payload: Buffer, settings: PeerSettings): void {
  if (payload.length % 6 !== 0) {
    throw new ConnectionError(FRAME_SIZE_ERROR, "SETTINGS is no multiple of six bytes");
  }
  for (let at = 0; at < payload.length; at += 6) {
    const value = payload.readUInt32BE(at + 2);
    switch (payload.readUInt16BE(at)) {
      case SETTINGS_ENABLE_PUSH:
        if (value > 1) throw new ConnectionError(PROTOCOL_ERROR, "ENABLE_PUSH is not 0 or 1");
        break;
      case SETTINGS_INITIAL_WINDOW_SIZE:
        if (value > MAX_31_BITS) {
          throw new ConnectionError(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is above 2^31 - 1");
        }
        settings.initialWindowBytes = value;
        break;
      case SETTINGS_MAX_FRAME_SIZE:
        if (value < DEFAULT_FRAME_BYTES || value > FRAME_BYTES_LIMIT) {
          throw new ConnectionError(PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds");
        }
        settings.maxFrameBytes = value;
        break;
      default:
      // The others bound what a server must not do anyway, or are not known.
    }
  }
}

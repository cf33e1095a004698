// The other end of an h2c connection, without sockets: writes frames by hand, reads what comes back,
// and records what the exchanges were told. Header blocks are plain literals, so that nothing of the
// product's own HPACK is needed to make them.

import type { Exchange } from "../../extproc/edge/envoy/transport/transport.js";
import { PROCESS_PATH } from "../../extproc/edge/envoy/transport/call.js";
import { HealthService } from "../../extproc/edge/envoy/transport/health-service.js";
import { H2cConnection } from "../../extproc/edge/envoy/transport/h2c/connection.js";

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
const HEAD_BYTES = 9;

export const TYPE = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
} as const;
export const END_STREAM = 1;
export const ACK = 1;
export const END_HEADERS = 4;
export const PADDED = 8;
export const HAS_PRIORITY = 32;

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

export function frame(
  type: number,
  flags: number,
  streamId: number,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, payload]);
}

/** Whole frames; throws when bytes are left over. */
export function parseFrames(bytes: Buffer): Frame[] {
  const frames: Frame[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = at + HEAD_BYTES + bytes.readUIntBE(at, 3);
    if (end > bytes.length) throw new Error("half a frame was written");
    frames.push({
      type: bytes.readUInt8(at + 3),
      flags: bytes.readUInt8(at + 4),
      streamId: bytes.readUInt32BE(at + 5),
      payload: bytes.subarray(at + HEAD_BYTES, end),
    });
    at = end;
  }
  return frames;
}

export function uint32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, index) => bytes.writeUInt32BE(value, 4 * index));
  return bytes;
}

export function settings(...pairs: readonly (readonly [number, number])[]): Buffer {
  const payload = pairs.flatMap(([id, value]) => [0, id, ...uint32(value)]);
  return frame(TYPE.settings, 0, 0, Buffer.from(payload));
}

/** An HPACK text: a length of up to two bytes (0 to 254), or more, then the characters. */
function text(value: string): Buffer {
  const length: number[] = [];
  if (value.length < 127) length.push(value.length);
  else {
    length.push(127);
    let rest = value.length - 127;
    for (; rest >= 128; rest = Math.floor(rest / 128)) length.push((rest % 128) + 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), Buffer.from(value, "latin1")]);
}

/** A header block of literals without indexing. */
export function literals(fields: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(
    fields.flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]),
  );
}

export const HEAD: readonly (readonly [string, string])[] = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", PROCESS_PATH],
  [":authority", "weir.test"],
  ["te", "trailers"],
  ["content-type", "application/grpc"],
];

export function open(streamId: number, fields = HEAD, flags = 0): Buffer {
  return frame(TYPE.headers, END_HEADERS | flags, streamId, literals(fields));
}

/** A gRPC message with its head. */
export function grpc(message: Uint8Array | string, flag = 0): Buffer {
  const bytes = Buffer.from(message);
  return Buffer.concat([Buffer.from([flag]), uint32(bytes.length), bytes]);
}

export function data(streamId: number, payload: Uint8Array, flags = 0): Buffer {
  return frame(TYPE.data, flags, streamId, payload);
}

/** What one exchange was told, and its way back. */
export interface ExchangeRecord {
  readonly exchange: Exchange;
  readonly messages: string[];
  closed: number;
}

export interface PeerOptions {
  readonly maxMessageBytes?: number;
  /** Called with every message, for example to answer it. */
  readonly onMessage?: (record: ExchangeRecord, bytes: Buffer) => void;
  readonly onClosed?: (record: ExchangeRecord) => void;
}

export class H2cPeer {
  readonly exchanges: ExchangeRecord[] = [];
  readonly connection: H2cConnection;
  readonly health = new HealthService();
  readonly faults: unknown[] = [];
  /** Writes so far; each is what one turn of the event loop sent. */
  writes = 0;
  ended = false;
  /** Milliseconds of the connection's clock. */
  nowMs = 0;
  #flushAsked = false;
  #received: Buffer[] = [];

  constructor(options: PeerOptions = {}) {
    this.connection = new H2cConnection({
      services: {
        health: this.health,
        open: (exchange) => this.#open(exchange, options),
      },
      maxMessageBytes: options.maxMessageBytes ?? 1_000,
      now: () => this.nowMs,
      flushLater: () => {
        this.#flushAsked = true;
      },
      write: (chunks) => {
        this.writes += 1;
        this.#received.push(...chunks);
      },
      end: () => {
        this.ended = true;
      },
      onFault: (error) => this.faults.push(error),
    });
  }

  /** A peer that has greeted, with what the server said to that read. */
  static greeted(options: PeerOptions = {}, ...first: readonly Buffer[]): H2cPeer {
    const peer = new H2cPeer(options);
    peer.send(PREFACE, first.length === 0 ? settings() : Buffer.concat(first));
    return peer;
  }

  /** Sends bytes as one arrival and returns the frames that come back in that turn. */
  send(...bytes: readonly Uint8Array[]): Frame[] {
    this.connection.receive(Buffer.concat(bytes));
    return this.turn();
  }

  /** The end of a turn of the event loop. */
  turn(): Frame[] {
    while (this.#flushAsked) {
      this.#flushAsked = false;
      this.connection.flush();
    }
    return parseFrames(Buffer.concat(this.#received.splice(0)));
  }

  exchange(index = 0): ExchangeRecord {
    const record = this.exchanges[index];
    if (record === undefined) throw new Error(`there is no exchange ${String(index)}`);
    return record;
  }

  #open(exchange: Exchange, options: PeerOptions): ReturnType<typeof handlerOf> {
    const record: ExchangeRecord = { exchange, messages: [], closed: 0 };
    this.exchanges.push(record);
    return handlerOf(record, options);
  }
}

function handlerOf(
  record: ExchangeRecord,
  options: PeerOptions,
): { readonly message: (bytes: Buffer) => void; readonly closed: () => void } {
  return {
    message: (bytes) => {
      record.messages.push(bytes.toString("latin1"));
      options.onMessage?.(record, bytes);
    },
    closed: () => {
      record.closed += 1;
      options.onClosed?.(record);
    },
  };
}

const TYPE_NAMES = new Map<number, string>(
  Object.entries(TYPE).map(([name, number]) => [number, name]),
);

/** One word or a few for a frame, for comparisons: `reset 3 code 8`, `data 1 "…"`, `goaway 7 code 1`. */
export function words({ type, flags, streamId, payload }: Frame): string {
  const id = streamId === 0 ? "" : ` ${String(streamId)}`;
  const end = (type === TYPE.data || type === TYPE.headers) && (flags & END_STREAM) !== 0;
  const detail = (): string => {
    switch (type) {
      case TYPE.data:
        return ` ${String(payload.length)} bytes`;
      case TYPE.headers:
        return grpcStatus(payload);
      case TYPE.reset:
        return ` code ${String(payload.readUInt32BE())}`;
      case TYPE.goaway:
        return ` last ${String(payload.readUInt32BE())} code ${String(payload.readUInt32BE(4))}`;
      case TYPE.window:
        return ` ${String(payload.readUInt32BE())}`;
      case TYPE.settings:
      case TYPE.ping:
        return (flags & ACK) === 0 ? "" : " ack";
      default:
        return "";
    }
  };
  return `${TYPE_NAMES.get(type) ?? "unknown"}${id}${detail()}${end ? " end" : ""}`;
}

/** Our own blocks are plain literals, so the status can be read without HPACK. */
function grpcStatus(block: Buffer): string {
  const found = /grpc-status.(\d+)/s.exec(block.toString("latin1"));
  const head = block[0] === 0x88 ? " 200" : "";
  return `${head}${found === null ? "" : ` status ${found[1] ?? ""}`}`;
}

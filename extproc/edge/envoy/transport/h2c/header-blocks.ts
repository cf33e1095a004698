// Puts header blocks together from HEADERS and CONTINUATION frames. Between the two no other frame may
// come, and both the bytes and the frames of one block are bounded.

import {
  ConnectionError,
  END_HEADERS,
  END_STREAM,
  ENHANCE_YOUR_CALM,
  FRAME_SIZE_ERROR,
  HAS_PRIORITY,
  MAX_31_BITS,
  PADDED,
  PROTOCOL_ERROR,
} from "./frames.js";
import { HEADER_BLOCK_BYTES_MAX, HEADER_BLOCK_FRAMES_MAX } from "./limits.js";

export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** The stream is said to depend on itself. */
  readonly selfDependent: boolean;
  /** Shares memory with what arrived. */
  readonly bytes: Buffer;
}

interface OpenBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  readonly selfDependent: boolean;
  readonly parts: Buffer[];
  bytes: number;
}

export class HeaderBlocks {
  #open: OpenBlock | undefined;

  /** A block has begun and not ended: only its CONTINUATION may follow. */
  get open(): boolean {
    return this.#open !== undefined;
  }

  /** Takes a HEADERS frame; returns its block when it is whole. */
  headers(
    flags: number,
    streamId: number,
    buffer: Buffer,
    start: number,
    end: number,
  ): HeaderBlock | undefined {
    const content = unpadded(flags, buffer, start, end);
    let from = content.start;
    let selfDependent = false;
    if ((flags & HAS_PRIORITY) !== 0) {
      if (content.end - from < 5) throw tooShort();
      selfDependent = (buffer.readUInt32BE(from) & MAX_31_BITS) === streamId;
      from += 5;
    }
    const bytes = buffer.subarray(from, content.end);
    checkLength(bytes.length);
    const endStream = (flags & END_STREAM) !== 0;
    if ((flags & END_HEADERS) !== 0) return { streamId, endStream, selfDependent, bytes };
    this.#open = { streamId, endStream, selfDependent, parts: [bytes], bytes: bytes.length };
    return undefined;
  }

  /** Takes a CONTINUATION frame; returns the block when it is whole. */
  continuation(flags: number, streamId: number, payload: Buffer): HeaderBlock | undefined {
    const open = this.#open;
    if (open?.streamId !== streamId) {
      throw new ConnectionError(PROTOCOL_ERROR, "CONTINUATION of no header block");
    }
    open.parts.push(payload);
    open.bytes += payload.length;
    checkLength(open.bytes);
    if (open.parts.length > HEADER_BLOCK_FRAMES_MAX) {
      throw new ConnectionError(ENHANCE_YOUR_CALM, "a header block has too many frames");
    }
    if ((flags & END_HEADERS) === 0) return undefined;
    this.#open = undefined;
    const { endStream, selfDependent } = open;
    return { streamId, endStream, selfDependent, bytes: Buffer.concat(open.parts, open.bytes) };
  }
}

/** The range of a payload without its padding. Throws ConnectionError. */
export function unpadded(
  flags: number,
  buffer: Buffer,
  start: number,
  end: number,
): { readonly start: number; readonly end: number } {
  if ((flags & PADDED) === 0) return { start, end };
  const padding = start < end ? buffer[start] : undefined;
  if (padding === undefined) throw tooShort();
  if (padding >= end - start) {
    throw new ConnectionError(PROTOCOL_ERROR, "padding is longer than its frame");
  }
  return { start: start + 1, end: end - padding };
}

function checkLength(bytes: number): void {
  if (bytes > HEADER_BLOCK_BYTES_MAX) {
    throw new ConnectionError(ENHANCE_YOUR_CALM, "a header block is too long");
  }
}

function tooShort(): ConnectionError {
  return new ConnectionError(FRAME_SIZE_ERROR, "a frame is shorter than its fields");
}

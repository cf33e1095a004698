// Plain bytes of a compressed answer. Weir asks workers for identity, but one that compresses all the
// same must still be charged: a copy of its answer is decompressed here, while the client gets the
// original bytes.
//
// Decompression runs on other threads, so data comes later than it was written and the end later than
// end(). It never holds more than a chunk of output: what is decoded is handed on at once, and a body
// that decodes to more than its limit (a decompression bomb) is given up. Nothing it is fed can throw
// or raise an unhandled error; every defect is the result "failed".

import type { Transform } from "node:stream";
import * as zlib from "node:zlib";

export interface BodyDecoder {
  /** Takes the next bytes. They must not be changed afterwards. Ignored after end and destroy. */
  write(chunk: Uint8Array): void;
  /** No more input. `onDone` is called exactly once, now or later, and never before this call. */
  end(): void;
  /** Stops at once; neither onData nor onDone is called any more. */
  destroy(): void;
  /** Input is still being decoded, so onDone has not been called, or would not be called by end(). */
  readonly busy: boolean;
}

/** `failed`: truncated, corrupt or over the limit; what onData got before is all there is. */
export type DecodeResult = "complete" | "failed";

export interface BodyDecoderOptions {
  /** Most bytes of one answer that are decoded, and most that are taken in; one more is a failure. */
  readonly maxDecodedBytes: number;
  readonly onData: (bytes: Uint8Array) => void;
  readonly onDone: (result: DecodeResult) => void;
}

type StreamFactory = (firstByte: number) => Transform;

/**
 * A decoder for the value of a `content-encoding` header (any case). Undefined: a coding this runtime
 * cannot decode, or more than one coding, which no engine uses. `identity` needs no decoder, so it is
 * undefined too and the caller's to handle.
 */
export function createBodyDecoder(
  encoding: string,
  options: BodyDecoderOptions,
): BodyDecoder | undefined {
  const factory = streamFactory(encoding.trim().toLowerCase());
  return factory === undefined ? undefined : new StreamBodyDecoder(factory, options);
}

function streamFactory(coding: string): StreamFactory | undefined {
  switch (coding) {
    case "gzip":
    case "x-gzip":
      return () => zlib.createGunzip();
    case "deflate":
      // The name means zlib's format, but some servers send raw deflate. The low half of zlib's first
      // byte is always 8; no compressor begins a raw body with it (a stored block, not the last, with
      // a padding bit set).
      return (firstByte) =>
        (firstByte & 0x0f) === 0x08 ? zlib.createInflate() : zlib.createInflateRaw();
    case "br":
      return () => zlib.createBrotliDecompress();
    case "zstd":
      return zstdFactory();
    default:
      return undefined;
  }
}

/** Zstandard came to node:zlib with later releases than the oldest one that Weir runs on. */
function zstdFactory(): StreamFactory | undefined {
  const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };
  return createZstdDecompress;
}

class StreamBodyDecoder implements BodyDecoder {
  readonly #factory: StreamFactory;
  readonly #options: BodyDecoderOptions;
  // Made with the first byte: an empty body has no header to decode, and is complete as it is.
  #stream: Transform | undefined;
  #result: DecodeResult | undefined;
  #ended = false;
  #destroyed = false;
  #takenBytes = 0;
  #decodedBytes = 0;

  constructor(factory: StreamFactory, options: BodyDecoderOptions) {
    this.#factory = factory;
    this.#options = options;
  }

  get busy(): boolean {
    return this.#stream !== undefined && this.#result === undefined && !this.#destroyed;
  }

  write(chunk: Uint8Array): void {
    const firstByte = chunk[0];
    if (firstByte === undefined || this.#ended || this.#destroyed) return;
    if (this.#result !== undefined) return;
    this.#takenBytes += chunk.length;
    // Written bytes wait in memory until they are decoded, so they are bounded like the output.
    if (this.#takenBytes > this.#options.maxDecodedBytes) {
      this.#settle("failed");
      return;
    }
    this.#stream ??= this.#open(firstByte);
    this.#stream.write(chunk);
  }

  end(): void {
    if (this.#ended || this.#destroyed) return;
    this.#ended = true;
    if (this.#result !== undefined) this.#options.onDone(this.#result);
    else if (this.#stream === undefined) this.#settle("complete");
    else this.#stream.end();
  }

  destroy(): void {
    this.#destroyed = true;
    this.#stream?.destroy();
  }

  #open(firstByte: number): Transform {
    const stream = this.#factory(firstByte);
    stream.on("data", (bytes: Uint8Array) => {
      this.#take(bytes);
    });
    stream.on("end", () => {
      this.#settle("complete");
    });
    // Stays for good: a destroyed stream may still report the error of a write in progress.
    stream.on("error", () => {
      this.#settle("failed");
    });
    return stream;
  }

  #take(bytes: Uint8Array): void {
    if (this.#result !== undefined || this.#destroyed) return;
    this.#decodedBytes += bytes.length;
    if (this.#decodedBytes > this.#options.maxDecodedBytes) this.#settle("failed");
    else this.#options.onData(bytes);
  }

  #settle(result: DecodeResult): void {
    if (this.#result !== undefined || this.#destroyed) return;
    this.#result = result;
    this.#stream?.destroy();
    if (this.#ended) this.#options.onDone(result);
  }
}

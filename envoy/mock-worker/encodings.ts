// How is an answer compressed when a fault asks for it? One place that knows the content codings of
// this Node version; zstd is there only where the runtime brings it. Every event of a stream is
// flushed, so that an encoded stream arrives as lively as a plain one.
import * as zlib from "node:zlib";
import type { Transform } from "node:stream";

export type Encoding = "gzip" | "deflate" | "br" | "zstd";

/** A compressor that can be told to let go of what it holds. */
export interface Encoder extends Transform {
  flush(callback?: () => void): void;
}

const createZstd = (zlib as { readonly createZstdCompress?: () => Encoder }).createZstdCompress;

export function zstdIsAvailable(): boolean {
  return createZstd !== undefined;
}

export function createEncoder(encoding: Encoding): Encoder {
  switch (encoding) {
    case "gzip":
      return zlib.createGzip();
    case "deflate":
      return zlib.createDeflate();
    case "br":
      return zlib.createBrotliCompress({
        // The default quality of 11 is far too slow for a test server.
        params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 },
      });
    case "zstd":
      if (createZstd === undefined) throw new Error("this Node version has no zstd");
      return createZstd();
  }
}

/** Compresses a whole body. */
export async function encodeWhole(encoding: Encoding, body: Buffer): Promise<Buffer> {
  const encoder = createEncoder(encoding);
  const parts: Buffer[] = [];
  encoder.end(body);
  for await (const part of encoder) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

// Real codings of node:zlib, decoded and handed to a promise that settles with onDone. No test waits
// for time to pass.

import { expect } from "chai";
import * as zlib from "node:zlib";
import {
  createBodyDecoder,
  type BodyDecoder,
  type DecodeResult,
} from "../../../extproc/edge/envoy/body-decoder.js";

const BODY = Buffer.from(JSON.stringify({ text: "wave 🌊 ".repeat(500), usage: { n: 3 } }));

interface Decoded {
  readonly result: DecodeResult;
  readonly bytes: Buffer;
  readonly largestBytes: number;
}

/** Opens a decoder, lets `feed` use it, and resolves with what it delivered. */
function decode(
  encoding: string,
  maxDecodedBytes: number,
  feed: (decoder: BodyDecoder) => void,
): Promise<Decoded> {
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = [];
    let results = 0;
    const decoder = createBodyDecoder(encoding, {
      maxDecodedBytes,
      onData: (bytes) => {
        if (results > 0) reject(new Error("data after the end"));
        chunks.push(bytes);
      },
      onDone: (result) => {
        results += 1;
        if (results > 1) reject(new Error("done twice"));
        // A second call would come with the stream's close at the latest.
        setImmediate(() => {
          const largestBytes = Math.max(0, ...chunks.map((chunk) => chunk.length));
          resolve({ result, bytes: Buffer.concat(chunks), largestBytes });
        });
      },
    });
    if (decoder === undefined) reject(new Error(`no decoder for ${encoding}`));
    else feed(decoder);
  });
}

const whole =
  (encoded: Uint8Array) =>
  (decoder: BodyDecoder): void => {
    decoder.write(encoded);
    decoder.end();
  };

const bytewise =
  (encoded: Uint8Array) =>
  (decoder: BodyDecoder): void => {
    for (let at = 0; at < encoded.length; at += 1) decoder.write(encoded.subarray(at, at + 1));
    decoder.end();
  };

const CODINGS = [
  ["gzip", "gzip", zlib.gzipSync(BODY)],
  ["gzip in capitals with blanks", " GZip ", zlib.gzipSync(BODY)],
  ["x-gzip", "x-gzip", zlib.gzipSync(BODY)],
  ["deflate in zlib format", "deflate", zlib.deflateSync(BODY)],
  ["deflate in raw format", "deflate", zlib.deflateRawSync(BODY)],
  ["br", "br", zlib.brotliCompressSync(BODY)],
] as const;

const LIMIT = 1_048_576;

describe("body decoder", () => {
  for (const [name, encoding, encoded] of CODINGS) {
    it(`decodes ${name}, whole and in chunks of one byte`, async () => {
      for (const feed of [whole(encoded), bytewise(encoded)]) {
        const decoded = await decode(encoding, LIMIT, feed);
        expect(decoded.result).to.equal("complete");
        expect(decoded.bytes.equals(BODY)).to.equal(true);
      }
    });

    it(`fails on ${name} that is truncated or corrupt, and does not crash`, async () => {
      const half = encoded.subarray(0, encoded.length >> 1);
      for (const defective of [half, encoded.subarray(0, 1), broken(encoded)]) {
        for (const feed of [whole(defective), bytewise(defective)]) {
          expect((await decode(encoding, LIMIT, feed)).result).to.equal("failed");
        }
      }
    });
  }

  it("an empty body with content-encoding is complete at once (HEAD, 204, empty last chunk)", () => {
    for (const encoding of ["gzip", "deflate", "br"]) {
      const results: DecodeResult[] = [];
      const decoder = createBodyDecoder(encoding, {
        maxDecodedBytes: LIMIT,
        onData: () => expect.fail("data of nothing"),
        onDone: (result) => results.push(result),
      });
      decoder?.write(new Uint8Array(0));
      expect(decoder?.busy).to.equal(false);
      decoder?.end();
      expect(results).to.deep.equal(["complete"]);
    }
  });

  it("decodes raw deflate that is stored, not compressed", async () => {
    const stored = zlib.deflateRawSync(BODY, { level: 0 });
    const decoded = await decode("deflate", LIMIT, bytewise(stored));
    expect(decoded.result).to.equal("complete");
    expect(decoded.bytes.equals(BODY)).to.equal(true);
  });

  it("an empty last chunk after the data changes nothing", async () => {
    const decoded = await decode("gzip", LIMIT, (decoder) => {
      decoder.write(zlib.gzipSync(BODY));
      decoder.write(new Uint8Array(0));
      decoder.end();
    });
    expect(decoded.result).to.equal("complete");
    expect(decoded.bytes.equals(BODY)).to.equal(true);
  });

  it("a worker that names gzip but sends plain JSON fails", async () => {
    expect((await decode("gzip", LIMIT, whole(BODY))).result).to.equal("failed");
  });

  it("decodes gzip of several members and ignores what follows the last", async () => {
    const two = Buffer.concat([zlib.gzipSync("a"), zlib.gzipSync("b"), Buffer.from("\0\0junk")]);
    const decoded = await decode("gzip", LIMIT, whole(two));
    expect(decoded.result).to.equal("complete");
    expect(decoded.bytes.toString()).to.equal("ab");
  });

  it("has no decoder for an unknown coding, several codings, identity and none", () => {
    for (const encoding of ["compress", "gzip, br", "gzip,gzip", "identity", "", "__proto__"]) {
      const decoder = createBodyDecoder(encoding, {
        maxDecodedBytes: LIMIT,
        onData: () => undefined,
        onDone: () => undefined,
      });
      expect(decoder, encoding).to.equal(undefined);
    }
  });

  it("decodes zstd exactly where the runtime can", async () => {
    const { zstdCompressSync } = zlib as { zstdCompressSync?: (body: Buffer) => Buffer };
    if (zstdCompressSync === undefined) {
      const options = { maxDecodedBytes: LIMIT, onData: () => undefined, onDone: () => undefined };
      expect(createBodyDecoder("zstd", options)).to.equal(undefined);
      return;
    }
    const decoded = await decode("zstd", LIMIT, whole(zstdCompressSync(BODY)));
    expect(decoded.result).to.equal("complete");
    expect(decoded.bytes.equals(BODY)).to.equal(true);
  });

  it("decodes a body at the limit and fails one byte past it", async () => {
    const encoded = zlib.gzipSync(BODY);
    expect((await decode("gzip", BODY.length, whole(encoded))).result).to.equal("complete");
    const past = await decode("gzip", BODY.length - 1, whole(encoded));
    expect(past.result).to.equal("failed");
    expect(past.bytes.length).to.be.at.most(BODY.length - 1);
  });

  it("takes in as many bytes as the limit and fails one byte past it", async () => {
    const encoded = zlib.gzipSync("small");
    expect((await decode("gzip", encoded.length, whole(encoded))).result).to.equal("complete");
    expect((await decode("gzip", encoded.length - 1, whole(encoded))).result).to.equal("failed");
  });

  it("a decompression bomb is given up at the limit, in small pieces", async () => {
    const bomb = zlib.gzipSync(Buffer.alloc(64 * 1_048_576));
    const decoded = await decode("gzip", LIMIT, whole(bomb));
    expect(decoded.result).to.equal("failed");
    expect(decoded.bytes.length).to.be.within(LIMIT - 65_536, LIMIT);
    expect(decoded.largestBytes).to.be.at.most(65_536);
  });

  it("drops input after a failure and reports it only at the end", async () => {
    const decoded = await decode("gzip", 64, (decoder) => {
      decoder.write(Buffer.alloc(65));
      expect(decoder.busy).to.equal(false);
      decoder.write(zlib.gzipSync("late"));
      setImmediate(() => {
        decoder.end();
      });
    });
    expect(decoded.result).to.equal("failed");
    expect(decoded.bytes).to.have.length(0);
  });

  it("is busy from the first byte until done", async () => {
    let opened: BodyDecoder | undefined;
    await decode("br", LIMIT, (decoder) => {
      opened = decoder;
      expect(decoder.busy).to.equal(false);
      whole(zlib.brotliCompressSync(BODY))(decoder);
      expect(decoder.busy).to.equal(true);
    });
    expect(opened?.busy).to.equal(false);
  });

  it("ignores what comes after the end", async () => {
    const decoded = await decode("gzip", LIMIT, (decoder) => {
      whole(zlib.gzipSync("once"))(decoder);
      whole(zlib.gzipSync("twice"))(decoder);
    });
    expect(decoded.bytes.toString()).to.equal("once");
  });

  it("destroy stops without another call, before, while and after it decodes", async () => {
    const calls: string[] = [];
    const open = (): BodyDecoder | undefined =>
      createBodyDecoder("gzip", {
        maxDecodedBytes: LIMIT,
        onData: () => calls.push("data"),
        onDone: () => calls.push("done"),
      });
    const idle = open();
    idle?.destroy();
    idle?.end();
    idle?.write(zlib.gzipSync(BODY));
    const ended = open();
    if (ended !== undefined) whole(zlib.gzipSync(BODY))(ended);
    ended?.destroy();
    const failing = open();
    failing?.write(BODY);
    failing?.destroy();
    failing?.destroy();
    // Another decoder, started later on the same threads, has finished: these had their time.
    await decode("gzip", LIMIT, whole(zlib.gzipSync(BODY)));
    expect([idle?.busy, ended?.busy, failing?.busy]).to.deep.equal([false, false, false]);
    expect(calls).to.deep.equal([]);
  });
});

/** The encoded bytes with all behind a header's length turned around, the header kept. */
function broken(encoded: Uint8Array): Uint8Array {
  return encoded.map((byte, at) => (at < 12 ? byte : byte ^ 0xff));
}

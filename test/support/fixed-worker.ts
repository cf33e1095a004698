// A worker that gives every request the same answer, byte for byte, in the pieces a test chooses.
// The mock worker numbers and dates its answers; this one does not, so that an answer that came
// through Envoy and Weir can be compared with one that came straight from the worker.

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

export interface FixedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | number>>;
  /** Written one after another, each flushed by itself. */
  readonly pieces: readonly Uint8Array[];
  /** After the last piece the connection is cut when this resolves; a whole answer when absent. */
  readonly cutAfter?: Promise<void>;
}

export interface FixedWorker {
  readonly port: number;
  readonly url: string;
  /** What all following requests get. */
  answer: FixedAnswer;
  /** Headers of each request so far, health checks left out. */
  readonly seen: readonly IncomingHttpHeaders[];
  close(): Promise<void>;
}

const NOTHING: FixedAnswer = { status: 200, headers: {}, pieces: [] };

/** Serves on a port of 127.0.0.1; healthy. */
export async function startFixedWorker(): Promise<FixedWorker> {
  const seen: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    request.resume();
    if (request.url === "/health") {
      response.end();
      return;
    }
    seen.push(request.headers);
    const { status, headers, pieces, cutAfter } = worker.answer;
    request.on("end", () => {
      response.writeHead(status, headers);
      const queue = [...pieces];
      const next = (): void => {
        const piece = queue.shift();
        if (piece !== undefined && !response.destroyed) {
          response.write(piece, () => setImmediate(next));
        } else if (cutAfter === undefined) response.end();
        else void cutAfter.then(() => request.socket.destroy());
      };
      next();
    });
  });
  await new Promise<void>((done, failed) => {
    server.once("error", failed);
    server.listen(0, "127.0.0.1", done);
  });
  const { port } = server.address() as AddressInfo;
  const worker: FixedWorker = {
    port,
    url: `http://127.0.0.1:${String(port)}`,
    answer: NOTHING,
    seen,
    close: () =>
      new Promise((done) => {
        server.close(() => {
          done();
        });
        server.closeAllConnections();
      }),
  };
  return worker;
}

/** `bytes` cut into pieces of `size`. */
export function cut(bytes: Uint8Array, size: number): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
  return pieces;
}

// How does an answer leave the worker, and how does it go wrong when a fault asks for it? One writer
// per request: either one JSON body or a stream of server-sent events, plus the transport faults that
// do not depend on the dialect: compression, a body cut short, a connection reset, bytes written one
// by one, trailers. Every answer names the worker's port in `x-mock-worker`.
import type { ServerResponse } from "node:http";
import { createEncoder, encodeWhole, type Encoder } from "./encodings.js";
import type { RequestFaults } from "./faults.js";
import { sseText, type SseEvent } from "./json.js";

/** How many last bytes of a JSON body `usage_split` writes one by one. */
const SPLIT_TAIL_BYTES = 512;

export class AnswerWriter {
  readonly #response: ServerResponse;
  readonly #faults: RequestFaults;
  #encoder: Encoder | undefined;

  constructor(response: ServerResponse, faults: RequestFaults) {
    this.#response = response;
    this.#faults = faults;
  }

  /** Writes a whole JSON answer, broken in the way the faults ask for. */
  async json(status: number, value: unknown): Promise<void> {
    const { encoding, truncate, reset, trailers, usage_split } = this.#faults;
    let body: Buffer = Buffer.from(JSON.stringify(value));
    if (truncate === true) body = body.subarray(0, body.length >> 1);
    if (encoding !== undefined) body = await encodeWhole(encoding, body);
    const response = this.#response;
    if (response.destroyed) return;
    if (status === 204 || status === 304) {
      response.writeHead(status).end();
      return;
    }
    response.writeHead(status, {
      "content-type": "application/json",
      ...(encoding === undefined ? {} : { "content-encoding": encoding }),
      ...(trailers === true ? { trailer: "x-mock-trailer" } : { "content-length": body.length }),
    });
    if (reset === "after") {
      this.#cutAfter(body.subarray(0, body.length >> 1));
      return;
    }
    if (trailers === true) response.addTrailers({ "x-mock-trailer": "end" });
    if (usage_split !== true) {
      response.end(body);
      return;
    }
    const headBytes = Math.max(0, body.length - SPLIT_TAIL_BYTES);
    response.write(body.subarray(0, headBytes));
    await this.#byteByByte(body.subarray(headBytes));
    response.end();
  }

  /** Sends the headers of a stream; does nothing the second time. */
  openStream(): void {
    const response = this.#response;
    if (response.headersSent || response.destroyed) return;
    const { encoding, trailers } = this.#faults;
    response.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "transfer-encoding": "chunked",
      ...(encoding === undefined ? {} : { "content-encoding": encoding }),
      ...(trailers === true ? { trailer: "x-mock-trailer" } : {}),
    });
    response.flushHeaders();
    if (encoding === undefined) return;
    this.#encoder = createEncoder(encoding);
    this.#encoder.pipe(response);
  }

  events(events: readonly SseEvent[]): void {
    if (this.#response.destroyed || events.length === 0) return;
    const text = events.map(sseText).join("");
    if (this.#encoder === undefined) {
      this.#response.write(text);
      return;
    }
    this.#encoder.write(text);
    this.#encoder.flush();
  }

  /** Writes the last events and ends the stream. */
  async endStream(last: readonly SseEvent[]): Promise<void> {
    const response = this.#response;
    if (response.destroyed) return;
    if (this.#faults.trailers === true) response.addTrailers({ "x-mock-trailer": "end" });
    if (this.#faults.usage_split === true && this.#encoder === undefined) {
      await this.#byteByByte(Buffer.from(last.map(sseText).join("")));
    } else {
      this.events(last);
    }
    if (this.#encoder === undefined) response.end();
    else this.#encoder.end();
  }

  /** Cuts the connection without an answer, as a crashing worker does. */
  resetNow(): void {
    this.#response.socket?.resetAndDestroy();
  }

  /** Cuts the connection when what was written so far has left. */
  cutStream(): void {
    this.#cutAfter(Buffer.alloc(0));
  }

  #cutAfter(bytes: Buffer): void {
    const cut = (): void => {
      // A plain close, not a reset: a reset would take back bytes that are still on their way.
      this.#response.socket?.destroy();
    };
    if (this.#encoder !== undefined) this.#encoder.flush(() => setImmediate(cut));
    else this.#response.write(bytes.length > 0 ? bytes : Buffer.from(": cut\n\n"), cut);
  }

  async #byteByByte(bytes: Buffer): Promise<void> {
    for (let i = 0; i < bytes.length && !this.#response.destroyed; i += 1) {
      this.#response.write(bytes.subarray(i, i + 1));
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

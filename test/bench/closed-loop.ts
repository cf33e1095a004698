// A client that costs next to nothing, for loads in which the machine's own time shows: one connection that
// sends the same bytes again as soon as the last answer has come whole. It reads of HTTP what Envoy sends
// here: a status line, a content-length or chunks, and no answer before its request.

import { connect, type Socket } from "node:net";

const HEAD_END = "\r\n\r\n";
const LAST_CHUNK = "0\r\n\r\n";
const STATUS = /^HTTP\/1\.1 (\d{3}) /;
const LENGTH = /\r\ncontent-length: (\d+)\r\n/i;

export interface Exchanged {
  /** 0 = the connection broke. */
  readonly status: number;
  readonly ms: number;
}

/** The bytes of one POST of JSON. */
export function postBytes(
  path: string,
  headers: readonly (readonly [string, string])[],
  body: string,
): Buffer {
  const lines = [
    `POST ${path} HTTP/1.1`,
    "host: bench",
    "content-type: application/json",
    `content-length: ${String(Buffer.byteLength(body))}`,
    ...headers.map(([name, value]) => `${name}: ${value}`),
  ];
  return Buffer.from(`${lines.join("\r\n")}${HEAD_END}${body}`);
}

export class ClosedLoop {
  readonly #port: number;
  readonly #bytes: Buffer;
  readonly #onAnswer: (answer: Exchanged) => void;
  #socket: Socket | undefined;
  #stopped = false;
  #ended: (() => void) | undefined;
  #received = "";
  #sentAt = 0;

  constructor(port: number, bytes: Buffer, onAnswer: (answer: Exchanged) => void) {
    this.#port = port;
    this.#bytes = bytes;
    this.#onAnswer = onAnswer;
    this.#open();
  }

  /** Ends with the answer that is under way. */
  stop(): Promise<void> {
    this.#stopped = true;
    return new Promise((resolve) => {
      this.#ended = resolve;
    });
  }

  #open(): void {
    const socket = connect({ host: "127.0.0.1", port: this.#port, noDelay: true });
    this.#socket = socket;
    this.#received = "";
    socket.setEncoding("latin1");
    socket.on("connect", () => {
      this.#send();
    });
    socket.on("data", (text: string) => {
      this.#received += text;
      const status = statusOfWhole(this.#received);
      if (status !== undefined) this.#answered(status);
    });
    socket.on("error", () => undefined);
    socket.on("close", () => {
      if (this.#socket === socket) this.#broken();
    });
  }

  #send(): void {
    this.#sentAt = performance.now();
    this.#socket?.write(this.#bytes);
  }

  #answered(status: number): void {
    this.#received = "";
    this.#onAnswer({ status, ms: performance.now() - this.#sentAt });
    if (!this.#stopped) this.#send();
    else this.#end();
  }

  #broken(): void {
    if (this.#stopped) {
      this.#end();
      return;
    }
    if (this.#received !== "") this.#onAnswer({ status: 0, ms: 0 });
    this.#open();
  }

  #end(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
    this.#ended?.();
  }
}

/** The status of an answer that has come whole; undefined while something is missing. */
function statusOfWhole(text: string): number | undefined {
  const head = text.indexOf(HEAD_END);
  if (head < 0) return undefined;
  const length = LENGTH.exec(text.slice(0, head + 2))?.[1];
  const whole =
    length === undefined
      ? text.endsWith(LAST_CHUNK)
      : text.length >= head + HEAD_END.length + Number(length);
  return whole ? Number(STATUS.exec(text)?.[1] ?? "0") : undefined;
}

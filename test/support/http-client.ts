// How do tests speak HTTP like an odd client? This file sends one request over node:http with the
// headers exactly as given (order, case and duplicates kept, which fetch cannot do), a body that may
// be slow or never end, and a client that may leave at any moment. An answer that is cut off is a
// value here (`complete: false`), because tests ask for it; a connection that fails before an answer
// rejects. Every request has a time limit, so that a hang is a failure with a name.
import * as http from "node:http";

export interface RequestOptions {
  readonly port: number;
  /** 127.0.0.1 when absent. */
  readonly host?: string;
  /** Address to connect from; the system's choice when absent. */
  readonly localAddress?: string;
  /** POST when there is a body, else GET. */
  readonly method?: string;
  /** Sent as it is: not normalised, not encoded. */
  readonly path: string;
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Sent whole with its length, unless `open` is used to send it in pieces. */
  readonly body?: string | Uint8Array;
  /** Called when the headers of the answer have come. */
  readonly onHeaders?: () => void;
  /** Called for each piece of the answer; `abort` leaves there and then. */
  readonly onChunk?: (chunk: Buffer, abort: () => void) => void;
  /** Leave this long after sending, whatever has come by then. */
  readonly abortAfterMs?: number;
  /** A kept connection pool; a connection of its own when absent. */
  readonly agent?: http.Agent;
  /** 30 s when absent. */
  readonly limitMs?: number;
}

export interface Answer {
  /** 0 when the client left before there was an answer. */
  readonly status: number;
  /** Names in lower case; several values of one name are joined as node:http does. */
  readonly headers: http.IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly trailers: NodeJS.Dict<string>;
  readonly body: Buffer;
  /** The client left on purpose. */
  readonly aborted: boolean;
  /** The answer arrived to its end. */
  readonly complete: boolean;
}

/** A request whose body is still open. */
export interface OpenRequest {
  readonly answer: Promise<Answer>;
  write(bytes: string | Uint8Array): void;
  end(): void;
  /** Drops the connection; `answer` then resolves with `aborted`. */
  abort(): void;
}

const DEFAULT_LIMIT_MS = 30_000;
const EMPTY = Buffer.alloc(0);

/** Sends one request and waits for its answer. */
export function request(options: RequestOptions): Promise<Answer> {
  const opened = open(options);
  if (options.body !== undefined) opened.write(options.body);
  opened.end();
  return opened.answer;
}

/** Sends the headers and leaves the body open; without content-length the body goes in chunks. */
export function open(options: RequestOptions): OpenRequest {
  const sent = http.request({
    host: options.host ?? "127.0.0.1",
    port: options.port,
    method: methodOf(options),
    path: options.path,
    headers: headersOf(options),
    agent: options.agent ?? false,
    ...(options.localAddress === undefined ? {} : { localAddress: options.localAddress }),
  });
  let aborted = false;
  const abort = (): void => {
    aborted = true;
    sent.destroy();
  };
  const answer = new Promise<Answer>((done, failed) => {
    const timers: NodeJS.Timeout[] = [];
    const settle = (finish: () => void): void => {
      for (const timer of timers) clearTimeout(timer);
      finish();
    };
    const limitMs = options.limitMs ?? DEFAULT_LIMIT_MS;
    timers.push(
      setTimeout(() => {
        sent.destroy();
        failed(new Error(`${methodOf(options)} ${options.path}: no end in ${String(limitMs)} ms`));
      }, limitMs),
    );
    if (options.abortAfterMs !== undefined) timers.push(setTimeout(abort, options.abortAfterMs));
    sent.on("response", (response) => {
      options.onHeaders?.();
      collect(response, options.onChunk, abort, (body) => {
        settle(() => {
          done(answerOf(response, body, aborted));
        });
      });
    });
    sent.on("error", (error) => {
      settle(() => {
        if (aborted) done(nothing());
        else failed(error);
      });
    });
  });
  sent.flushHeaders();
  return {
    answer,
    abort,
    write: (bytes) => {
      sent.write(bytes);
    },
    end: () => {
      sent.end();
    },
  };
}

function collect(
  response: http.IncomingMessage,
  onChunk: RequestOptions["onChunk"],
  abort: () => void,
  closed: (body: Buffer) => void,
): void {
  const chunks: Buffer[] = [];
  response.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    onChunk?.(chunk, abort);
  });
  // An answer cut off gives an error and then, like every other, a close.
  response.on("error", () => undefined);
  response.on("close", () => {
    closed(Buffer.concat(chunks));
  });
}

function answerOf(response: http.IncomingMessage, body: Buffer, aborted: boolean): Answer {
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    rawHeaders: response.rawHeaders,
    trailers: response.trailers,
    body,
    aborted,
    complete: response.complete && !aborted,
  };
}

function nothing(): Answer {
  return {
    status: 0,
    headers: {},
    rawHeaders: [],
    trailers: {},
    body: EMPTY,
    aborted: true,
    complete: false,
  };
}

function methodOf(options: RequestOptions): string {
  return options.method ?? (options.body === undefined ? "GET" : "POST");
}

/** The headers as a flat list, with host and content-length added when they are missing. */
function headersOf(options: RequestOptions): string[] {
  const given = options.headers ?? [];
  const has = (name: string): boolean => given.some(([key]) => key.toLowerCase() === name);
  const flat = given.flatMap(([name, value]) => [name, value]);
  if (!has("host")) flat.push("Host", `${options.host ?? "127.0.0.1"}:${String(options.port)}`);
  if (options.body !== undefined && !has("content-length") && !has("transfer-encoding")) {
    flat.push("Content-Length", String(Buffer.byteLength(options.body)));
  }
  return flat;
}

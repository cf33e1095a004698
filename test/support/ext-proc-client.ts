// Weir as Envoy sees it, without Envoy: a real gRPC client over real sockets against an App in this
// process. Messages are encoded and replies decoded by the oracle, so a fault of the product's own
// codec cannot hide. The suites run over every transport in TRANSPORTS; a new one is one more entry.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { connect, createServer as createSocketServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { App, type AppOptions } from "../../extproc/app.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { sumOf } from "../../extproc/core/scheduler/admission.js";
import type { CreateTransport } from "../../extproc/edge/envoy/create-transport.js";
import { GrpcJsTransport } from "../../extproc/edge/envoy/transport/grpc-js-transport.js";
import { H2cTransport } from "../../extproc/edge/envoy/transport/h2c/h2c-transport.js";
import { Http2Transport } from "../../extproc/edge/envoy/transport/http2-transport.js";
import { now } from "../../extproc/edge/runtime/clock.js";
import { silentLog } from "../../extproc/edge/telemetry/log.js";
import { testConfig, type ConfigSketch } from "./config.js";
import { decodeReply, encodeRequest, headerMap, struct, type ReplyShape } from "./oracle.js";
import { freePort } from "./ports.js";

export const EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor";
const FILTER = "envoy.filters.http.ext_proc";
/** Nothing here takes longer unless it hangs. */
const LIMIT_MS = 10_000;
const POLL_MS = 2;

/** Zeros everywhere: no slot, no waiter, no live request, no live load. */
export const NOTHING_HELD = { inFlight: 0, load: 0, live: 0, queued: 0 };

// --- Messages, as Envoy sends them ---

export interface RequestSketch {
  readonly id?: string;
  readonly method?: string;
  readonly path?: string;
  readonly endOfStream?: boolean;
  /** Further headers, for example the requested class. */
  readonly headers?: readonly (readonly [string, string])[];
  /** Address of the client. */
  readonly source?: string;
}

export function requestHeaders(sketch: RequestSketch = {}): object {
  return {
    request_headers: {
      headers: headerMap([
        [":method", sketch.method ?? "POST"],
        [":path", sketch.path ?? "/v1/chat/completions"],
        [":authority", "weir.test"],
        [":scheme", "http"],
        ["content-type", "application/json"],
        ["x-request-id", sketch.id ?? "r-1"],
        ...(sketch.headers ?? []),
      ]),
      end_of_stream: sketch.endOfStream ?? false,
    },
    attributes: { [FILTER]: struct({ "source.address": sketch.source ?? "203.0.113.42:443" }) },
  };
}

export const CHAT_BODY = JSON.stringify({ model: "demo", messages: [] });

export function requestBody(body: string | Uint8Array = CHAT_BODY): object {
  return { request_body: { body: Buffer.from(body), end_of_stream: true } };
}

export interface ResponseSketch {
  readonly status?: number;
  readonly contentType?: string;
  readonly encoding?: string;
  readonly endOfStream?: boolean;
  readonly codeDetails?: string;
  readonly flags?: number;
}

export function responseHeaders(sketch: ResponseSketch = {}): object {
  const headers: [string, string][] = [
    [":status", String(sketch.status ?? 200)],
    ["content-type", sketch.contentType ?? "application/json"],
  ];
  if (sketch.encoding !== undefined) headers.push(["content-encoding", sketch.encoding]);
  return {
    response_headers: { headers: headerMap(headers), end_of_stream: sketch.endOfStream ?? false },
    attributes: {
      [FILTER]: struct({
        "response.code_details": sketch.codeDetails ?? "via_upstream",
        "response.flags": sketch.flags ?? 0,
        "xds.cluster_name": "worker_1",
        "upstream.address": "127.0.0.1:1",
        "upstream.request_attempt_count": 1,
      }),
    },
  };
}

export function responseBody(body: string | Uint8Array, endOfStream = false): object {
  return { response_body: { body: Buffer.from(body), end_of_stream: endOfStream } };
}

export const responseTrailers = (): object => ({ response_trailers: { trailers: headerMap([]) } });

// --- Replies ---

/** One word for a reply: `hold`, `route`, `refuse 429 scheduler_queue_full`, `read`, or its phase. */
export function replyKind(reply: ReplyShape): string {
  const immediate = reply.immediate_response;
  if (immediate !== undefined) {
    const body = JSON.parse(String(immediate.body)) as {
      readonly error: { readonly code: string };
    };
    return `refuse ${String(immediate.status.code)} ${body.error.code}`;
  }
  if (reply.override_message_timeout !== undefined) return "hold";
  if (reply.mode_override !== undefined) return "read";
  const request = reply.request_body ?? reply.request_headers;
  if (request?.response?.header_mutation !== undefined) return "route";
  return Object.keys(reply)[0] ?? "nothing";
}

/** One ext_proc stream. */
export class ProcessStream {
  readonly replies: ReplyShape[] = [];
  readonly #status: Promise<grpc.StatusObject>;
  readonly #call: grpc.ClientDuplexStream<object | Buffer, ReplyShape>;
  #taken = 0;
  #over = false;
  #wake: () => void = () => undefined;

  constructor(call: grpc.ClientDuplexStream<object | Buffer, ReplyShape>) {
    this.#call = call;
    call.on("data", (reply: ReplyShape) => {
      this.replies.push(reply);
      this.#wake();
    });
    call.on("error", () => undefined);
    this.#status = new Promise((resolve) => {
      call.on("status", (status: grpc.StatusObject) => {
        this.#over = true;
        this.#wake();
        resolve(status);
      });
    });
  }

  /** How the stream ended. */
  get ended(): Promise<grpc.StatusObject> {
    return within("the end of the stream", this.#status);
  }

  /** Sends a message; bytes are sent as they are. */
  send(message: object | Buffer): void {
    this.#call.write(message);
  }

  /** The next reply, in words. */
  async reply(): Promise<string> {
    return replyKind(await this.shape());
  }

  /** The next reply as it was decoded. */
  async shape(): Promise<ReplyShape> {
    const ready = new Promise<void>((resolve) => {
      this.#wake = () => {
        if (this.replies.length > this.#taken || this.#over) resolve();
      };
      this.#wake();
    });
    await within("a reply", ready);
    const reply = this.replies[this.#taken];
    if (reply === undefined) throw new Error("the stream ended without another reply");
    this.#taken += 1;
    return reply;
  }

  async ask(message: object | Buffer): Promise<string> {
    this.send(message);
    return this.reply();
  }

  /** Asks for each message in turn, as Envoy does. */
  async askAll(...messages: readonly object[]): Promise<string[]> {
    const kinds: string[] = [];
    for (const message of messages) kinds.push(await this.ask(message));
    return kinds;
  }

  /** Half-closes, as Envoy does when a request is over. */
  end(): void {
    this.#call.end();
  }

  cancel(): void {
    this.#call.cancel();
  }

  kinds(): string[] {
    return this.replies.map(replyKind);
  }
}

const encode = (message: object | Buffer): Buffer =>
  Buffer.isBuffer(message) ? message : encodeRequest(message);

export class ExtProcClient {
  readonly grpc: grpc.Client;

  constructor(target: string) {
    this.grpc = new grpc.Client(target, grpc.credentials.createInsecure(), {
      // Clients of one process would share connections otherwise, and one could not lose its own.
      "grpc.use_local_subchannel_pool": 1,
    });
  }

  open(): ProcessStream {
    return new ProcessStream(
      this.grpc.makeBidiStreamRequest<object | Buffer, ReplyShape>(
        `/${EXT_PROC_SERVICE}/Process`,
        encode,
        decodeReply,
      ),
    );
  }

  close(): void {
    this.grpc.close();
  }
}

// --- Weir under test ---

export interface TransportUnderTest {
  readonly name: string;
  /** A fresh listen address, as in weir.yaml; `folder` is there for files. */
  readonly address: (folder: string) => Promise<string>;
  readonly create: CreateTransport;
}

const tcpAddress = async (): Promise<string> => `127.0.0.1:${String(await freePort())}`;
const unixAddress = (folder: string): Promise<string> =>
  Promise.resolve(`unix:${join(folder, "ext-proc.sock")}`);

const createH2c: CreateTransport = (open, options) => new H2cTransport(open, options);
const createHttp2: CreateTransport = (open, options) => new Http2Transport(open, options);
const createGrpcJs: CreateTransport = (open, options) => new GrpcJsTransport(open, options);

/** Every server, and both kinds of address: the default one over each. */
export const TRANSPORTS: readonly TransportUnderTest[] = [
  { name: "h2c over TCP", address: tcpAddress, create: createH2c },
  { name: "h2c over a unix socket", address: unixAddress, create: createH2c },
  { name: "http2 over a unix socket", address: unixAddress, create: createHttp2 },
  { name: "grpc-js over TCP", address: tcpAddress, create: createGrpcJs },
];

/** Every server over both kinds of address, for the suites that are about transports. */
export const ALL_TRANSPORTS: readonly TransportUnderTest[] = [
  ...TRANSPORTS,
  { name: "http2 over TCP", address: tcpAddress, create: createHttp2 },
  { name: "grpc-js over a unix socket", address: unixAddress, create: createGrpcJs },
];

export interface WeirOptions {
  readonly config?: ConfigSketch;
  /** Answer to the first health checks: at once, or when `worker.release` is called. */
  readonly healthHeld?: boolean;
  readonly app?: Partial<Pick<AppOptions, "log" | "onSettled" | "transport">>;
}

export type StartWeir = (options?: WeirOptions) => Promise<WeirUnderTest>;

/** Runs a suite once per transport. */
export function describeTransports(
  title: string,
  suite: (start: StartWeir, transport: TransportUnderTest) => void,
  transports: readonly TransportUnderTest[] = TRANSPORTS,
): void {
  for (const transport of transports) {
    describe(`${title}, ${transport.name}`, () => {
      suite((options) => startWeir(transport, options), transport);
    });
  }
}

export class WeirUnderTest {
  readonly app: App;
  readonly settled: SettlementRecord[] = [];
  readonly worker: HealthyWorker;
  readonly #folder: string;
  readonly #clients: ExtProcClient[] = [];
  readonly #relays: Relay[] = [];
  #target = "";

  constructor(app: (onSettled: (record: SettlementRecord) => void) => App, parts: Parts) {
    this.app = app((record) => this.settled.push(record));
    this.worker = parts.worker;
    this.#folder = parts.folder;
  }

  /** Where clients connect to. */
  get target(): string {
    return this.#target;
  }

  async start(): Promise<void> {
    const { extProc } = await this.app.start();
    this.#target =
      extProc.kind === "unix" ? `unix:${extProc.path}` : `${extProc.host}:${String(extProc.port)}`;
  }

  /** A client with a connection of its own. */
  client(target = this.#target): ExtProcClient {
    const client = new ExtProcClient(target);
    this.#clients.push(client);
    return client;
  }

  /** A way to Weir whose connections can be cut. */
  async relay(): Promise<Relay> {
    const relay = new Relay(this.#target);
    this.#relays.push(relay);
    await relay.listen();
    return relay;
  }

  /** What Weir holds now. */
  held(): Record<string, number> {
    let inFlight = 0;
    let load = 0;
    for (const view of this.app.desk.partitions(now())) inFlight += sumOf(view.in_flight);
    for (const worker of this.app.workers.all()) load += worker.runtime.liveLoad;
    return { inFlight, load, ...this.app.desk.counts };
  }

  async idle(): Promise<void> {
    await until("nothing held", () => Object.values(this.held()).every((held) => held === 0));
  }

  /** Waits for this many settlements since `clear`, and until nothing is held. */
  async settlements(count: number): Promise<readonly SettlementRecord[]> {
    await until(`${String(count)} settlements`, () => this.settled.length >= count);
    await this.idle();
    return this.settled;
  }

  clear(): void {
    this.settled.length = 0;
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.close();
    for (const relay of this.#relays) relay.close();
    await this.app.stop();
    this.worker.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

interface Parts {
  readonly worker: HealthyWorker;
  readonly folder: string;
}

/** Starts Weir with one worker; ready unless its health check is held back. */
export async function startWeir(
  transport: TransportUnderTest,
  options: WeirOptions = {},
): Promise<WeirUnderTest> {
  const folder = await mkdtemp(join(tmpdir(), "weir-contract-"));
  const worker = new HealthyWorker(options.healthHeld ?? false);
  const url = await worker.listen();
  const config = testConfig({
    scheduler: { max_concurrent_requests: 2_000, queue_size: 100, queue_timeout_secs: 30 },
    listen: { ext_proc: await transport.address(folder) },
    admin: { listen: `127.0.0.1:${String(await freePort())}` },
    workers: [{ url, cluster: "worker_1", models: ["demo"] }],
    models: {},
    ...options.config,
  });
  const weir = new WeirUnderTest(
    (onSettled) =>
      new App({
        log: silentLog(),
        transport: transport.create,
        ...options.app,
        config,
        seed: 1,
        startTimeSeconds: 0,
        onSettled: (record) => {
          onSettled(record);
          options.app?.onSettled?.(record);
        },
      }),
    { worker, folder },
  );
  await weir.start();
  if (options.healthHeld !== true) await until("Weir is ready", () => weir.app.ready);
  return weir;
}

/** Stands for a worker as far as Weir itself speaks to one: it answers health checks. */
export class HealthyWorker {
  readonly #server: Server;
  readonly #waiting: (() => void)[] = [];
  #held: boolean;

  constructor(held: boolean) {
    this.#held = held;
    this.#server = createServer((_request, response) => {
      const answer = (): void => {
        response.writeHead(200).end();
      };
      if (this.#held) this.#waiting.push(answer);
      else answer();
    });
  }

  async listen(): Promise<string> {
    const port = await freePort();
    await new Promise<void>((resolve) => {
      this.#server.listen(port, "127.0.0.1", resolve);
    });
    return `http://127.0.0.1:${String(port)}`;
  }

  /** Answers the checks that were held back, and all later ones at once. */
  release(): void {
    this.#held = false;
    for (const answer of this.#waiting.splice(0)) answer();
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** Passes bytes on between a port of its own and Weir, until its connections are cut. */
export class Relay {
  readonly #sockets = new Set<Socket>();
  readonly #server: ReturnType<typeof createSocketServer>;
  #port = 0;

  constructor(target: string) {
    this.#server = createSocketServer((down) => {
      const up = target.startsWith("unix:")
        ? connect(target.slice("unix:".length))
        : connect(Number(target.slice(target.lastIndexOf(":") + 1)), "127.0.0.1");
      for (const [from, to] of [
        [down, up],
        [up, down],
      ] as const) {
        this.#sockets.add(from);
        from.pipe(to);
        from.on("error", () => undefined);
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
      }
    });
  }

  get target(): string {
    return `127.0.0.1:${String(this.#port)}`;
  }

  async listen(): Promise<void> {
    this.#port = await freePort();
    await new Promise<void>((resolve) => {
      this.#server.listen(this.#port, "127.0.0.1", resolve);
    });
  }

  /** Cuts every connection, with a reset where the socket knows one. */
  cut(): void {
    for (const socket of this.#sockets) {
      if (socket.remoteFamily === undefined) socket.destroy();
      else socket.resetAndDestroy();
    }
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

// --- Whole requests ---

/** Runs `body` with a Weir of its own and stops it, whatever happens. */
export async function withWeir(
  start: StartWeir,
  config: ConfigSketch,
  body: (weir: WeirUnderTest, client: ExtProcClient) => Promise<void>,
): Promise<void> {
  const weir = await start({ config });
  try {
    await body(weir, weir.client());
  } finally {
    await weir.stop();
  }
}

/** A request whose headers and body have been answered. */
export async function sent(
  client: ExtProcClient,
  id: string,
  sketch: Omit<RequestSketch, "id"> = {},
): Promise<ProcessStream> {
  const stream = client.open();
  await stream.askAll(requestHeaders({ ...sketch, id }), requestBody());
  return stream;
}

/** Lets a whole JSON answer of 5 tokens pass, and the stream end. */
export async function finish(stream: ProcessStream): Promise<void> {
  await stream.askAll(responseHeaders(), responseBody('{"usage":{"completion_tokens":5}}', true));
  stream.end();
  const { code } = await stream.ended;
  if (code !== grpc.status.OK) throw new Error(`the stream ended with code ${String(code)}`);
}

/** The headers of a refusal. */
export function refusalHeaders(reply: ReplyShape): Map<string, string> {
  const set = reply.immediate_response?.headers?.set_headers ?? [];
  return new Map(set.map(({ header }) => [header.key, String(header.raw_value)]));
}

// --- Waiting ---

/** Waits until a condition holds, and fails with `what` when it does not in time. */
export async function until(what: string, holds: () => boolean): Promise<void> {
  const deadline = Date.now() + LIMIT_MS;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`not reached within 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Fails with `what` when a promise takes too long. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`did not come within 10 s: ${what}`));
    }, LIMIT_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs `count` jobs, at most `width` at once. */
export async function inParallel(
  count: number,
  width: number,
  job: (index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      await job(next - 1);
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
}

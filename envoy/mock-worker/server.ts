// One mock worker as an HTTP server, in this process. It behaves as an inference engine does (slots,
// pace, KV prefixes, usage, telemetry) and misbehaves on request (faults.ts). Port 0 lets the system
// choose. Idle connections are dropped after five seconds, as common Python servers do, so that a
// proxy which keeps them longer meets the same race here.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { ManualClock } from "./clock.js";
import { NO_KV_EVENTS, serveControl } from "./control.js";
import { faultsFor, readFaultHeader, type Faults } from "./faults.js";
import { sendJson } from "./http.js";
import { serveInference } from "./inference.js";
import type { KvPublisher } from "./kv-publisher.js";
import { DEFAULT_OPTIONS, type MockWorkerOptions } from "./options.js";
import { dialectOf, isProbe, servePlain, serveProbe, type PlainRequest } from "./routes.js";
import { createWorker, setFaults, stateOf, type MockState, type Worker } from "./worker.js";

const KEEP_ALIVE_MS = 5000;
/** How long open answers may go on after `close()`. */
const CLOSE_GRACE_MS = 1000;

export interface MockWorker {
  /** Without a slash at the end. */
  readonly url: string;
  readonly port: number;
  /** Ports and batches of KV events are told here too. */
  state(): MockState;
  /** Faults for all following requests, in place of earlier ones; `{}` clears them. */
  setFaults(faults: Faults): void;
  /** Moves a manual clock; an error on a worker with the real clock. */
  advance(ms: number): void;
  /** Stops listening, lets open answers end within `graceMs` (1000), then cuts them. */
  close(graceMs?: number): Promise<void>;
}

/** Starts a worker; rejects when the address cannot be listened on. */
export async function startMockWorker(
  options: Partial<MockWorkerOptions> = {},
): Promise<MockWorker> {
  const asked: MockWorkerOptions = { ...DEFAULT_OPTIONS, ...options };
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(asked.port, asked.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const publisher = await openPublisher(asked).catch((error: unknown) => {
    server.close();
    throw error;
  });
  const worker = createWorker({ ...asked, port }, publisher);
  server.on("request", (request, response) => {
    serve(worker, request, response).catch((error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      sendJson(response, 500, { error: { message: `mock worker: ${why}` } });
    });
  });
  return {
    url: `http://${asked.host.includes(":") ? `[${asked.host}]` : asked.host}:${String(port)}`,
    port,
    state: () => stateOf(worker),
    setFaults: (faults) => {
      if (!setFaults(worker, faults)) throw new Error(NO_KV_EVENTS);
    },
    advance: (ms) => {
      if (!(worker.clock instanceof ManualClock)) throw new Error("this worker has the real clock");
      worker.clock.advance(ms);
    },
    close: (graceMs = CLOSE_GRACE_MS) =>
      new Promise((resolve) => {
        const cut = setTimeout(() => {
          server.closeAllConnections();
        }, graceMs);
        server.close(() => {
          clearTimeout(cut);
          publisher?.close();
          resolve();
        });
      }),
  };
}

/** ZeroMQ is a package, and is loaded only by a worker that is asked to publish. */
async function openPublisher(options: MockWorkerOptions): Promise<KvPublisher | undefined> {
  const { host, kvEventsPort: port, kvReplayPort: replayPort } = options;
  if (port === undefined) return undefined;
  const { startKvPublisher } = await import("./kv-publisher.js");
  return startKvPublisher({ host, port, replayPort, blockTokens: options.blockChars / 4 });
}

async function serve(
  worker: Worker,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.setHeader("x-mock-worker", String(worker.options.port));
  // A client may go away in the middle of any write.
  response.on("error", () => undefined);
  const url = request.url ?? "/";
  const mark = url.indexOf("?");
  const path = mark < 0 ? url : url.slice(0, mark);
  const query = new URLSearchParams(mark < 0 ? "" : url.slice(mark + 1));
  const plain: PlainRequest = { request, response, path, query };
  if (path.startsWith("/mock/")) {
    if (!(await serveControl(worker, plain))) notFound(response);
    return;
  }
  if (isProbe(path)) {
    if (!serveProbe(worker, plain)) notFound(response);
    return;
  }
  const seen = worker.log.enter(request, response);
  const dialect = dialectOf(path);
  if (dialect !== undefined) {
    if (request.method === "POST")
      await serveInference(worker, dialect, { request, response, seen });
    else sendJson(response, 405, { detail: "Method Not Allowed" });
    return;
  }
  if (plainFault(worker, plain)) return;
  if (!(await servePlain(worker, plain))) notFound(response);
}

/** Of the request faults only `status` and `reset=before` touch paths without a dialect. */
function plainFault(worker: Worker, { request, response }: PlainRequest): boolean {
  const own = readFaultHeader(request.headersDistinct["x-mock"]?.join(","));
  if (own.kind === "error") {
    sendJson(response, 400, { error: { message: own.message } });
    return true;
  }
  const faults = faultsFor(worker.faults, own.faults);
  if (faults.reset === "before") {
    request.socket.resetAndDestroy();
    return true;
  }
  if (faults.status === undefined) return false;
  sendJson(response, faults.status, { detail: "Injected fault." });
  return true;
}

function notFound(response: ServerResponse): void {
  sendJson(response, 404, { detail: "Not Found" });
}

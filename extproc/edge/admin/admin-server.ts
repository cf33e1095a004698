// The admin port: liveness, readiness, metrics and state over plain HTTP, bound to loopback by
// default. It only reads. Whoever can reach it sees tenants' keys and counts, but no content and no secret.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { ListenAddress } from "../../core/model/config.js";

export interface AdminPages {
  readonly ready: () => boolean;
  /** The metrics page and its content type. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
  /** Pages of state by path, each a value that JSON can carry. */
  readonly states: ReadonlyMap<string, (query: URLSearchParams) => unknown>;
  readonly onError: (error: unknown) => void;
}

interface Page {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
}

/** Time a client may take to send its request; the admin port must not be held open by a slow one. */
const REQUEST_TIMEOUT_MS = 10_000;

const plain = (status: number, text: string): Page => ({
  status,
  contentType: "text/plain; charset=utf-8",
  text: `${text}\n`,
});

export class AdminServer {
  readonly #server: Server;
  readonly #pages: AdminPages;

  constructor(pages: AdminPages) {
    this.#pages = pages;
    this.#server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        pages.onError(error);
        send(response, plain(500, "the page could not be made"), false);
      });
    });
  }

  /** Binds and serves. Returns the address, with the port that was chosen for port 0. */
  listen(address: ListenAddress): Promise<ListenAddress> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      const onListening = (): void => {
        this.#server.off("error", reject);
        this.#server.on("error", this.#pages.onError);
        const bound = this.#server.address();
        resolve(
          bound === null || typeof bound === "string" || address.kind === "unix"
            ? address
            : { ...address, port: bound.port },
        );
      };
      if (address.kind === "unix") this.#server.listen(address.path, onListening);
      else this.#server.listen(address.port, address.host, onListening);
    });
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => {
        resolve();
      });
      this.#server.closeAllConnections();
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const head = request.method === "HEAD";
    if (request.method !== "GET" && !head) {
      response.setHeader("allow", "GET, HEAD");
      send(response, plain(405, "only GET and HEAD are allowed"), false);
      return;
    }
    send(response, await this.#page(request.url ?? "/"), head);
  }

  async #page(url: string): Promise<Page> {
    const mark = url.indexOf("?");
    const path = mark < 0 ? url : url.slice(0, mark);
    switch (path) {
      case "/healthz":
        return plain(200, "ok");
      case "/readyz":
        return this.#pages.ready() ? plain(200, "ready") : plain(503, "not ready");
      case "/metrics":
        return { status: 200, ...(await this.#pages.metrics()) };
      default:
        return this.#statePage(path, new URLSearchParams(mark < 0 ? "" : url.slice(mark)));
    }
  }

  #statePage(path: string, query: URLSearchParams): Page {
    const { states } = this.#pages;
    const state = states.get(path);
    if (state === undefined) {
      const pages = ["/healthz", "/readyz", "/metrics", ...states.keys()];
      return plain(404, `the pages are ${pages.join(", ")}`);
    }
    const text = `${JSON.stringify(state(query), undefined, 2)}\n`;
    return { status: 200, contentType: "application/json", text };
  }
}

function send(response: ServerResponse, page: Page, headOnly: boolean): void {
  if (response.headersSent) {
    response.end();
    return;
  }
  response.writeHead(page.status, {
    "content-type": page.contentType,
    "content-length": Buffer.byteLength(page.text),
    "cache-control": "no-store",
  });
  response.end(headOnly ? undefined : page.text);
}

// The admin port: liveness, readiness, metrics and state over plain HTTP, bound to loopback by default.
// Its pages only read: whoever can reach it sees tenants' keys and counts, but no content and no secret.
// What an allocator does here goes to the API of capacity credits, which asks for a key.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { ListenAddress } from "../../core/model/config.js";
import { isCreditPath } from "./credit-routes.js";
import { jsonReply, sendReply, textReply, type Reply } from "./reply.js";

export interface AdminPages {
  readonly ready: () => boolean;
  /** The metrics page and its content type. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
  /** Pages of state by path, each a value that JSON can carry. */
  readonly states: ReadonlyMap<string, (query: URLSearchParams) => unknown>;
  /** The API of capacity credits; it gets every request below its path. */
  readonly credits: (request: IncomingMessage, path: string) => Reply | Promise<Reply>;
  /** The document about all this. */
  readonly openApi: object;
  readonly onError: (error: unknown) => void;
}

/** Time a client may take to send its request; the admin port must not be held open by a slow one. */
const REQUEST_TIMEOUT_MS = 10_000;

export class AdminServer {
  readonly #server: Server;
  readonly #pages: AdminPages;

  constructor(pages: AdminPages) {
    this.#pages = pages;
    this.#server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        pages.onError(error);
        sendReply(response, textReply(500, "the page could not be made"), false);
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
    const url = request.url ?? "/";
    const mark = url.indexOf("?");
    const path = mark < 0 ? url : url.slice(0, mark);
    if (isCreditPath(path)) {
      sendReply(response, await this.#pages.credits(request, path), false);
      return;
    }
    const head = request.method === "HEAD";
    if (request.method !== "GET" && !head) {
      response.setHeader("allow", "GET, HEAD");
      sendReply(response, textReply(405, "only GET and HEAD are allowed"), false);
      return;
    }
    const query = new URLSearchParams(mark < 0 ? "" : url.slice(mark));
    sendReply(response, await this.#page(path, query), head);
  }

  async #page(path: string, query: URLSearchParams): Promise<Reply> {
    switch (path) {
      case "/healthz":
        return textReply(200, "ok");
      case "/readyz":
        return this.#pages.ready() ? textReply(200, "ready") : textReply(503, "not ready");
      case "/openapi.json":
        return jsonReply(200, this.#pages.openApi);
      case "/metrics": {
        const { contentType, text } = await this.#pages.metrics();
        return { status: 200, headers: { "content-type": contentType }, text };
      }
      default:
        return this.#statePage(path, query);
    }
  }

  #statePage(path: string, query: URLSearchParams): Reply {
    const { states } = this.#pages;
    const state = states.get(path);
    if (state === undefined) {
      const pages = ["/healthz", "/readyz", "/metrics", ...states.keys(), "/openapi.json"];
      return textReply(404, `the pages are ${pages.join(", ")}`);
    }
    const text = `${JSON.stringify(state(query), undefined, 2)}\n`;
    return { status: 200, headers: { "content-type": "application/json" }, text };
  }
}

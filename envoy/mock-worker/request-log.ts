// Which requests reached this worker, and with which headers? The last 50, so that a test can see
// what a proxy in front added, kept or removed. Health and telemetry polls are left out: they would
// push everything else away. Values of a header sent several times are joined by ", ".
import type { IncomingMessage } from "node:http";

const KEPT_REQUESTS = 50;

export interface SeenRequest {
  readonly method: string;
  /** Path and query as received. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes of the body read so far. */
  body_bytes: number;
}

export class RequestLog {
  #seen: SeenRequest[] = [];

  /** Enters a request; the caller counts its body into the entry. */
  enter(request: IncomingMessage): SeenRequest {
    const headers: Record<string, string> = {};
    for (const [name, values] of Object.entries(request.headersDistinct)) {
      headers[name] = (values ?? []).join(", ");
    }
    const entry = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers,
      body_bytes: 0,
    };
    this.#seen.push(entry);
    if (this.#seen.length > KEPT_REQUESTS) this.#seen.shift();
    return entry;
  }

  /** Oldest first. */
  list(): readonly SeenRequest[] {
    return this.#seen.map((entry) => ({ ...entry }));
  }

  clear(): void {
    this.#seen = [];
  }
}

// Which requests reached this worker, and with which headers? The last 50, so that a test can see
// what a proxy in front added, kept or removed. Health and telemetry polls are left out: they would
// push everything else away. Values of a header sent several times are joined by ", ". Each entry says
// from when to when its request was here, so that visits to several workers can be laid side by side.
// Times are milliseconds since 1970 by the worker's clock.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "./clock.js";

const KEPT_REQUESTS = 50;

export interface SeenRequest {
  readonly method: string;
  /** Path and query as received. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes of the body read so far. */
  body_bytes: number;
  readonly arrived_at_ms: number;
  /** Its answer was written whole, or its client has gone; null = it is still here. */
  left_at_ms: number | null;
}

export class RequestLog {
  readonly #clock: Pick<Clock, "epochMs">;
  #seen: SeenRequest[] = [];

  constructor(clock: Pick<Clock, "epochMs">) {
    this.#clock = clock;
  }

  /** Enters a request until its response ends; the caller counts its body into the entry. */
  enter(request: IncomingMessage, response: ServerResponse): SeenRequest {
    const headers: Record<string, string> = {};
    for (const [name, values] of Object.entries(request.headersDistinct)) {
      headers[name] = (values ?? []).join(", ");
    }
    const entry: SeenRequest = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers,
      body_bytes: 0,
      arrived_at_ms: this.#clock.epochMs(),
      left_at_ms: null,
    };
    const leave = (): void => {
      entry.left_at_ms ??= this.#clock.epochMs();
    };
    response.once("finish", leave).once("close", leave);
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

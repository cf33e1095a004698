// grpc.health.v1.Health for the own servers: Check answers once, Watch tells each change. Liveness
// says "the process works", readiness "send requests here"; they are told apart by the service name
// that is asked for. State: readiness, and who watches.

import { WireReader, varintField } from "../wire.js";
import { EXT_PROC_SERVICE, type Call, type CallHandler } from "./call.js";
import { INTERNAL, NOT_FOUND, OK, UNAVAILABLE } from "./grpc-status.js";

/** Names that follow readiness. Liveness never does, or a drain would look like a crash. */
export const READINESS_NAMES = ["", "readiness", EXT_PROC_SERVICE] as const;
export const LIVENESS_NAME = "liveness";

const readinessNames: ReadonlySet<string> = new Set(READINESS_NAMES);

// HealthCheckResponse.ServingStatus.
const SERVING = varintField(1, 1);
const NOT_SERVING = varintField(1, 2);
const SERVICE_UNKNOWN = varintField(1, 3);

export class HealthService {
  readonly #watches = new Set<WatchCall>();
  #closed = false;
  #ready = false;

  setReady(ready: boolean): void {
    if (ready === this.#ready) return;
    this.#ready = ready;
    for (const watch of this.#watches) watch.tell();
  }

  check(call: Call): CallHandler {
    return new CheckCall(call, this.#status);
  }

  watch(call: Call): CallHandler {
    const watch = new WatchCall(call, this.#status, this.#watches);
    if (this.#closed) watch.stop();
    return watch;
  }

  /** Ends every watch: nothing will change any more, and an open one would keep its connection. */
  close(): void {
    this.#closed = true;
    for (const watch of [...this.#watches]) watch.stop();
  }

  /** The encoded answer for a name; undefined for an unknown one. */
  readonly #status = (name: string): Buffer | undefined => {
    if (name === LIVENESS_NAME) return SERVING;
    if (!readinessNames.has(name)) return undefined;
    return this.#ready ? SERVING : NOT_SERVING;
  };
}

type StatusOf = (name: string) => Buffer | undefined;

class CheckCall implements CallHandler {
  readonly #call: Call;
  readonly #status: StatusOf;
  #name: string | undefined;

  constructor(call: Call, status: StatusOf) {
    this.#call = call;
    this.#status = status;
  }

  message(bytes: Buffer): void {
    this.#name = serviceName(bytes);
  }

  ended(): void {
    if (this.#name === undefined) {
      this.#call.finish(INTERNAL);
      return;
    }
    const status = this.#status(this.#name);
    if (status !== undefined) this.#call.reply(status);
    this.#call.finish(status === undefined ? NOT_FOUND : OK);
  }

  closed(): void {
    this.#name = undefined;
  }
}

class WatchCall implements CallHandler {
  readonly #call: Call;
  readonly #status: StatusOf;
  readonly #watches: Set<WatchCall>;
  #name: string | undefined;
  #told: Buffer | undefined;

  constructor(call: Call, status: StatusOf, watches: Set<WatchCall>) {
    this.#call = call;
    this.#status = status;
    this.#watches = watches;
  }

  message(bytes: Buffer): void {
    this.#name = serviceName(bytes);
    if (this.#name === undefined) {
      this.#watches.delete(this);
      this.#call.finish(INTERNAL);
      return;
    }
    this.#watches.add(this);
    this.tell();
  }

  /** Sends the status unless it is the one that was sent last. */
  tell(): void {
    const status = this.#status(this.#name ?? "") ?? SERVICE_UNKNOWN;
    if (status === this.#told) return;
    this.#told = status;
    this.#call.reply(status);
  }

  stop(): void {
    this.#watches.delete(this);
    this.#call.finish(UNAVAILABLE);
  }

  ended(): void {
    // The peer has asked and now listens; only a call that asked nothing is over.
    if (this.#name === undefined) this.#call.finish(INTERNAL);
  }

  closed(): void {
    this.#watches.delete(this);
  }
}

/** `service` of a HealthCheckRequest; undefined for bytes that are not one. */
function serviceName(bytes: Buffer): string | undefined {
  let name = "";
  try {
    const reader = new WireReader(bytes);
    while (reader.next()) {
      if (reader.field === 1) name = reader.utf8();
      else reader.skip();
    }
  } catch {
    return undefined;
  }
  return name;
}

// The gRPC services of the ext_proc port, as the own servers serve them: which handler takes a call,
// and how ext_proc's one method becomes an exchange. The carrier below (h2c, node:http2) knows
// streams, messages and statuses, and none of the services; grpc-js has a router of its own.

import {
  HEALTH_CHECK_PATH,
  HEALTH_WATCH_PATH,
  PROCESS_PATH,
  type Call,
  type CallHandler,
} from "./call.js";
import type { HealthService } from "./health-service.js";
import { INTERNAL, OK, UNIMPLEMENTED } from "./grpc-status.js";
import type { Exchange, ExchangeHandler, OpenExchange } from "./transport.js";

export interface Services {
  readonly open: OpenExchange;
  readonly health: HealthService;
}

/** The handler of a new call; `path` is undefined for what is no gRPC request. */
export function handlerOf(services: Services, path: string | undefined, call: Call): CallHandler {
  switch (path) {
    case PROCESS_PATH:
      return new ProcessCall(services.open, call);
    case HEALTH_CHECK_PATH:
      return services.health.check(call);
    case HEALTH_WATCH_PATH:
      return services.health.watch(call);
    case undefined:
    default:
      return new UnknownCall(call);
  }
}

/** One ext_proc stream. */
class ProcessCall implements Exchange, CallHandler {
  readonly #call: Call;
  readonly #handler: ExchangeHandler;
  #over = false;

  constructor(open: OpenExchange, call: Call) {
    this.#call = call;
    this.#handler = open(this);
  }

  send(reply: Buffer): void {
    if (!this.#over) this.#call.reply(reply);
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#call.finish(INTERNAL);
    this.#handler.closed();
  }

  message(bytes: Buffer): void {
    if (!this.#over) this.#handler.message(bytes);
  }

  ended(): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.closed();
    // The stream must be ended here, or Envoy resets every one.
    this.#call.finish(OK);
  }

  closed(): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.closed();
  }
}

/** A method nobody serves. It is answered when the peer has said all: no stream needs a reset. */
class UnknownCall implements CallHandler {
  readonly #call: Call;

  constructor(call: Call) {
    this.#call = call;
  }

  message(): void {
    // Nobody reads it.
  }

  ended(): void {
    this.#call.finish(UNIMPLEMENTED);
  }

  closed(): void {
    // Nothing is held.
  }
}

// One request as a simulated Envoy carries it: messages to Weir in Envoy's order and encoding (by the
// oracle), replies carried out, timeouts, local replies in a worker's place, and a client that may
// leave at any moment. Weir's own Session is on the other side; only the socket between is left out.

import type { ExchangeHandler, OpenExchange } from "../../extproc/edge/envoy/transport.js";
import {
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  responseTrailers,
} from "../support/ext-proc-client.js";
import { decodeReply, encodeRequest, type ReplyShape } from "../support/oracle.js";
import type { Chance } from "./chance.js";
import type { Book } from "./checkers.js";
import type { Engine } from "./engine.js";
import type { EventQueue, Planned } from "./event-queue.js";

/** Envoy's flags: connection failure, connection closed by the worker. */
const UF = 2 ** 5;
const UC = 2 ** 6;
const REFUSED = "upstream_reset_before_response_started{remote_connection_failure}";
const RESET = "upstream_reset_before_response_started{connection_termination}";
/** Silence after which Envoy gives a stream up. */
const IDLE_TIMEOUT_MS = 335_000;
const NETWORK_MS = 2;

export interface EnvoyWorld {
  readonly events: EventQueue;
  readonly chance: Chance;
  readonly book: Book;
  readonly open: OpenExchange;
  readonly engineOf: (cluster: string) => Engine;
  readonly now: () => number;
  readonly trace: (what: string) => void;
}

export interface RequestPlan {
  readonly id: string;
  readonly model: string;
  readonly partition: string;
  readonly sse: boolean;
  readonly tokens: number;
  /** When the client loses patience, after its start; undefined = never. */
  readonly leavesAfterMs: number | undefined;
}

export class SimRequest {
  readonly #plan: RequestPlan;
  readonly #world: EnvoyWorld;
  readonly #session: ExchangeHandler;
  readonly #timers: Planned[] = [];
  #engine: Engine | undefined;
  #stirredAt = 0;
  #answered = false;
  /** The worker answered with an error, so its usage is not known. */
  #failed = false;
  #over = false;

  constructor(plan: RequestPlan, world: EnvoyWorld) {
    this.#plan = plan;
    this.#world = world;
    this.#session = world.open({
      send: (reply) => {
        this.#carryOut(decodeReply(reply));
      },
      abort: () => {
        world.book.violate(`${plan.id} is cut by Weir`);
      },
    });
  }

  start(): void {
    const { id, model, partition, tokens, leavesAfterMs } = this.#plan;
    this.#world.book.opened(id, partition, tokens);
    if (leavesAfterMs !== undefined) {
      this.#after(leavesAfterMs, "leave", () => {
        this.#leave();
      });
    }
    this.#tell(requestHeaders({ id }));
    this.#after(this.#world.chance.unit() * 20, "body", () => {
      this.#tell(requestBody(JSON.stringify({ model, stream: this.#plan.sse, messages: [] })));
    });
  }

  #carryOut(reply: ReplyShape): void {
    const { book, trace } = this.#world;
    const { id } = this.#plan;
    if (this.#over) {
      book.violate(`${id} gets a reply after its end`);
      return;
    }
    const refused = reply.immediate_response?.status.code;
    if (refused !== undefined) {
      trace(`${id} refused ${String(refused)}`);
      if (this.#engine !== undefined) book.violate(`${id} is refused while it runs`);
      this.#after(0, "close", () => {
        this.#close();
      });
      return;
    }
    const budgetS = reply.override_message_timeout?.seconds;
    if (budgetS !== undefined) {
      trace(`${id} held`);
      book.held(id);
      this.#after(budgetS * 1_000, "cut", () => {
        if (this.#engine === undefined) book.violate(`${id} is held until Envoy cuts it`);
      });
      return;
    }
    const [header] = reply.request_body?.response?.header_mutation?.set_headers ?? [];
    if (header !== undefined) this.#dispatch(String(header.header.raw_value));
    else if (reply.request_body !== undefined) book.violate(`${id} is let through unrouted`);
  }

  #dispatch(cluster: string): void {
    const engine = this.#world.engineOf(cluster);
    this.#engine = engine;
    this.#world.trace(`${this.#plan.id} to ${cluster}`);
    this.#world.book.routed(this.#plan.id, engine.options.url);
    this.#stir();
    this.#watch(IDLE_TIMEOUT_MS);
    this.#after(NETWORK_MS, "send", () => {
      const { id, tokens, sse } = this.#plan;
      const accepted = engine.accept({
        id,
        tokens,
        sse,
        sink: {
          headers: (status, whole) => {
            this.#headers(status, whole);
          },
          body: (text, last) => {
            this.#body(text, last);
          },
          reset: () => {
            this.#reset();
          },
        },
      });
      if (!accepted) this.#localReply(503, REFUSED, UF);
    });
  }

  #headers(status: number, whole: boolean): void {
    this.#stir();
    this.#answered = true;
    this.#failed = status !== 200;
    if (whole) this.#world.book.over(this.#plan.id, false);
    const contentType = this.#plan.sse ? "text/event-stream" : "application/json";
    this.#tell(responseHeaders({ status, endOfStream: whole, contentType }));
    if (whole) this.#close();
  }

  #body(text: string, last: boolean): void {
    this.#stir();
    if (!last) {
      this.#tell(responseBody(text));
      return;
    }
    this.#world.book.over(this.#plan.id, !this.#failed);
    // Some workers end with trailers, some with the last chunk.
    if (text === "" && this.#world.chance.once(0.2)) this.#tell(responseTrailers());
    else this.#tell(responseBody(text, true));
    this.#close();
  }

  #reset(): void {
    if (this.#answered) this.#close();
    else this.#localReply(503, RESET, UC);
  }

  #localReply(status: number, codeDetails: string, flags: number): void {
    this.#world.book.over(this.#plan.id, false);
    this.#answered = true;
    this.#tell(responseHeaders({ status, codeDetails, flags, contentType: "text/plain" }));
    this.#tell(responseBody("upstream connect error", true));
    this.#close();
  }

  /** Something happened on the stream: its idle timeout starts anew. */
  #stir(): void {
    this.#stirredAt = this.#world.now();
  }

  #watch(ms: number): void {
    this.#after(ms, "idle", () => {
      const silentMs = this.#world.now() - this.#stirredAt;
      if (silentMs < IDLE_TIMEOUT_MS) {
        // At least a millisecond: a rest that is lost in rounding would not let time go on.
        this.#watch(Math.max(1, IDLE_TIMEOUT_MS - silentMs));
        return;
      }
      this.#engine?.drop(this.#plan.id);
      if (this.#answered) this.#close();
      else this.#localReply(504, "stream_idle_timeout", 0);
    });
  }

  #leave(): void {
    this.#world.trace(`${this.#plan.id} leaves`);
    this.#engine?.drop(this.#plan.id);
    this.#close();
  }

  /** Envoy closes the stream to Weir, whatever its phase. */
  #close(): void {
    if (this.#over) return;
    this.#over = true;
    for (const timer of this.#timers) timer.cancelled = true;
    const { book } = this.#world;
    book.over(this.#plan.id, false);
    this.#session.closed();
    book.closed(this.#plan.id);
  }

  #tell(message: object): void {
    this.#session.message(encodeRequest(message));
  }

  #after(ms: number, what: string, run: () => void): void {
    const { events, now } = this.#world;
    this.#timers.push(events.plan(now() + ms, `${what} ${this.#plan.id}`, run));
  }
}

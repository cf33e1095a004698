// One request as a simulated Envoy carries it: messages to Weir in Envoy's order and encoding (by the
// oracle), replies carried out, timeouts, local replies in a worker's place, and a client that may
// leave at any moment. Weir's own Session is on the other side; only the socket between is left out,
// but for one thing: a refusal of a running request is on its way for a while, and what the worker
// answers meanwhile still goes to Weir.

import type {
  ExchangeHandler,
  OpenExchange,
} from "../../extproc/edge/envoy/transport/transport.js";
import {
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  responseTrailers,
} from "../support/ext-proc-client.js";
import { decodeReply, encodeRequest, type ReplyShape } from "../support/oracle.js";
import type { Chance } from "./chance.js";
import type { Arrival, Book } from "./checkers.js";
import type { Engine } from "./engine.js";
import type { EventQueue, Planned } from "./event-queue.js";
import { CLASSES, type WorkerState } from "./fleet.js";

/** Envoy's flags: connection failure, connection closed by the worker. */
const UF = 2 ** 5;
const UC = 2 ** 6;
const REFUSED = "upstream_reset_before_response_started{remote_connection_failure}";
const RESET = "upstream_reset_before_response_started{connection_termination}";
/** Silence after which Envoy gives a stream up. */
const IDLE_TIMEOUT_MS = 335_000;
const NETWORK_MS = 2;
/** From Weir's refusal of a running request until Envoy resets the worker, and then until its stream ends. */
const REFUSAL_MS_MAX = 60;
const UNWINDING_MS_MAX = 30;
const SLOW_UNWINDING_MS_MAX = 5_000;
const CHANCE_OF = {
  /** A victim that takes its time. */
  slowUnwinding: 0.05,
  /** A victim's client that leaves while the request unwinds. */
  victimLeaves: 0.2,
  /** A client that leaves right after its request was held. */
  heldLeaves: 0.03,
};

/** What a run has met; one that met nothing proves nothing. */
export interface Met {
  /** Answers that began after their request was preempted. */
  crossed: number;
  /** Clients that left while their request unwound. */
  leftUnwinding: number;
}

export interface EnvoyWorld {
  readonly events: EventQueue;
  readonly chance: Chance;
  readonly book: Book;
  readonly open: OpenExchange;
  readonly met: Met;
  readonly engineOf: (cluster: string) => Engine;
  readonly workerOf: (cluster: string) => WorkerState;
  /** Weir has nothing left to do from earlier events. */
  readonly settle: () => void;
  readonly now: () => number;
  readonly trace: (what: string) => void;
}

export interface RequestPlan extends Arrival {
  readonly sse: boolean;
  readonly source: string;
  readonly headers: readonly (readonly [string, string])[];
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
  /** Weir refused it; nothing may follow. */
  #refused = false;
  /** Weir's refusal has come: the worker has nothing of it any more. */
  #workerReset = false;
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
    const { id, model, source, headers, leavesAfterMs, prompt } = this.#plan;
    this.#world.book.opened(this.#plan);
    if (leavesAfterMs !== undefined) {
      this.#after(leavesAfterMs, "leave", () => {
        this.#leave();
      });
    }
    this.#tell(requestHeaders({ id, source, headers }));
    this.#after(this.#world.chance.unit() * 20, "body", () => {
      const body = JSON.stringify({
        model,
        stream: this.#plan.sse,
        messages: [{ role: "user", content: prompt }],
      });
      this.#world.settle();
      this.#world.book.asks(id, () => {
        this.#tell(requestBody(body));
      });
    });
  }

  #carryOut(reply: ReplyShape): void {
    const { book } = this.#world;
    const { id } = this.#plan;
    if (this.#over) {
      book.violate(`${id} gets a reply after its end`);
      return;
    }
    if (this.#refused) {
      book.violate(`${id} gets a reply after its refusal`);
      return;
    }
    if (reply.immediate_response !== undefined) {
      this.#refusal(reply.immediate_response);
      return;
    }
    const budgetS = reply.override_message_timeout?.seconds;
    if (budgetS !== undefined) {
      this.#hold(budgetS);
      return;
    }
    const [header] = reply.request_body?.response?.header_mutation?.set_headers ?? [];
    if (header !== undefined) this.#dispatch(String(header.header.raw_value));
    else if (reply.request_body !== undefined) book.violate(`${id} is let through unrouted`);
  }

  #refusal(refusal: NonNullable<ReplyShape["immediate_response"]>): void {
    const { book, trace } = this.#world;
    const { id, rank } = this.#plan;
    this.#refused = true;
    const headers = new Map(
      refusal.headers?.set_headers?.map(({ header }) => [header.key, String(header.raw_value)]),
    );
    const code = headers.get("x-weir-error-code") ?? "";
    const preempted = code === "scheduler_preempted";
    trace(`${id} refused ${String(refusal.status.code)} ${code}`);
    const retryAfterS = Number(headers.get("retry-after") ?? "1");
    const longest = code.startsWith("scheduler_queue") ? CLASSES[rank]?.queueTimeoutSecs : 1;
    if (retryAfterS < 1 || retryAfterS > (longest ?? 0)) {
      book.violate(`${id} may come again after ${String(retryAfterS)} s`);
    }
    if ((headers.get("x-weir-preempted") === "true") !== preempted) {
      book.violate(`${id} has the wrong headers of a refusal`);
    }
    if (preempted) this.#preempted();
    else if (this.#engine !== undefined) book.violate(`${id} is refused while it runs`);
    else {
      this.#after(0, "close", () => {
        this.#close();
      });
    }
  }

  /** The refusal travels, Envoy resets the worker's request, and the stream ends. */
  #preempted(): void {
    const { book, chance, met, trace } = this.#world;
    const { id } = this.#plan;
    book.preempted(id);
    const slow = chance.once(CHANCE_OF.slowUnwinding);
    const unwindingMs = chance.unit() * (slow ? SLOW_UNWINDING_MS_MAX : UNWINDING_MS_MAX);
    const arrivesMs = chance.unit() * REFUSAL_MS_MAX;
    this.#after(arrivesMs, "refused", () => {
      this.#workerReset = true;
      this.#engine?.drop(id);
      this.#after(unwindingMs, "unwound", () => {
        this.#close();
      });
    });
    if (!chance.once(CHANCE_OF.victimLeaves)) return;
    this.#after(chance.unit() * (arrivesMs + unwindingMs), "leave", () => {
      trace(`${id} leaves unwinding`);
      met.leftUnwinding += 1;
      this.#leave();
    });
  }

  #hold(budgetS: number): void {
    const { book, chance, trace } = this.#world;
    const { id } = this.#plan;
    trace(`${id} held`);
    book.held(id, budgetS);
    this.#after(budgetS * 1_000, "cut", () => {
      if (this.#engine === undefined) book.violate(`${id} is held until Envoy cuts it`);
    });
    if (!chance.once(CHANCE_OF.heldLeaves)) return;
    this.#after(chance.unit() * UNWINDING_MS_MAX, "leave", () => {
      this.#leave();
    });
  }

  #dispatch(cluster: string): void {
    const engine = this.#world.engineOf(cluster);
    this.#engine = engine;
    this.#world.trace(`${this.#plan.id} to ${cluster}`);
    this.#world.book.routed(this.#plan.id, this.#world.workerOf(cluster));
    this.#stir();
    this.#watch(IDLE_TIMEOUT_MS);
    this.#after(NETWORK_MS, "send", () => {
      if (this.#workerReset) return;
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
    this.#answerBegins();
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
    this.#answerBegins();
    this.#world.book.over(this.#plan.id, false);
    this.#answered = true;
    this.#tell(responseHeaders({ status, codeDetails, flags, contentType: "text/plain" }));
    this.#tell(responseBody("upstream connect error", true));
    this.#close();
  }

  #answerBegins(): void {
    this.#world.book.answers(this.#plan.id);
    if (this.#refused) this.#world.met.crossed += 1;
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
    const { id } = this.#plan;
    if (this.#engine?.has(id) === true) book.violate(`${id} is over and its worker goes on`);
    book.streamOver(id);
    this.#session.closed();
    book.closed(id);
  }

  #tell(message: object): void {
    this.#session.message(encodeRequest(message));
  }

  #after(ms: number, what: string, run: () => void): void {
    const { events, now } = this.#world;
    this.#timers.push(events.plan(now() + ms, `${what} ${this.#plan.id}`, run));
  }
}

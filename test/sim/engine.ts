// A simulated inference engine: batch slots, an internal queue, a pace per token, answers in JSON or
// SSE, and what goes wrong with engines: error answers, resets before and in the middle of an answer,
// hangs, a crash that takes all running requests along, and recovery.

import type { Chance } from "./chance.js";
import type { EventQueue, Planned } from "./event-queue.js";

/** What the engine does to the answer of one request, as Envoy notices it. */
export interface AnswerSink {
  /** Response headers; `whole` when no body follows. */
  readonly headers: (status: number, whole: boolean) => void;
  /** Part of the body. */
  readonly body: (text: string, last: boolean) => void;
  /** The connection broke. */
  readonly reset: () => void;
}

export interface Job {
  readonly id: string;
  readonly tokens: number;
  readonly sse: boolean;
  readonly sink: AnswerSink;
}

interface Running extends Job {
  step: Planned | undefined;
}

export interface EngineOptions {
  readonly url: string;
  readonly slots: number;
  readonly msPerToken: number;
}

const PREFILL_MS = 150;
/** Tokens in one SSE event: as many as keep the number of simulated messages sensible. */
const TOKENS_PER_EVENT = 16;
const CHANCE_OF = {
  error: 0.01,
  errorWithoutBody: 0.003,
  resetEarly: 0.01,
  resetLate: 0.01,
  hang: 0.002,
};

export class Engine {
  readonly options: EngineOptions;
  readonly #events: EventQueue;
  readonly #chance: Chance;
  readonly #now: () => number;
  readonly #running = new Map<string, Running>();
  readonly #waiting = new Map<string, Running>();
  up = true;

  constructor(
    options: EngineOptions,
    world: { readonly events: EventQueue; readonly chance: Chance; readonly now: () => number },
  ) {
    this.options = options;
    this.#events = world.events;
    this.#chance = world.chance;
    this.#now = world.now;
  }

  /** Takes a request; false when nobody listens. */
  accept(job: Job): boolean {
    if (!this.up) return false;
    this.#waiting.set(job.id, { ...job, step: undefined });
    this.#fill();
    return true;
  }

  /** Requests it has, running or in its own queue. */
  get size(): number {
    return this.#running.size + this.#waiting.size;
  }

  /** It has the request, running or in its own queue. */
  has(id: string): boolean {
    return this.#running.has(id) || this.#waiting.has(id);
  }

  /** The client went away. */
  drop(id: string): void {
    this.#waiting.delete(id);
    const job = this.#running.get(id);
    if (job?.step !== undefined) job.step.cancelled = true;
    this.#running.delete(id);
    this.#fill();
  }

  crash(): void {
    this.up = false;
    const lost = [...this.#running.values(), ...this.#waiting.values()];
    this.#running.clear();
    this.#waiting.clear();
    for (const job of lost) {
      if (job.step !== undefined) job.step.cancelled = true;
      job.sink.reset();
    }
  }

  recover(): void {
    this.up = true;
  }

  #fill(): void {
    for (const [id, job] of this.#waiting) {
      if (this.#running.size >= this.options.slots) return;
      this.#waiting.delete(id);
      this.#running.set(id, job);
      this.#begin(job);
    }
  }

  #after(job: Running, ms: number, run: () => void): void {
    job.step = this.#events.plan(this.#now() + ms, `engine ${job.id}`, run);
  }

  #begin(job: Running): void {
    const chance = this.#chance;
    const prefillMs = PREFILL_MS * (0.5 + chance.unit());
    if (chance.once(CHANCE_OF.hang)) return;
    if (chance.once(CHANCE_OF.resetEarly)) {
      this.#after(job, prefillMs, () => {
        this.#finish(job);
        job.sink.reset();
      });
    } else if (chance.once(CHANCE_OF.error)) {
      this.#after(job, prefillMs, () => {
        this.#finish(job);
        job.sink.headers(500, false);
        job.sink.body('{"error":"out of memory"}', true);
      });
    } else if (chance.once(CHANCE_OF.errorWithoutBody)) {
      this.#after(job, prefillMs, () => {
        this.#finish(job);
        job.sink.headers(503, true);
      });
    } else if (job.sse) this.#stream(job, prefillMs);
    else this.#whole(job, prefillMs);
  }

  #whole(job: Running, prefillMs: number): void {
    this.#after(job, prefillMs + job.tokens * this.options.msPerToken, () => {
      this.#finish(job);
      job.sink.headers(200, false);
      job.sink.body(
        `{"usage":{"prompt_tokens":9,"completion_tokens":${String(job.tokens)}}}`,
        true,
      );
    });
  }

  #stream(job: Running, prefillMs: number): void {
    const breaksAt = this.#chance.once(CHANCE_OF.resetLate)
      ? this.#chance.whole(1, job.tokens)
      : Number.POSITIVE_INFINITY;
    const next = (produced: number): void => {
      if (produced > breaksAt) {
        this.#finish(job);
        job.sink.reset();
        return;
      }
      if (produced < job.tokens) {
        job.sink.body('data: {"choices":[{"delta":{"content":"token"}}]}\n\n', false);
        const count = Math.min(TOKENS_PER_EVENT, job.tokens - produced);
        this.#after(job, count * this.options.msPerToken, () => {
          next(produced + count);
        });
        return;
      }
      this.#finish(job);
      const usage = `{"prompt_tokens":9,"completion_tokens":${String(job.tokens)}}`;
      job.sink.body(`data: {"choices":[],"usage":${usage}}\n\ndata: [DONE]\n\n`, false);
      job.sink.body("", true);
    };
    this.#after(job, prefillMs, () => {
      job.sink.headers(200, false);
      next(0);
    });
  }

  #finish(job: Running): void {
    this.#running.delete(job.id);
    this.#fill();
  }
}

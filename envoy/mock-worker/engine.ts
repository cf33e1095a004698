// Which requests run, which wait, and when does each produce its next token? The batch of an
// inference engine: at most `slots` requests run, the rest wait first in, first out, also when only
// the KV cache has no room. A request computes the uncached part of its prompt (prefill), then gives
// one token per choice every `msPerToken`, counted from the end of prefill, so that timer drift does
// not add up. One HTTP request is one slot, whatever its number of prompts or choices. State lives
// here; who answers the client is told through the listener. Times are milliseconds of the clock.
import type { Cancel, Clock } from "./clock.js";
import { tokensOf, type KvCache, type KvHold, type KvPlan } from "./kv-cache.js";
import { ThroughputMeter } from "./throughput.js";

export type FinishReason = "stop" | "length" | "abort";

export interface JobSpec {
  /** Name a client gave the request, for /abort_request. */
  readonly requestName: string | undefined;
  readonly prompts: readonly string[];
  readonly choicesPerPrompt: number;
  /** Tokens of each choice; 0 for embeddings and the like. */
  readonly outputTokens: number;
  readonly finish: FinishReason;
  /** Added to prefill. */
  readonly extraDelayMs: number;
  /** Takes a slot and never produces anything. */
  readonly hang: boolean;
  /** Tell every token as it comes; otherwise only the end. */
  readonly tellTokens: boolean;
}

export interface Grant {
  readonly promptTokens: readonly number[];
  readonly cachedTokens: readonly number[];
}

export interface JobListener {
  /** The request has a slot now. */
  admitted(grant: Grant): void;
  /** One more token of every choice; `index` counts from 0. */
  token(index: number): void;
  ended(finish: FinishReason, tokensPerChoice: number): void;
}

export interface JobHandle {
  /** Ends the request early; does nothing once it has ended. */
  stop(why: "cancelled" | "faulted"): void;
}

interface Job {
  readonly spec: JobSpec;
  readonly listener: JobListener;
  readonly plan: KvPlan;
  readonly promptTokens: readonly number[];
  hold: KvHold | undefined;
  cancelTimer: Cancel | undefined;
  prefilledAt: number;
  produced: number;
  over: boolean;
}

export interface EngineCounters {
  peakRunning: number;
  /** Requests the engine ran to their end. */
  served: number;
  /** Requests whose client went away. */
  cancelled: number;
  /** Requests ended or refused by an injected fault. */
  faulted: number;
  promptTokens: number;
  completionTokens: number;
  queriedTokens: number;
  hitTokens: number;
  readonly finished: Record<FinishReason, number>;
}

const zeroCounters = (): EngineCounters => ({
  peakRunning: 0,
  served: 0,
  cancelled: 0,
  faulted: 0,
  promptTokens: 0,
  completionTokens: 0,
  queriedTokens: 0,
  hitTokens: 0,
  finished: { stop: 0, length: 0, abort: 0 },
});

export class Engine {
  readonly slots: number;
  readonly throughput: ThroughputMeter;
  counters: EngineCounters = zeroCounters();
  readonly #msPerToken: number;
  readonly #prefillMsPerBlock: number;
  readonly #clock: Clock;
  readonly #cache: KvCache;
  readonly #waiting = new Set<Job>();
  readonly #running = new Set<Job>();

  constructor(options: {
    readonly slots: number;
    readonly msPerToken: number;
    readonly prefillMsPerBlock: number;
    readonly clock: Clock;
    readonly cache: KvCache;
  }) {
    this.slots = options.slots;
    this.#msPerToken = options.msPerToken;
    this.#prefillMsPerBlock = options.prefillMsPerBlock;
    this.#clock = options.clock;
    this.#cache = options.cache;
    this.throughput = new ThroughputMeter();
  }

  get running(): number {
    return this.#running.size;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Prompt tokens of waiting requests, all of them and those not in the cache. */
  waitingTokens(): { readonly all: number; readonly uncached: number } {
    let all = 0;
    let uncached = 0;
    const blockTokens = this.#cache.blockChars / 4;
    for (const job of this.#waiting) {
      const tokens = sum(job.promptTokens);
      all += tokens;
      uncached += Math.min(tokens, this.#cache.uncachedBlocks(job.plan) * blockTokens);
    }
    return { all, uncached };
  }

  /** Takes a request in; `admitted` may be told before this returns, tokens and the end never. */
  submit(spec: JobSpec, listener: JobListener): JobHandle {
    const sequences = spec.prompts.length * spec.choicesPerPrompt;
    const job: Job = {
      spec,
      listener,
      plan: this.#cache.plan(spec.prompts, spec.outputTokens * sequences),
      promptTokens: spec.prompts.map(tokensOf),
      hold: undefined,
      cancelTimer: undefined,
      prefilledAt: 0,
      produced: 0,
      over: false,
    };
    this.#waiting.add(job);
    this.#admitWhatFits();
    return {
      stop: (why) => {
        if (job.over) return;
        this.counters[why] += 1;
        this.#remove(job);
        this.#admitWhatFits();
      },
    };
  }

  /** Ends the requests of that name, or all of them; returns how many. */
  abort(which: { readonly all: true } | { readonly requestName: string }): number {
    const jobs = [...this.#running, ...this.#waiting].filter(
      (job) => "all" in which || job.spec.requestName === which.requestName,
    );
    for (const job of jobs) this.#finish(job, "abort");
    return jobs.length;
  }

  zeroCounters(): void {
    this.counters = zeroCounters();
    this.counters.peakRunning = this.#running.size;
    this.#cache.zeroCounters();
  }

  #admitWhatFits(): void {
    for (const job of this.#waiting) {
      if (this.#running.size >= this.slots) return;
      const hold = this.#cache.tryHold(job.plan);
      if (hold === undefined) return;
      this.#waiting.delete(job);
      this.#begin(job, hold);
    }
  }

  #begin(job: Job, hold: KvHold): void {
    job.hold = hold;
    this.#running.add(job);
    const counters = this.counters;
    counters.peakRunning = Math.max(counters.peakRunning, this.#running.size);
    const blockTokens = this.#cache.blockChars / 4;
    const cachedTokens = hold.hitBlocks.map((blocks) => blocks * blockTokens);
    counters.queriedTokens += sum(job.promptTokens);
    counters.hitTokens += sum(cachedTokens);
    job.listener.admitted({ promptTokens: job.promptTokens, cachedTokens });
    if (job.spec.hang) return;
    const prefillMs = job.spec.extraDelayMs + hold.uncachedBlocks * this.#prefillMsPerBlock;
    job.cancelTimer = this.#clock.after(prefillMs, () => {
      this.#cache.publish(hold);
      this.counters.promptTokens += sum(job.promptTokens);
      job.prefilledAt = this.#clock.now();
      this.#step(job);
    });
  }

  /** Produces what is due by now, then waits for the next token or ends. */
  #step(job: Job): void {
    const { outputTokens, tellTokens, finish } = job.spec;
    const pace = this.#msPerToken;
    const elapsedMs = this.#clock.now() - job.prefilledAt;
    // Timers may fire a little early; half a microsecond of slack keeps a due token from waiting.
    const due =
      pace > 0
        ? Math.floor(elapsedMs / pace + 0.0005)
        : tellTokens
          ? job.produced + 1
          : outputTokens;
    while (job.produced < Math.min(due, outputTokens) && !job.over) this.#produce(job);
    if (job.over) return;
    if (job.produced >= outputTokens) {
      this.#finish(job, finish);
      return;
    }
    const nextAt = job.prefilledAt + (job.produced + 1) * pace;
    const delayMs = pace > 0 ? nextAt - this.#clock.now() : 0;
    job.cancelTimer = this.#clock.after(delayMs, () => {
      this.#step(job);
    });
  }

  #produce(job: Job): void {
    const sequences = job.spec.prompts.length * job.spec.choicesPerPrompt;
    const index = job.produced;
    job.produced += 1;
    this.counters.completionTokens += sequences;
    this.throughput.add(sequences, this.#clock.now());
    if (job.spec.tellTokens) job.listener.token(index);
  }

  #finish(job: Job, finish: FinishReason): void {
    this.counters.served += 1;
    this.counters.finished[finish] += 1;
    this.#remove(job);
    job.listener.ended(finish, job.produced);
    this.#admitWhatFits();
  }

  #remove(job: Job): void {
    job.over = true;
    job.cancelTimer?.();
    this.#waiting.delete(job);
    this.#running.delete(job);
    if (job.hold !== undefined) this.#cache.release(job.hold);
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

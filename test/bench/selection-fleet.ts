// A whole Weir core before the engines of mock workers, on virtual time: requests enter by the same
// doors as Envoy's, engines run their batches and keep their caches as the worker processes do, and
// what a policy is worth is read from the engines, not from Weir. Eight workers, Envoy and Weir as
// processes on a machine with fewer cores would measure how these compete for the cores; here nothing
// takes time but what the engines do, a run is the same each time, and hours pass in seconds.

import type { Clock } from "../../envoy/mock-worker/clock.js";
import { chatPrompt } from "../../envoy/mock-worker/dialects/prompt-text.js";
import { Engine } from "../../envoy/mock-worker/engine.js";
import type { Json } from "../../envoy/mock-worker/json.js";
import { KvCache } from "../../envoy/mock-worker/kv-cache.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { RequestLife } from "../../extproc/core/request/request-life.js";
import type { Verdict } from "../../extproc/core/request/verdict.js";
import { Chance } from "../sim/chance.js";
import { EventQueue } from "../sim/event-queue.js";
import { Bench, bytes, requestHead, responseHead } from "../support/desk.js";
import type { Conversation } from "./selection-load.js";

export interface FleetShape {
  readonly workers: number;
  readonly slots: number;
  readonly kvBlocks: number;
  readonly blockChars: number;
  readonly msPerToken: number;
  readonly prefillMsPerBlock: number;
}

export interface Run {
  readonly shape: FleetShape;
  readonly models: object;
  readonly selection: object;
  readonly conversations: readonly Conversation[];
  /** All conversations begin within this time, which also ends what is measured. */
  readonly lengthMs: number;
  readonly seed: number;
  /** The engines tell how many of their slots are in use, as SGLang does and vLLM does not. */
  readonly tellsUtilization: boolean;
}

export interface Measured {
  /** Of all prompt tokens. */
  readonly cachedShare: number;
  /** Requests at the fullest worker by requests at the mean worker, mean over time. */
  readonly maxByMean: number;
  /** From the arrival at Weir to the first token. */
  readonly firstTokenMs: readonly number[];
  readonly refused: number;
  /** How often each result decided, the time of filling caches included. */
  readonly results: ReadonlyMap<string, number>;
}

const POLL_MS = 10_000;
const LOOK_MS = 250;
/** Part of a run in which caches fill and nothing is measured. */
const WARM_UP = 0.25;

class VirtualClock implements Clock {
  readonly #events = new EventQueue();
  #now = 0;

  now(): number {
    return this.#now;
  }

  epochMs(): number {
    return this.#now;
  }

  after(delayMs: number, run: () => void): () => void {
    const planned = this.#events.plan(this.#now + Math.max(0, delayMs), "", run);
    return () => {
      planned.cancelled = true;
    };
  }

  /** Runs what falls due, one after the other, for as long as there is a reason to. */
  runWhile(goesOn: () => boolean): void {
    while (goesOn()) {
      const next = this.#events.next();
      if (next === undefined) return;
      this.#now = next.atMs;
      next.run();
    }
  }
}

interface Member {
  readonly url: string;
  readonly engine: Engine;
  readonly cache: KvCache;
}

interface Message {
  readonly [name: string]: Json;
  readonly role: string;
  readonly content: string;
}

export class Fleet {
  readonly bench: Bench;
  readonly #run: Run;
  readonly #clock = new VirtualClock();
  readonly #members: readonly Member[];
  readonly #byUrl: ReadonlyMap<string, Member>;
  readonly #firstTokenMs: number[] = [];
  #refused = 0;
  /** Measured requests that have no first token yet. */
  #awaited = 0;
  #promptTokens = 0;
  #cachedTokens = 0;
  #unevenness = 0;
  #looks = 0;
  #polls = 0;

  constructor(run: Run) {
    const { shape } = run;
    this.#run = run;
    this.#members = Array.from({ length: shape.workers }, (_, index) => {
      const cache = new KvCache({ capacityBlocks: shape.kvBlocks, blockChars: shape.blockChars });
      const engine = new Engine({ ...shape, clock: this.#clock, cache });
      return { url: `http://127.0.0.1:${String(index + 1)}`, engine, cache };
    });
    this.#byUrl = new Map(this.#members.map((member) => [member.url, member]));
    const slots = shape.workers * shape.slots;
    this.bench = new Bench(
      {
        workers: this.#members.map(({ url }, index) => ({
          url,
          cluster: `worker_${String(index + 1)}`,
          models: ["demo"],
          labels: { max_running_requests: shape.slots },
        })),
        models: run.models,
        selection: run.selection,
        scheduler: { max_concurrent_requests: slots, queue_size: 10_000, queue_timeout_secs: 600 },
        fair_share: { max_queued_requests_per_tenant: 10_000 },
      },
      run.seed,
    );
  }

  measure(): Measured {
    const { conversations, lengthMs, seed } = this.#run;
    const chance = new Chance(seed);
    for (const conversation of conversations) {
      this.#clock.after(chance.unit() * lengthMs, () => {
        this.#ask(conversation, 0, [{ role: "system", content: conversation.prefix }]);
      });
    }
    this.#every(POLL_MS, () => {
      this.#poll();
    });
    this.#every(LOOK_MS, () => {
      this.#look();
    });
    // Whoever waits longest for a first token must not be left out.
    this.#clock.runWhile(() => this.#clock.now() < lengthMs || this.#awaited > 0);
    const results = new Map<string, number>();
    for (const { result, count } of this.bench.core.selector.decisions.all()) {
      results.set(result, count);
    }
    return {
      cachedShare: this.#cachedTokens / this.#promptTokens,
      maxByMean: this.#unevenness / this.#looks,
      firstTokenMs: this.#firstTokenMs.sort((one, other) => one - other),
      refused: this.#refused,
      results,
    };
  }

  get #isMeasured(): boolean {
    const { lengthMs } = this.#run;
    return this.#clock.now() >= WARM_UP * lengthMs && this.#clock.now() <= lengthMs;
  }

  #ask(conversation: Conversation, index: number, before: readonly Message[]): void {
    const turn = conversation.turns[index];
    if (turn === undefined) return;
    const messages = [...before, { role: "user", content: turn.question }];
    const limit = conversation.limitTokens;
    const body = bytes({
      model: "demo",
      messages,
      ...(limit === undefined ? {} : { max_tokens: limit }),
    });
    this.#send(body, messages, turn.outputTokens, () => {
      const next = conversation.turns[index + 1];
      if (next === undefined) return;
      this.#clock.after(next.thinkMs, () => {
        const answer = { role: "assistant", content: turn.answer };
        this.#ask(conversation, index + 1, [...messages, answer]);
      });
    });
  }

  #send(body: Uint8Array, messages: Message[], tokens: number, ended: () => void): void {
    const desk = this.bench.desk;
    const arrivedAt = this.#now();
    const counts = this.#isMeasured;
    if (counts) this.#awaited += 1;
    let routed = false;
    const heed = (verdict: Verdict): void => {
      if (verdict.kind === "refuse") this.#refused += 1;
      if (verdict.kind !== "route" || routed) return;
      routed = true;
      const member = this.#byUrl.get(verdict.worker.identity.url);
      if (member === undefined) throw new Error("routed to an unknown worker");
      // In a later turn, as by a wire: the desk is in the middle of a step.
      this.#clock.after(0, () => {
        const prompt = chatPrompt(undefined, messages);
        this.#work(request, member, { prompt, tokens, counts, arrivedAt, ended });
      });
    };
    const { request, verdict } = desk.open(requestHead(), heed, arrivedAt);
    heed(verdict);
    if (verdict.kind === "continue") heed(desk.body(request, body, arrivedAt));
  }

  #work(
    request: RequestLife,
    member: Member,
    job: {
      readonly prompt: string;
      readonly tokens: number;
      readonly counts: boolean;
      readonly arrivedAt: number;
      readonly ended: () => void;
    },
  ): void {
    let usage: object = {};
    member.engine.submit(
      {
        requestName: undefined,
        prompts: [job.prompt],
        choicesPerPrompt: 1,
        outputTokens: job.tokens,
        finish: "stop",
        extraDelayMs: 0,
        hang: false,
        tellTokens: true,
      },
      {
        admitted: ({ promptTokens, cachedTokens }) => {
          const [prompt = 0] = promptTokens;
          const [cached = 0] = cachedTokens;
          usage = {
            prompt_tokens: prompt,
            completion_tokens: job.tokens,
            prompt_tokens_details: { cached_tokens: cached },
          };
          if (!job.counts) return;
          this.#promptTokens += prompt;
          this.#cachedTokens += cached;
        },
        token: (index) => {
          if (index > 0) return;
          const now = this.#now();
          if (job.counts) {
            this.#awaited -= 1;
            this.#firstTokenMs.push(now - job.arrivedAt);
          }
          this.bench.desk.responseHeaders(request, responseHead(), now);
          request.firstByte(now);
        },
        ended: () => {
          request.responseBody(bytes({ usage }));
          this.bench.desk.end(request, true, this.#now());
          job.ended();
        },
      },
    );
  }

  /** The moment, told to the desk's owner as well. */
  #now(): Bench["now"] {
    this.bench.now = monotonicMs(this.#clock.now());
    return this.bench.now;
  }

  #every(periodMs: number, run: () => void): void {
    this.#clock.after(periodMs, () => {
      run();
      this.#every(periodMs, run);
    });
  }

  /** The engines are asked for their load, where Weir wants to know it. */
  #poll(): void {
    const { telemetry } = this.bench.core;
    const observedAt = this.#now();
    this.bench.core.selector.sweep(observedAt);
    if (telemetry === undefined) return;
    this.#polls += 1;
    const deliveries = this.#members.flatMap(({ url, engine, cache }) => {
      const worker = this.bench.registry.get(url);
      if (worker === undefined) return [];
      const rank = {
        rank: 0,
        running: engine.running,
        waiting: engine.waiting,
        waitingUncachedTokens: undefined,
        usedTokens: undefined,
        maxTokens: undefined,
        tokenUsage: cache.usedBlocks / cache.capacityBlocks,
        utilization: this.#run.tellsUtilization ? engine.running / engine.slots : undefined,
        cacheHitRate: undefined,
        tokensPerSecond: undefined,
        maxRunning: undefined,
      };
      const sample = {
        source: "vllm_metrics" as const,
        token: { kind: "scrape" as const, sequence: this.#polls },
        ranks: [rank],
        invalidFields: [],
        countedTokensPerSecond: undefined,
      };
      const { identity, runtime } = worker;
      return [{ identity, sample, observedAt, liveLoad: runtime.liveLoad }];
    });
    telemetry.publish(this.#byUrl.keys(), deliveries, observedAt);
  }

  #look(): void {
    if (!this.#isMeasured) return;
    const loads = this.#members.map(({ engine }) => engine.running + engine.waiting);
    const sum = loads.reduce((total, load) => total + load, 0);
    if (sum === 0) return;
    this.#looks += 1;
    this.#unevenness += (Math.max(...loads) * loads.length) / sum;
  }
}

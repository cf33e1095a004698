// A fleet with a selector over it, small enough that every expected choice can be worked out by hand:
// blocks of four characters or four tokens, workers w0, w1, ... in the order of registration.

import { testHasher } from "../../support/prefix-hasher.js";
import { expect } from "chai";
import type { PromptContent } from "../../../extproc/core/identity/prompt.js";
import { invariant } from "../../../extproc/core/model/invariant.js";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { createRng, type Rng } from "../../../extproc/core/model/rng.js";
import type {
  OwnershipSource,
  SelectionConfig,
  SelectionPolicy,
} from "../../../extproc/core/model/selection-config.js";
import { after, monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import type { BlockKeys } from "../../../extproc/core/prefixes/block-keys.js";
import type { Selection, SelectionQuery } from "../../../extproc/core/selection/decision.js";
import { WorkerSelector } from "../../../extproc/core/selection/selector.js";
import { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import { TelemetryStore } from "../../../extproc/core/workers/telemetry-store.js";
import type { RankSample, WorkerSample } from "../../../extproc/core/workers/telemetry.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { DEFAULTS } from "../../../extproc/edge/config/defaults.js";
import { BREAKER, HEALTH, workerConfig, type WorkerSketch } from "../../support/workers.js";

export const DEMO = modelId("demo");
export const POOL = partitionName("pool");
const START = monotonicMs(1_000_000);

/** The documented defaults, with blocks small enough to write prompts by hand. */
const SELECTION: SelectionConfig = {
  ...DEFAULTS.selection,
  max_tree_size: 1_048_576,
  block_chars: 4,
  block_size: 4,
  max_prefix_blocks: 16,
};

export const url = (index: number): string => `http://127.0.0.1:${String(8100 + index)}`;

/** A text prompt; a block of it is four characters. */
export function text(value: string): PromptContent {
  return {
    kind: "text",
    text: value,
    inputTokens: Math.max(1, Math.ceil(value.length / 4)),
    prompts: 1,
  };
}

/** A prompt of the tokens `from`..`to`. */
export function tokens(from: number, to: number): PromptContent {
  const ids = Uint32Array.from({ length: to - from + 1 }, (_, index) => from + index);
  return { kind: "tokens", tokens: ids, inputTokens: ids.length, prompts: 1 };
}

export function rank(tokenUsage: number, over: Partial<RankSample> = {}): Omit<RankSample, "rank"> {
  return {
    running: 1,
    waiting: 0,
    waitingUncachedTokens: undefined,
    usedTokens: undefined,
    maxTokens: undefined,
    tokenUsage,
    utilization: undefined,
    cacheHitRate: undefined,
    tokensPerSecond: undefined,
    maxRunning: undefined,
    ...over,
  };
}

/** An answer that says nothing about its prompt. */
export const NO_REPORT = { promptTokens: undefined, cachedTokens: undefined };
/** What engines report of a prompt that is long enough to tell something. */
const PROMPT_TOKENS = 2_000;

/** What a test says of a request; its prompt as the client sent it. */
export type Ask = Partial<Omit<SelectionQuery, "prompt">> & {
  readonly prompt?: PromptContent | undefined;
};

export interface BenchOptions {
  /** How many, or which ones. */
  readonly workers?: number | readonly WorkerSketch[];
  readonly selection?: Partial<SelectionConfig>;
  readonly policy?: SelectionPolicy;
  readonly ownership?: OwnershipSource;
  readonly rng?: Rng;
}

export class Bench {
  now: MonotonicMs = START;
  readonly selection: SelectionConfig;
  readonly hasher = testHasher();
  readonly registry: WorkerRegistry;
  readonly telemetry: TelemetryStore;
  readonly selector: WorkerSelector;
  #scrape = 0;

  constructor(options: BenchOptions = {}) {
    this.selection = { ...SELECTION, ...options.selection };
    const changed = (): void => {
      this.telemetry.prune();
      this.selector.workersChanged();
    };
    let ready = false;
    this.registry = new WorkerRegistry({
      health: { ...HEALTH, failure_threshold: 1 },
      breaker: BREAKER,
      onChange: () => {
        if (ready) changed();
      },
    });
    this.telemetry = new TelemetryStore({ workers: this.registry, onPublished: () => undefined });
    this.selector = new WorkerSelector({
      registry: this.registry,
      partitionOf: (worker) => worker.labels.admission_partition ?? POOL,
      rng: options.rng ?? createRng(7),
      models: new Map([
        [
          DEMO,
          {
            policy: options.policy ?? "cache_aware",
            ownership: options.ownership ?? "committed",
          },
        ],
      ]),
      selection: this.selection,
      telemetry: this.telemetry,
      hasher: this.hasher,
    });
    ready = true;
    const { workers = 2 } = options;
    const sketches =
      typeof workers === "number"
        ? Array.from({ length: workers }, (_, index) => ({ url: url(index) }))
        : workers;
    for (const sketch of sketches) this.add(sketch);
  }

  add(sketch: WorkerSketch): Worker {
    const worker = this.registry.put(workerConfig(sketch));
    this.registry.recordHealth(sketch.url, true);
    return worker;
  }

  worker(index: number): Worker {
    const worker = this.registry.get(url(index));
    invariant(worker !== undefined, `there is no worker ${String(index)}`);
    return worker;
  }

  passSeconds(seconds: number): void {
    this.now = after(this.now, seconds * 1000);
  }

  select({ prompt, ...over }: Ask = {}): Selection {
    return this.selector.select(
      {
        model: DEMO,
        partition: POOL,
        targetWorkerUrl: undefined,
        excludedWorkerUrls: [],
        routingKey: undefined,
        prompt: prompt === undefined ? undefined : this.selector.hash(DEMO, prompt),
        outputLimitTokens: undefined,
        ...over,
      },
      this.now,
    );
  }

  /** A choice that must succeed, with the number of its worker. */
  chosen(over: Ask = {}): Selection & { readonly ok: true; at: number } {
    const selection = this.select(over);
    expect(selection, JSON.stringify(selection)).to.have.property("ok", true);
    const done = selection as Selection & { readonly ok: true };
    return { ...done, at: this.numberOf(done.worker) };
  }

  /** Which worker a request goes to and why, leaving nothing booked: "w1 owner_match". */
  where(over: Ask = {}): string {
    const selection = this.select(over);
    if (!selection.ok) {
      return `${selection.rejection.code} ${selection.decision?.result ?? "undecided"}`;
    }
    selection.booking();
    return `w${String(this.numberOf(selection.worker))} ${selection.decision.result}`;
  }

  numberOf(worker: Worker): number {
    const index = [...this.registry.all()].findIndex(
      ({ identity }) => identity.url === worker.identity.url,
    );
    expect(index).to.be.at.least(0);
    return index;
  }

  /** The way a worker really becomes an owner: a request routed there ends well. */
  own(prompt: PromptContent, ...workers: number[]): void {
    for (const index of workers) {
      const selection = this.chosen({ prompt, targetWorkerUrl: url(index) });
      this.succeed(selection);
    }
  }

  succeed(selection: Selection & { readonly ok: true }, cachedTokens?: number): number {
    selection.booking();
    if (selection.trace === undefined) return 0;
    const report = { promptTokens: PROMPT_TOKENS, cachedTokens };
    return this.selector.ended(selection.trace, true, report, this.now);
  }

  /** Numbers of the workers that the committed index names for a whole prompt. */
  owners(prompt: PromptContent): number[] {
    const keys = this.keysOf(prompt);
    const match = this.selector.committed.match(keys, this.now);
    if (match.blocks < keys.count) return [];
    const generations = new Set(match.owners.map(({ generation }) => generation));
    return [...this.registry.all()].flatMap((worker, index) =>
      generations.has(worker.identity.generation) ? [index] : [],
    );
  }

  keysOf(prompt: PromptContent): BlockKeys {
    const { block_chars, block_size, max_prefix_blocks } = this.selection;
    return prompt.kind === "text"
      ? this.hasher.text(DEMO, prompt.text, block_chars, max_prefix_blocks)
      : this.hasher.tokens(DEMO, prompt.tokens, block_size, max_prefix_blocks);
  }

  /** Publishes one rank for each worker; undefined = its poll failed. */
  report(...usages: readonly (number | undefined)[]): void {
    this.reportRanks(usages.map((usage) => (usage === undefined ? undefined : [rank(usage)])));
  }

  reportRanks(workers: readonly (readonly Omit<RankSample, "rank">[] | undefined)[]): void {
    this.#scrape += 1;
    const all = [...this.registry.all()];
    const deliveries = all.flatMap((worker, index) => {
      const ranks = workers[index];
      if (ranks === undefined) return [];
      const sample: WorkerSample = {
        source: "vllm_metrics",
        token: { kind: "scrape", sequence: this.#scrape },
        ranks: ranks.map((one, id) => ({ ...one, rank: id })),
        invalidFields: [],
        countedTokensPerSecond: undefined,
      };
      const liveLoad = worker.runtime.liveLoad;
      return [{ identity: worker.identity, sample, observedAt: this.now, liveLoad }];
    });
    const urls = all.map(({ identity }) => identity.url);
    this.telemetry.publish(urls, deliveries, this.now);
  }

  /** What an engine publishes when it has stored these blocks of four tokens. */
  stored(index: number, prompt: PromptContent, blockSize = this.selection.block_size): void {
    expect(prompt.kind).to.equal("tokens");
    if (prompt.kind !== "tokens") return;
    const blocks = [];
    for (let from = 0; from + blockSize <= prompt.tokens.length; from += blockSize) {
      const ids = prompt.tokens.subarray(from, from + blockSize);
      blocks.push({ hash: `${ids.join(",")}@${String(from)}`, tokens: ids });
    }
    const { generation } = this.worker(index).identity;
    const view = { generation, rank: 0, model: DEMO };
    this.selector.events.stored(view, { blocks, parent: undefined, blockSize });
  }

  load(index: number, requests: number): void {
    for (let held = 0; held < requests; held += 1) this.worker(index).runtime.holdLoad();
  }
}

/** An Rng that gives out these draws, each taken modulo its bound; then zeros. */
export function scripted(...draws: number[]): Rng {
  const next = (): number => draws.shift() ?? 0;
  return { uint32: next, below: (bound) => next() % bound };
}

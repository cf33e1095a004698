// Which prompt blocks does this worker remember, and is there room for one more request? A model of
// an engine's paged KV cache: a prompt is cut into blocks of `blockChars` characters, each block is
// known by the hash of itself and everything before it, so that only equal beginnings match. A
// request holds all blocks of its prompt and its output from admission to its end; prompt blocks
// stay remembered afterwards until room is needed, the longest unused first and, within one request,
// the last block first. As in real engines the last prompt token is always computed, so a prompt is
// never cached whole, and output is reserved up front, so nothing is ever preempted. A request that
// needs more than the whole cache gets the whole cache. Only prompts are remembered, not outputs. An
// observer is told of every block that is remembered or forgotten, in order.
import { createHash } from "node:crypto";

/** Characters in one token of this worker's imaginary tokenizer. */
export const CHARS_PER_TOKEN = 4;

export function tokensOf(text: string): number {
  return Math.max(1, Math.ceil(text.length / CHARS_PER_TOKEN));
}

export interface PromptBlock {
  /** Stands for the block and everything before it: the base64 of a hash. */
  readonly key: string;
  /** Key of the block before it; undefined = it begins a prompt. */
  readonly parent: string | undefined;
  readonly text: string;
}

/** Hears what the cache remembers and forgets. */
export interface CacheObserver {
  /** Blocks that came to be remembered, each prompt's in their order. */
  stored(blocks: readonly PromptBlock[]): void;
  removed(keys: readonly string[]): void;
  /** Nothing is remembered any more. */
  cleared(): void;
}

interface PromptBlocks {
  /** The full blocks, in order. */
  readonly blocks: readonly PromptBlock[];
  /** How many of them may come from the cache. */
  readonly reusable: number;
  /** Blocks of the prompt, a begun one counted whole. */
  readonly total: number;
}

/** What one request will ask of the cache; made once, when the request arrives. */
export interface KvPlan {
  readonly prompts: readonly PromptBlocks[];
  readonly outputBlocks: number;
}

/** What one admitted request holds. */
export interface KvHold {
  /** Cached blocks per prompt. */
  readonly hitBlocks: readonly number[];
  /** Prompt blocks that have to be computed. */
  readonly uncachedBlocks: number;
  /** Keys that this request pins, first block first. */
  readonly pinned: string[];
  readonly missing: readonly PromptBlock[];
  privateBlocks: number;
}

export class KvCache {
  readonly capacityBlocks: number;
  readonly blockChars: number;
  hitBlocks = 0;
  queriedBlocks = 0;
  evictions = 0;
  /** Remembered blocks in use, with the number of requests that use them. */
  readonly #pinned = new Map<string, number>();
  /** Remembered blocks nobody uses, longest unused first. */
  readonly #idle = new Set<string>();
  readonly #observer: CacheObserver | undefined;
  #privateBlocks = 0;

  constructor(options: {
    readonly capacityBlocks: number;
    readonly blockChars: number;
    readonly observer?: CacheObserver | undefined;
  }) {
    this.capacityBlocks = options.capacityBlocks;
    this.blockChars = options.blockChars;
    this.#observer = options.observer;
  }

  /** Blocks held by running requests. */
  get usedBlocks(): number {
    return this.#pinned.size + this.#privateBlocks;
  }

  /** Remembered prompt blocks, in use or not. */
  get cachedBlocks(): number {
    return this.#pinned.size + this.#idle.size;
  }

  plan(prompts: readonly string[], outputTokens: number): KvPlan {
    let room = this.capacityBlocks;
    const blocks = prompts.map((prompt) => {
      const full = Math.min(room, Math.floor(prompt.length / this.blockChars));
      room -= full;
      const reusable = Math.min(full, Math.floor(Math.max(0, prompt.length - 1) / this.blockChars));
      const total = Math.ceil(prompt.length / this.blockChars);
      return { blocks: this.#blocks(prompt, full), reusable, total };
    });
    const outputBlocks = Math.ceil((outputTokens * CHARS_PER_TOKEN) / this.blockChars);
    return { prompts: blocks, outputBlocks };
  }

  /** Prompt blocks of `plan` that would have to be computed if it ran now. */
  uncachedBlocks(plan: KvPlan): number {
    let missing = 0;
    for (const prompt of plan.prompts) missing += prompt.total - this.#hits(prompt);
    return missing;
  }

  /** Takes room for a request, or nothing when others hold too much of it. */
  tryHold(plan: KvPlan): KvHold | undefined {
    const hitBlocks = plan.prompts.map((prompt) => this.#hits(prompt));
    const hits = plan.prompts.flatMap((prompt, i) =>
      prompt.blocks.slice(0, hitBlocks[i]).map(({ key }) => key),
    );
    const missing = plan.prompts.flatMap((prompt, i) => prompt.blocks.slice(hitBlocks[i]));
    const promptBlocks = plan.prompts.reduce((sum, prompt) => sum + prompt.total, 0);
    const wanted = Math.min(this.capacityBlocks, promptBlocks + plan.outputBlocks);
    const privateBlocks = Math.max(0, wanted - hits.length);
    for (const key of hits) this.#pin(key);
    if (this.usedBlocks + privateBlocks > this.capacityBlocks) {
      for (const key of hits.reverse()) this.#unpin(key);
      return undefined;
    }
    this.#evictFor(privateBlocks);
    this.#privateBlocks += privateBlocks;
    for (const count of hitBlocks) this.hitBlocks += count;
    for (const prompt of plan.prompts) this.queriedBlocks += prompt.blocks.length;
    const uncachedBlocks = promptBlocks - hits.length;
    return { hitBlocks, uncachedBlocks, pinned: hits, missing, privateBlocks };
  }

  /** The prompt has been computed: its blocks may serve others from now on. */
  publish(hold: KvHold): void {
    const stored: PromptBlock[] = [];
    for (const block of hold.missing) {
      if (hold.privateBlocks === 0) break;
      hold.privateBlocks -= 1;
      this.#privateBlocks -= 1;
      if (!this.#knows(block.key)) stored.push(block);
      this.#pin(block.key);
      hold.pinned.push(block.key);
    }
    if (stored.length > 0) this.#observer?.stored(stored);
  }

  release(hold: KvHold): void {
    this.#privateBlocks -= hold.privateBlocks;
    hold.privateBlocks = 0;
    for (const key of hold.pinned.reverse()) this.#unpin(key);
    hold.pinned.length = 0;
  }

  /** Forgets every block that no running request uses. */
  flush(): void {
    const gone = [...this.#idle];
    this.#idle.clear();
    if (this.#pinned.size === 0) this.#observer?.cleared();
    else if (gone.length > 0) this.#observer?.removed(gone);
  }

  zeroCounters(): void {
    this.hitBlocks = 0;
    this.queriedBlocks = 0;
    this.evictions = 0;
  }

  #blocks(prompt: string, count: number): PromptBlock[] {
    const blocks: PromptBlock[] = [];
    let parent: string | undefined;
    for (let i = 0; i < count; i += 1) {
      const text = prompt.slice(i * this.blockChars, (i + 1) * this.blockChars);
      const hash = createHash("sha1").update(parent ?? "");
      const key = hash.update(text, "utf16le").digest("base64");
      blocks.push({ key, parent, text });
      parent = key;
    }
    return blocks;
  }

  #hits({ blocks, reusable }: PromptBlocks): number {
    let hits = 0;
    while (hits < reusable && this.#knows(blocks[hits]?.key ?? "")) hits += 1;
    return hits;
  }

  #knows(key: string): boolean {
    return this.#pinned.has(key) || this.#idle.has(key);
  }

  #pin(key: string): void {
    this.#idle.delete(key);
    this.#pinned.set(key, (this.#pinned.get(key) ?? 0) + 1);
  }

  #unpin(key: string): void {
    const users = (this.#pinned.get(key) ?? 1) - 1;
    if (users > 0) {
      this.#pinned.set(key, users);
      return;
    }
    this.#pinned.delete(key);
    this.#idle.add(key);
  }

  #evictFor(blocks: number): void {
    const gone: string[] = [];
    for (const key of this.#idle) {
      if (this.cachedBlocks + this.#privateBlocks + blocks <= this.capacityBlocks) break;
      this.#idle.delete(key);
      gone.push(key);
    }
    this.evictions += gone.length;
    if (gone.length > 0) this.#observer?.removed(gone);
  }
}

// What do the engines say that they hold? Each feed (one rank of one worker) publishes which blocks of
// tokens its cache stores and removes, under names of the engine's own. A record is one block of one
// feed: found by its chain key to match prompts, and by the engine's name to be removed. A worker owns
// a block when any of its ranks does. Exactness is the point, so whatever can't be placed exactly is
// left out: it costs a match, never a false owner. That is why a block whose parent is unknown is
// dropped. Taken as a new chain from the first block, it would match prompts that begin with a text
// which this engine only holds behind another one, and cannot serve.

import type { ModelId } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import { KEY_WORDS, type BlockKeys, type PrefixHasher } from "./block-keys.js";
import { HoldingTable, OWN_WORDS_AFTER_SECOND_KEY, type Holder } from "./holding-table.js";
import { OwnerWalk, type OwnerMatch } from "./owner-match.js";

/** The word of a record that counts the blocks before it in its chain. */
const POSITION = OWN_WORDS_AFTER_SECOND_KEY;
const WORDS_PER_BLOCK = POSITION + 1;

/** A block as the engine names it, and the tokens in it. */
export interface KvBlock {
  /** Hex of bytes, or the decimal of an unsigned 64-bit integer. */
  readonly hash: string;
  /** Unsigned 32-bit integers. */
  readonly tokens: ArrayLike<number>;
}

/** What one feed speaks of: the cache of one rank of one worker, for one model. */
export interface KvView {
  readonly generation: number;
  readonly rank: number;
  readonly model: ModelId;
}

/** Blocks that follow each other, the first of them behind `parent`; undefined = they begin a prompt. */
export interface KvStored {
  readonly blocks: readonly KvBlock[];
  readonly parent: string | undefined;
  /** Tokens of a block. */
  readonly blockSize: number;
}

interface Worker {
  readonly generation: number;
  readonly number: number;
  readonly views: Map<string, Holder<View>>;
  blocks: number;
}

interface Model {
  /** Tokens of a block, once an engine has told. */
  blockSize: number | undefined;
  readonly views: Set<Holder<View>>;
}

interface View {
  readonly key: string;
  readonly worker: Worker;
  readonly model: Model;
}

export class EventIndex {
  readonly #table = new HoldingTable<View>(WORDS_PER_BLOCK, "two keys");
  readonly #workers = new Map<number, Worker>();
  readonly #models = new Map<ModelId, Model>();
  readonly #freeNumbers: number[] = [];
  readonly #walk = new OwnerWalk();
  readonly #hasher: PrefixHasher;
  readonly #blocksMax: number;
  readonly #defaultBlockSize: number;
  readonly #maxBlocks: number;
  /** The chain of the event at hand: its parent's key or the root, then one key per block. */
  readonly #chain: Uint32Array;
  /** The keys of the engine's names of the same blocks, at the same places. */
  readonly #names: Uint32Array;
  #unknownParents = 0;
  #misfits = 0;

  /** Blocks behind the first `maxBlocks` of a prompt are not looked at, so they are not kept. */
  constructor(options: {
    readonly hasher: PrefixHasher;
    readonly maxBytesPerWorker: number;
    readonly defaultBlockSize: number;
    readonly maxBlocks: number;
  }) {
    this.#hasher = options.hasher;
    this.#blocksMax = this.#table.recordsWithin(options.maxBytesPerWorker);
    this.#defaultBlockSize = options.defaultBlockSize;
    this.#maxBlocks = options.maxBlocks;
    this.#chain = new Uint32Array((options.maxBlocks + 1) * KEY_WORDS);
    this.#names = new Uint32Array((options.maxBlocks + 1) * KEY_WORDS);
  }

  /** Bytes that are allocated: never more than the limits of the workers together, from one chunk on. */
  get bytes(): number {
    return this.#table.bytes;
  }

  /** Blocks dropped so far because nothing is known of the block before them. */
  get unknownParentBlocks(): number {
    return this.#unknownParents;
  }

  /** Blocks dropped so far because one of them, or one before, is not of the event's block size. */
  get misfitBlocks(): number {
    return this.#misfits;
  }

  /** Blocks that are kept for a worker, those of its ranks added. */
  blocksOf(generation: number): number {
    return this.#workers.get(generation)?.blocks ?? 0;
  }

  /** Tokens of a block: what the model's engines told, else the configured size. */
  blockSizeOf(model: ModelId): number {
    return this.#models.get(model)?.blockSize ?? this.#defaultBlockSize;
  }

  /** Whether any block of the model is held anywhere. */
  hasData(model: ModelId): boolean {
    for (const view of this.#models.get(model)?.views ?? []) if (view.count > 0) return true;
    return false;
  }

  /**
   * The engine has stored blocks. A model's blocks have one size: another one than before, from
   * whatever worker, clears all that is held of the model. A name that was stored before counts once.
   */
  stored(view: KvView, { blocks, parent, blockSize }: KvStored): void {
    const fitting = leadingFits(blocks, blockSize);
    this.#misfits += blocks.length - fitting;
    if (fitting === 0) return;
    const model = this.#modelFor(view.model, blockSize);
    const holder = this.#holderFor(view, model);
    const first = this.#startChain(holder, view.model, blockSize, parent);
    if (first === undefined) {
      this.#unknownParents += fitting;
      return;
    }
    const count = Math.max(0, Math.min(fitting, this.#maxBlocks - first, this.#blocksMax));
    for (let index = 0; index < count; index += 1) {
      const block = blocks[index];
      if (block === undefined) continue;
      this.#hasher.extend(this.#chain, index * KEY_WORDS, block.tokens);
      this.#hasher.engineHash(block.hash, this.#names, (index + 1) * KEY_WORDS);
    }
    // From the last to the first, so that the end of a prefix is evicted before its beginning.
    for (let index = count; index >= 1; index -= 1) this.#put(holder, index, first + index - 1);
  }

  /** The engine has removed blocks. Those it never told of are none. */
  removed(view: KvView, hashes: readonly string[]): void {
    const holder = this.#workers.get(view.generation)?.views.get(viewKey(view));
    if (holder === undefined) return;
    for (const hash of hashes) {
      this.#hasher.engineHash(hash, this.#names, 0);
      const record = this.#table.findBySecondKey(holder, this.#names, 0);
      if (record !== 0) this.#drop(holder, record);
    }
  }

  /** The view's cache is empty, or nothing is known of it any more. */
  cleared(view: KvView): void {
    const holder = this.#workers.get(view.generation)?.views.get(viewKey(view));
    if (holder !== undefined) this.#close(holder);
  }

  /** The worker has left. */
  forget(generation: number): void {
    const worker = this.#workers.get(generation);
    if (worker === undefined) return;
    for (const holder of worker.views.values()) this.#close(holder);
    this.#workers.delete(generation);
    this.#freeNumbers.push(worker.number);
  }

  /**
   * The longest prefix of a prompt that engines hold and every worker that holds it, by generation;
   * `keys` are the prompt's, cut at the model's block size.
   */
  match(model: ModelId, tokens: ArrayLike<number>): OwnerMatch & { readonly keys: BlockKeys } {
    const keys = this.#hasher.tokens(model, tokens, this.blockSizeOf(model), this.#maxBlocks);
    const table = this.#table;
    const walk = this.#walk;
    walk.begin(this.#workers.size + this.#freeNumbers.length);
    for (let at = 0; at < keys.words.length; at += KEY_WORDS) {
      let record = table.first(keys.words, at);
      while (record !== 0) {
        const holder = table.holderOf(record);
        if (holder !== undefined) walk.holds(holder.owner.worker.number, record);
        record = table.next(record, keys.words, at);
      }
      if (!walk.advance()) break;
    }
    const match = walk.found((record) => {
      const generation = table.holderOf(record)?.owner.worker.generation;
      return generation === undefined ? undefined : { generation, lastSuccessAt: undefined };
    });
    return { ...match, keys };
  }

  /** Sets the start of the chain; how many blocks stand before it, undefined when that is unknown. */
  #startChain(
    holder: Holder<View>,
    model: ModelId,
    blockSize: number,
    parent: string | undefined,
  ): number | undefined {
    if (parent === undefined) {
      this.#hasher.tokenRoot(model, blockSize, this.#chain, 0);
      return 0;
    }
    this.#hasher.engineHash(parent, this.#names, 0);
    const record = this.#table.findBySecondKey(holder, this.#names, 0);
    if (record === 0) return undefined;
    this.#table.copyKey(record, this.#chain);
    return this.#table.records.word(record, POSITION) + 1;
  }

  /** Keeps the block at place `index` of the event's chain, the newest of its view from now on. */
  #put(holder: Holder<View>, index: number, position: number): void {
    const at = index * KEY_WORDS;
    const known = this.#table.findBySecondKey(holder, this.#names, at);
    if (known !== 0 && this.#table.hasKey(known, this.#chain, at)) {
      this.#table.touch(known);
      return;
    }
    if (known !== 0) this.#drop(holder, known);
    const { worker } = holder.owner;
    if (worker.blocks >= this.#blocksMax) {
      const fullest = fullestOf(worker);
      this.#drop(fullest, fullest.oldest);
    }
    const record = this.#table.insert(holder, this.#chain, at, this.#names);
    this.#table.records.setWord(record, POSITION, position);
    worker.blocks += 1;
  }

  #drop(holder: Holder<View>, record: number): void {
    this.#table.remove(record);
    holder.owner.worker.blocks -= 1;
  }

  #close(holder: Holder<View>): void {
    const { key, worker, model } = holder.owner;
    worker.blocks -= holder.count;
    worker.views.delete(key);
    model.views.delete(holder);
    this.#table.close(holder);
  }

  #modelFor(id: ModelId, blockSize: number): Model {
    let model = this.#models.get(id);
    if (model === undefined) {
      model = { blockSize: undefined, views: new Set() };
      this.#models.set(id, model);
    }
    if (model.blockSize !== blockSize) for (const holder of model.views) this.#close(holder);
    model.blockSize = blockSize;
    return model;
  }

  #holderFor(view: KvView, model: Model): Holder<View> {
    let worker = this.#workers.get(view.generation);
    if (worker === undefined) {
      const number = this.#freeNumbers.pop() ?? this.#workers.size;
      worker = { generation: view.generation, number, views: new Map(), blocks: 0 };
      this.#workers.set(view.generation, worker);
    }
    const key = viewKey(view);
    const known = worker.views.get(key);
    if (known !== undefined) return known;
    const holder = this.#table.open({ key, worker, model });
    worker.views.set(key, holder);
    model.views.add(holder);
    return holder;
  }
}

function viewKey({ rank, model }: KvView): string {
  return `${String(rank)} ${model}`;
}

/** Blocks up to the first that has not `blockSize` tokens: what follows it has no known place. */
function leadingFits(blocks: readonly KvBlock[], blockSize: number): number {
  if (!Number.isInteger(blockSize) || blockSize < 1) return 0;
  const misfit = blocks.findIndex(({ tokens }) => tokens.length !== blockSize);
  return misfit === -1 ? blocks.length : misfit;
}

/** The view with the most blocks of a worker that has some: ranks share the worker's limit. */
function fullestOf(worker: Worker): Holder<View> {
  let fullest: Holder<View> | undefined;
  for (const holder of worker.views.values()) {
    if (fullest === undefined || holder.count > fullest.count) fullest = holder;
  }
  invariant(fullest !== undefined, "a worker with blocks has a view");
  return fullest;
}

// What do the engines say that they hold? Each feed (one rank of one worker) publishes which blocks of
// tokens its cache stores and removes, under names of the engine's own. A record is one block of one
// feed: found by its chain key to match prompts, and by the engine's name to be removed. A worker owns
// a block when any of its ranks does. Exactness is the point, so whatever can't be placed exactly is
// left out: it costs a match, never a false owner. That is why a block whose parent is unknown is
// dropped. Taken as a new chain from the first block, it would match prompts that begin with a text
// which this engine only holds behind another one, and cannot serve.

import type { ModelId } from "../model/ids.js";
import { KEY_WORDS, type BlockKeys, type PrefixHasher } from "./block-keys.js";
import { EventViews, fullestOf, type KvView, type View } from "./event-views.js";
import { HoldingTable, OWN_WORDS_AFTER_SECOND_KEY, type Holder } from "./holding-table.js";
import { OwnerWalk, type OwnerMatch } from "./owner-match.js";

export type { KvView } from "./event-views.js";

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

/** Blocks that follow each other, the first of them behind `parent`; undefined = they begin a prompt. */
export interface KvStored {
  readonly blocks: readonly KvBlock[];
  readonly parent: string | undefined;
  /** Tokens of a block. */
  readonly blockSize: number;
}

/** What the engines hold of a prompt, in blocks of `blockSize` tokens; `keys` are all the prompt's. */
export interface EventMatch extends OwnerMatch {
  readonly keys: BlockKeys;
  readonly blockSize: number;
}

export class EventIndex {
  readonly #table = new HoldingTable<View>(WORDS_PER_BLOCK, "two keys");
  readonly #views = new EventViews(this.#table);
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
  #refused = 0;
  #renamed = 0;

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

  /** Blocks dropped so far because MODEL_MAX_BLOCK_SIZES other sizes of the model are in use. */
  get refusedSizeBlocks(): number {
    return this.#refused;
  }

  /** Blocks told so far under a second name, while their view holds them under the first. */
  get renamedBlocks(): number {
    return this.#renamed;
  }

  /** Blocks that are kept for a worker, those of its ranks added. */
  blocksOf(generation: number): number {
    return this.#views.blocksOf(generation);
  }

  /** Tokens of a block: the largest of the sizes in which blocks are held, else the configured one. */
  blockSizeOf(model: ModelId): number {
    return this.#views.sizesInUse(model)[0]?.tokens ?? this.#defaultBlockSize;
  }

  /** Whether any block of the model is held anywhere. */
  hasData(model: ModelId): boolean {
    return this.#views.sizesInUse(model).length > 0;
  }

  /**
   * The engine has stored blocks. The blocks of a view have one size: another one than before clears the
   * view, and no other. A name that was stored before counts once. A block that the view holds already
   * keeps its first name and is gone with it: a second name may outlive the first, which costs a match.
   */
  stored(view: KvView, { blocks, parent, blockSize }: KvStored): void {
    const fitting = leadingFits(blocks, blockSize);
    this.#misfits += blocks.length - fitting;
    if (fitting === 0) return;
    const known = this.#views.get(view);
    if (known !== undefined && known.owner.size.tokens !== blockSize) this.#views.close(known);
    const first = this.#startChain(view, blockSize, parent);
    if (first === undefined) {
      this.#unknownParents += fitting;
      return;
    }
    const holder = this.#views.open(view, blockSize);
    if (holder === undefined) {
      this.#refused += fitting;
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
    const holder = this.#views.get(view);
    if (holder === undefined) return;
    for (const hash of hashes) {
      this.#hasher.engineHash(hash, this.#names, 0);
      const record = this.#table.findBySecondKey(holder, this.#names, 0);
      if (record !== 0) this.#drop(holder, record);
    }
  }

  /** The view's cache is empty, or nothing is known of it any more. */
  cleared(view: KvView): void {
    const holder = this.#views.get(view);
    if (holder !== undefined) this.#views.close(holder);
  }

  /** The worker has left. */
  forget(generation: number): void {
    this.#views.forget(generation);
  }

  /**
   * The longest prefix of a prompt, in tokens, that engines hold, and every worker that holds it. Of
   * equally long ones under several block sizes that of more owners, then of larger blocks. A given
   * `blockSize` is the only one asked for. O(blocks x their holders) for each size in use.
   */
  match(model: ModelId, tokens: ArrayLike<number>, blockSize?: number): EventMatch {
    if (blockSize !== undefined) return this.#matchAt(model, tokens, blockSize);
    let best: EventMatch | undefined;
    for (const size of this.#views.sizesInUse(model)) {
      const match = this.#matchAt(model, tokens, size.tokens);
      if (best === undefined || isBetter(match, best)) best = match;
    }
    return best ?? this.#matchAt(model, tokens, this.#defaultBlockSize);
  }

  #matchAt(model: ModelId, tokens: ArrayLike<number>, blockSize: number): EventMatch {
    const keys = this.#hasher.tokens(model, tokens, blockSize, this.#maxBlocks);
    const table = this.#table;
    const walk = this.#walk;
    walk.begin(table.slots);
    for (let at = 0; at < keys.words.length; at += KEY_WORDS) {
      let record = table.first(keys.words, at);
      while (record !== 0) {
        const holder = table.holderOf(record);
        if (holder !== undefined) walk.holds(holder.slot, record);
        record = table.next(record, keys.words, at);
      }
      if (!walk.advance()) break;
    }
    const match = walk.found((record) => {
      const generation = table.holderOf(record)?.owner.worker.generation;
      return generation === undefined ? undefined : { generation, lastSuccessAt: undefined };
    });
    return { blocks: match.blocks, owners: match.owners, keys, blockSize };
  }

  /** Sets the start of the chain; how many blocks stand before it, undefined when that is unknown. */
  #startChain(view: KvView, blockSize: number, parent: string | undefined): number | undefined {
    if (parent === undefined) {
      this.#hasher.tokenRoot(view.model, blockSize, this.#chain, 0);
      return 0;
    }
    const holder = this.#views.get(view);
    if (holder === undefined) return undefined;
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
    const named = this.#table.find(holder, this.#chain, at);
    if (named !== 0) {
      this.#renamed += 1;
      this.#table.touch(named);
      return;
    }
    const { worker } = holder.owner;
    if (worker.blocks >= this.#blocksMax) {
      const fullest = fullestOf(holder.owner);
      this.#drop(fullest, fullest.oldest);
    }
    const record = this.#table.insert(holder, this.#chain, at, this.#names);
    this.#table.records.setWord(record, POSITION, position);
    this.#views.count(holder, 1);
  }

  #drop(holder: Holder<View>, record: number): void {
    this.#table.remove(record);
    this.#views.count(holder, -1);
  }
}

/** Whether a match covers more tokens than another one, or as many for more owners. */
function isBetter(match: EventMatch, than: EventMatch): boolean {
  const more = match.blocks * match.blockSize - than.blocks * than.blockSize;
  return more > 0 || (more === 0 && match.owners.length > than.owners.length);
}

/** Blocks up to the first that has not `blockSize` tokens: what follows it has no known place. */
function leadingFits(blocks: readonly KvBlock[], blockSize: number): number {
  if (!Number.isInteger(blockSize) || blockSize < 1) return 0;
  const misfit = blocks.findIndex(({ tokens }) => tokens.length !== blockSize);
  return misfit === -1 ? blocks.length : misfit;
}

// Whose blocks are told of, and how large are they? A view is the cache of one rank of one worker, for
// one model; it is open from its first block until it is cleared, and its blocks have one size. Engines
// of one model may have different sizes, for good or while they are replaced one by one. A prompt is
// hashed once for every size in use, so these are limited; of further sizes nothing is kept. State: the
// open views of each worker, and for each model how many blocks there are of each size.

import type { ModelId } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { HoldingTable, Holder } from "./holding-table.js";

/**
 * Block sizes that are kept for a model: one of each kind of engine that serves it, and two kinds while
 * the engines of both are replaced by others.
 */
export const MODEL_MAX_BLOCK_SIZES = 4;

/** What one feed speaks of: the cache of one rank of one worker, for one model. */
export interface KvView {
  readonly generation: number;
  readonly rank: number;
  readonly model: ModelId;
}

interface Worker {
  readonly generation: number;
  readonly views: Map<string, Holder<View>>;
  blocks: number;
}

/** A size of a model's blocks, how many of it are held, and how many views are open for such. */
interface Size {
  /** Tokens of a block. */
  readonly tokens: number;
  blocks: number;
  views: number;
}

export interface View {
  readonly key: string;
  readonly worker: Worker;
  readonly size: Size;
}

export class EventViews {
  readonly #table: HoldingTable<View>;
  readonly #workers = new Map<number, Worker>();
  /** The sizes of each model's views, the largest first. */
  readonly #sizes = new Map<ModelId, readonly Size[]>();

  constructor(table: HoldingTable<View>) {
    this.#table = table;
  }

  blocksOf(generation: number): number {
    return this.#workers.get(generation)?.blocks ?? 0;
  }

  /** The sizes of which blocks are held, the largest first. */
  sizesInUse(model: ModelId): readonly Readonly<Size>[] {
    return (this.#sizes.get(model) ?? []).filter(({ blocks }) => blocks > 0);
  }

  get(view: KvView): Holder<View> | undefined {
    return this.#workers.get(view.generation)?.views.get(keyOf(view));
  }

  /** The view, opened if need be; undefined when its size, in tokens, is one too many. */
  open(view: KvView, blockSize: number): Holder<View> | undefined {
    const size = this.#sizeFor(view.model, blockSize);
    if (size === undefined) return undefined;
    const known = this.get(view);
    if (known !== undefined) return known;
    let worker = this.#workers.get(view.generation);
    if (worker === undefined) {
      worker = { generation: view.generation, views: new Map(), blocks: 0 };
      this.#workers.set(view.generation, worker);
    }
    const key = keyOf(view);
    const holder = this.#table.open({ key, worker, size });
    worker.views.set(key, holder);
    size.views += 1;
    return holder;
  }

  /** So many blocks have come to an open view, or have gone. */
  count(holder: Holder<View>, blocks: number): void {
    const { worker, size } = holder.owner;
    worker.blocks += blocks;
    size.blocks += blocks;
  }

  /** The view holds nothing from now on. */
  close(holder: Holder<View>): void {
    this.count(holder, -holder.count);
    const { key, worker, size } = holder.owner;
    size.views -= 1;
    worker.views.delete(key);
    this.#table.close(holder);
  }

  /** The worker has left. */
  forget(generation: number): void {
    for (const holder of this.#workers.get(generation)?.views.values() ?? []) this.close(holder);
    this.#workers.delete(generation);
  }

  /** A size that is in use or may be. Those that neither have blocks nor a view are let go. */
  #sizeFor(model: ModelId, tokens: number): Size | undefined {
    const sizes = this.#sizes.get(model) ?? [];
    const known = sizes.find((size) => size.tokens === tokens);
    if (known !== undefined && known.blocks > 0) return known;
    if (this.sizesInUse(model).length >= MODEL_MAX_BLOCK_SIZES) return undefined;
    if (known !== undefined) return known;
    const size = { tokens, blocks: 0, views: 0 };
    const kept = [...sizes.filter(({ views }) => views > 0), size];
    this.#sizes.set(
      model,
      kept.sort((one, other) => other.tokens - one.tokens),
    );
    return size;
  }
}

/**
 * The view with the most blocks of a worker that has some, of equally full ones the one that was opened
 * first: ranks share the worker's limit.
 */
export function fullestOf({ worker }: View): Holder<View> {
  let fullest: Holder<View> | undefined;
  for (const holder of worker.views.values()) {
    if (fullest === undefined || holder.count > fullest.count) fullest = holder;
  }
  invariant(fullest !== undefined, "a worker with blocks has a view");
  return fullest;
}

function keyOf({ rank, model }: KvView): string {
  return `${String(rank)} ${model}`;
}

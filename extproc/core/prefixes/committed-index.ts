// Which workers answered a prompt that began like this one, and when last? A worker becomes the holder
// of a prompt's blocks when a request that was routed to it ended well; nothing is noted when routing,
// for a request may fail. A holding is forgotten `ttlMs` after the last success on it, when the worker
// shows that its engine has evicted it, when the worker leaves, or when the worker's holdings exceed
// their bytes: then the least recently used goes. A success touches a prompt's blocks from the last to
// the first, so that the end of a prefix always goes before its beginning. It stands for what engines
// do with their caches without knowing it; a feed of events knows (event-index.ts).

import { monotonicMs, type MonotonicMs } from "../model/time.js";
import { KEY_WORDS, type BlockKeys } from "./block-keys.js";
import { HoldingTable, OWN_WORDS, type Holder } from "./holding-table.js";
import type { OwnerMatch, PrefixOwner } from "./owner-match.js";

export type { OwnerMatch } from "./owner-match.js";

/** The float64 of a record: its last success. */
const LAST_SUCCESS = OWN_WORDS;
const WORDS_PER_HOLDING = LAST_SUCCESS + 2;

/** Stale holdings that one call releases itself, about a millisecond's work; the sweep does the rest. */
export const FORGOTTEN_AT_ONCE = 4_096;

const NO_MATCH: OwnerMatch = { blocks: 0, owners: [] };

interface Worker {
  readonly generation: number;
  /** Holdings with an older last success are those of an evicted cache. */
  staleBefore: number;
}

export class CommittedIndex {
  readonly #table = new HoldingTable<Worker>(WORDS_PER_HOLDING, "one key");
  readonly #holders = new Map<number, Holder<Worker>>();
  readonly #holdingsMax: number;
  readonly #ttlMs: number;

  /** `maxBytesPerWorker` counts records and their share of the table; `ttlMs` > 0. */
  constructor(options: { readonly maxBytesPerWorker: number; readonly ttlMs: number }) {
    this.#holdingsMax = this.#table.recordsWithin(options.maxBytesPerWorker);
    this.#ttlMs = options.ttlMs;
  }

  /** Bytes that are allocated: never more than the limits of the workers together, from one chunk on. */
  get bytes(): number {
    return this.#table.bytes;
  }

  /** Blocks kept for a worker, those included that have expired and were not swept yet. */
  blocksOf(generation: number): number {
    return this.#holders.get(generation)?.count ?? 0;
  }

  /**
   * The longest known prefix and every worker that holds it, by generation. What has expired does not
   * match. Whoever holds a block holds those before it, so the last block that somebody holds is found
   * by halving: O(log blocks), and the holders of that block alone are listed.
   */
  match(keys: BlockKeys, now: MonotonicMs): OwnerMatch {
    let held = 0;
    let over = keys.count + 1;
    while (over - held > 1) {
      const middle = (held + over) >>> 1;
      if (this.#holdersOf(keys, middle, now).next().done === true) over = middle;
      else held = middle;
    }
    if (held === 0) return NO_MATCH;
    const owners = [...this.#holdersOf(keys, held, now)];
    owners.sort((one, other) => one.generation - other.generation);
    return { blocks: held, owners };
  }

  /** Who holds the first `blocks` blocks. */
  *#holdersOf(keys: BlockKeys, blocks: number, now: MonotonicMs): Generator<PrefixOwner, void> {
    const table = this.#table;
    const at = (blocks - 1) * KEY_WORDS;
    let record = table.first(keys.words, at);
    while (record !== 0) {
      const holder = table.holderOf(record);
      if (holder !== undefined && !this.#isOver(holder, record, now)) {
        const lastSuccessAt = monotonicMs(table.records.float(record, LAST_SUCCESS));
        yield { generation: holder.owner.generation, lastSuccessAt };
      }
      record = table.next(record, keys.words, at);
    }
  }

  /**
   * An answer ended well at this worker: it holds all these blocks as of `now`, which is never before
   * an earlier call's. Of more blocks than its limit allows the first ones are kept.
   */
  commit(keys: BlockKeys, generation: number, now: MonotonicMs): void {
    const count = Math.min(keys.count, this.#holdingsMax);
    if (count === 0) return;
    const holder = this.#holderFor(generation);
    for (let at = (count - 1) * KEY_WORDS; at >= 0; at -= KEY_WORDS) {
      let record = this.#table.find(holder, keys.words, at);
      if (record === 0) {
        if (holder.count >= this.#holdingsMax) this.#table.remove(holder.oldest);
        record = this.#table.insert(holder, keys.words, at);
      } else this.#table.touch(record);
      this.#table.records.setFloat(record, LAST_SUCCESS, now);
    }
  }

  /**
   * The engine has evicted: this worker's holdings whose last success is older than `lastSuccessAt`
   * do not match any more. How many were released; what exceeds FORGOTTEN_AT_ONCE waits for the sweep.
   */
  forgetOlder(generation: number, lastSuccessAt: MonotonicMs): number {
    const holder = this.#holders.get(generation);
    if (holder === undefined) return 0;
    holder.owner.staleBefore = Math.max(holder.owner.staleBefore, lastSuccessAt);
    let released = 0;
    while (released < FORGOTTEN_AT_ONCE && this.#isStale(holder, holder.oldest)) {
      this.#table.remove(holder.oldest);
      released += 1;
    }
    return released;
  }

  /** The worker has left. */
  forget(generation: number): void {
    const holder = this.#holders.get(generation);
    if (holder === undefined) return;
    this.#holders.delete(generation);
    this.#table.close(holder);
  }

  /** Releases at most `budget` holdings that nobody can match any more; true when there are more. */
  sweep(now: MonotonicMs, budget: number): boolean {
    let left = budget - this.#table.drain(budget);
    for (const [generation, holder] of this.#holders) {
      while (left > 0 && this.#isOver(holder, holder.oldest, now)) {
        this.#table.remove(holder.oldest);
        left -= 1;
      }
      if (holder.count === 0) this.forget(generation);
    }
    if (this.#table.hasClosed) return true;
    return [...this.#holders.values()].some((holder) => this.#isOver(holder, holder.oldest, now));
  }

  #holderFor(generation: number): Holder<Worker> {
    const known = this.#holders.get(generation);
    if (known !== undefined) return known;
    const holder = this.#table.open({ generation, staleBefore: Number.NEGATIVE_INFINITY });
    this.#holders.set(generation, holder);
    return holder;
  }

  #isStale(holder: Holder<Worker>, record: number): boolean {
    if (record === 0) return false;
    return this.#table.records.float(record, LAST_SUCCESS) < holder.owner.staleBefore;
  }

  #isOver(holder: Holder<Worker>, record: number, now: MonotonicMs): boolean {
    if (record === 0) return false;
    const lastSuccessAt = this.#table.records.float(record, LAST_SUCCESS);
    return now - lastSuccessAt >= this.#ttlMs || lastSuccessAt < holder.owner.staleBefore;
  }
}

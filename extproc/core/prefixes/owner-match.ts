// Which workers hold all blocks of a prompt from the first one on, and how far? The walk goes block by
// block and keeps the holders that held every block so far, so that nothing is assumed of a holder
// that holds a block without those before it. A holder is one cache; only at the end is it asked whose
// they are, for a worker with several caches can serve no prefix that is spread over two of them. The
// holders left at the last block that somebody still held are the owners'. The arrays are kept from
// walk to walk.

import type { MonotonicMs } from "../model/time.js";

/** The longest known prefix of a prompt, and every worker that holds it, by generation. */
export interface OwnerMatch {
  /** Blocks of the prefix; 0 = none, and then there are no owners. */
  readonly blocks: number;
  readonly owners: readonly PrefixOwner[];
}

export interface PrefixOwner {
  /** Which worker: its generation in the registry. */
  readonly generation: number;
  /** When an answer on this prefix last ended well there; undefined when the engine's events tell. */
  readonly lastSuccessAt: MonotonicMs | undefined;
}

export class OwnerWalk {
  /** For each holder's number: how many blocks from the first on it holds. */
  #reached = new Uint32Array(64);
  /** The record of the last of these blocks. */
  #records = new Uint32Array(64);
  #holders = 0;
  #depth = 0;
  #left = 0;

  /** Starts a walk over holders numbered below `holders`. */
  begin(holders: number): void {
    if (holders > this.#reached.length) {
      this.#reached = new Uint32Array(2 * holders);
      this.#records = new Uint32Array(2 * holders);
    }
    this.#reached.fill(0, 0, holders);
    this.#holders = holders;
    this.#depth = 0;
    this.#left = 0;
  }

  /** The holder holds the block that the walk stands at. */
  holds(holder: number, record: number): void {
    if (this.#reached[holder] !== this.#depth) return;
    this.#reached[holder] = this.#depth + 1;
    this.#records[holder] = record;
    this.#left += 1;
  }

  /** Goes on to the next block; false when nobody holds all blocks up to this one. */
  advance(): boolean {
    if (this.#left === 0) return false;
    this.#depth += 1;
    this.#left = 0;
    return true;
  }

  /** What the walk has found, each owner once; `ownerOf` tells whose a record is. */
  found(ownerOf: (record: number) => PrefixOwner | undefined): OwnerMatch {
    const owners = new Map<number, PrefixOwner>();
    for (let holder = 0; holder < this.#holders && this.#depth > 0; holder += 1) {
      if (this.#reached[holder] !== this.#depth) continue;
      const owner = ownerOf(this.#records[holder] ?? 0);
      if (owner !== undefined) owners.set(owner.generation, owner);
    }
    const sorted = [...owners.values()].sort((one, other) => one.generation - other.generation);
    return { blocks: this.#depth, owners: sorted };
  }
}

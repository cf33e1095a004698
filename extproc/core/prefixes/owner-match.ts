// Which workers hold all blocks of a prompt from the first one on, and how far? The walk goes block by
// block and keeps the workers that held every block so far, so that nothing is assumed of a worker
// that holds a block without those before it. The workers left at the last block that somebody still
// held are the owners. The arrays are kept from walk to walk.

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
  /** For each worker's number: how many blocks from the first on it holds. */
  #reached = new Uint32Array(64);
  /** The record of the last of these blocks. */
  #records = new Uint32Array(64);
  #workers = 0;
  #depth = 0;
  #left = 0;

  /** Starts a walk over workers numbered below `workers`. */
  begin(workers: number): void {
    if (workers > this.#reached.length) {
      this.#reached = new Uint32Array(2 * workers);
      this.#records = new Uint32Array(2 * workers);
    }
    this.#reached.fill(0, 0, workers);
    this.#workers = workers;
    this.#depth = 0;
    this.#left = 0;
  }

  /** The worker holds the block that the walk stands at. */
  holds(worker: number, record: number): void {
    if (this.#reached[worker] !== this.#depth) return;
    this.#reached[worker] = this.#depth + 1;
    this.#records[worker] = record;
    this.#left += 1;
  }

  /** Goes on to the next block; false when nobody holds all blocks up to this one. */
  advance(): boolean {
    if (this.#left === 0) return false;
    this.#depth += 1;
    this.#left = 0;
    return true;
  }

  /** What the walk has found; `ownerOf` tells whose a record is. */
  found(ownerOf: (record: number) => PrefixOwner | undefined): OwnerMatch {
    const owners: PrefixOwner[] = [];
    for (let worker = 0; worker < this.#workers && this.#depth > 0; worker += 1) {
      if (this.#reached[worker] !== this.#depth) continue;
      const owner = ownerOf(this.#records[worker] ?? 0);
      if (owner !== undefined) owners.push(owner);
    }
    owners.sort((one, other) => one.generation - other.generation);
    return { blocks: this.#depth, owners };
  }
}

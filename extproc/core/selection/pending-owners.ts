// Which workers are about to become owners of a prefix? A worker owns a prefix from a success on, but
// from the moment a request is sent to it to that success it is already spoken for: without this, every
// request of a burst would open up one more worker, and the budget of owners would only be looked at
// when it is overrun. A worker is pending for a prefix while at least one request is under way to it
// that can make it an owner. Bounded by the requests in flight, also for a worker that was removed: its
// generation never comes back, and its requests end.

import { TransientMap } from "../model/transient-map.js";
import { type BlockKeys, prefixId } from "../prefixes/block-keys.js";
import type { Disposer } from "../workers/worker.js";

export class PendingOwners {
  /** By prefix: requests under way, by generation. */
  readonly #byPrefix = new TransientMap<string, Map<number, number>>();

  /** Prefixes that have a pending owner. */
  get size(): number {
    return this.#byPrefix.size;
  }

  /** Counts a request under way to a worker that does not hold the prefix yet. */
  add(keys: BlockKeys, blocks: number, generation: number): Disposer {
    const id = prefixId(keys, blocks);
    const counts = this.#byPrefix.get(id) ?? new Map<number, number>();
    this.#byPrefix.set(id, counts);
    counts.set(generation, (counts.get(generation) ?? 0) + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const left = (counts.get(generation) ?? 0) - 1;
      if (left > 0) counts.set(generation, left);
      else counts.delete(generation);
      if (counts.size === 0) this.#byPrefix.delete(id);
    };
  }

  /** Generations of the workers that are pending for a prefix. */
  of(keys: BlockKeys, blocks: number): ReadonlyMap<number, number> | undefined {
    if (this.#byPrefix.size === 0) return undefined;
    return this.#byPrefix.get(prefixId(keys, blocks));
  }
}

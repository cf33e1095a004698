// Where does a request go that its owners cannot take? To the least loaded of the workers offered,
// which thereby becomes a provisional owner: requests on the same prefix within the cooldown join it
// instead of opening up one worker each. Refused while a seed has the prefix.

import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import type { PrefixProtections } from "../prefixes/protections.js";
import type { Worker } from "../workers/worker.js";
import type { Loads, TieBreak } from "./loads.js";
import type { Ownership } from "./ownership.js";

/** What spills of a partition are remembered by. */
export type SpillMemory = Pick<PrefixProtections, "spill" | "provisionalOwner">;

export interface SpillTarget {
  readonly worker: Worker;
  /** The worker was a provisional owner already. */
  readonly joined: boolean;
}

export class Spills {
  readonly #loads: Loads;

  constructor(loads: Loads) {
    this.#loads = loads;
  }

  /** The worker to go to, one of at least one target; undefined when a seed has the prefix. */
  spill(
    memory: SpillMemory,
    { keys, blocks }: Ownership,
    targets: readonly Worker[],
    now: MonotonicMs,
    tieBreak?: TieBreak,
  ): SpillTarget | undefined {
    const byUrl = new Map(targets.map((worker) => [worker.identity.url, worker]));
    const urls = new Set(byUrl.keys());
    const choose = (): string => this.#loads.least(targets, tieBreak).identity.url;
    const spill = memory.spill(keys, blocks, urls, choose, now);
    if (spill.kind === "refused") return undefined;
    const worker = byUrl.get(spill.owner);
    invariant(worker !== undefined, "a spill goes to one of the workers offered");
    return { worker, joined: spill.kind === "joined" };
  }

  /** The worker that a recent spill on the prefix went to, if it is one of these. */
  provisionalOwner(
    memory: SpillMemory,
    { keys, blocks }: Ownership,
    among: readonly Worker[],
    now: MonotonicMs,
  ): Worker | undefined {
    const url = memory.provisionalOwner(keys, blocks, now);
    return url === undefined ? undefined : among.find(({ identity }) => identity.url === url);
  }
}

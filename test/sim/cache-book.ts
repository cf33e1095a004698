// What an onlooker knows about caches: which worker has answered which prompt well, and when. A choice
// that names an owner must name one of these workers, and a choice that found none must have had none.
// Written with plain maps; the one rule is the time after which a success is forgotten.

import type { SelectionDecision } from "../../extproc/core/selection/decision.js";

/** The shipped `committed_ttl_s`. */
const TTL_MS = 600_000;

/** Prompts of several blocks that differ from their beginning on; every request repeats one of them. */
export const PROMPTS: readonly string[] = [1, 2, 3, 4].map(
  (kind) => `${String(kind)}: ${"all requests of a kind begin and end alike. ".repeat(20)}`,
);

export class CacheBook {
  readonly #lastSuccess = new Map<string, number>();
  readonly #ownersThen = new Map<string, ReadonlySet<string>>();
  readonly #violate: (what: string) => void;
  readonly stats = { ownersFound: 0, ownersMissing: 0 };

  constructor(violate: (what: string) => void) {
    this.#violate = violate;
  }

  /** A worker is chosen now. @param present workers that are registered, as url and generation */
  routed(id: string, model: string, prompt: string, present: readonly string[], now: number): void {
    const owners = present.filter(
      (worker) => now - (this.#lastSuccess.get(key(model, prompt, worker)) ?? -TTL_MS) < TTL_MS,
    );
    this.#ownersThen.set(id, new Set(owners));
  }

  ended(
    id: string,
    [model, prompt, worker]: readonly [model: string, prompt: string, worker: string],
    selection: SelectionDecision | undefined,
    success: boolean,
    now: number,
  ): void {
    const owners = this.#ownersThen.get(id);
    this.#ownersThen.delete(id);
    if (success) this.#lastSuccess.set(key(model, prompt, worker), now);
    if (owners === undefined || selection === undefined) return;
    if (selection.result === "owner_match") {
      this.stats.ownersFound += 1;
      if (!owners.has(worker)) this.#violate(`${id} goes to ${worker}, which holds nothing of it`);
    }
    if (selection.result === "no_owner") {
      this.stats.ownersMissing += 1;
      if (owners.size > 0) this.#violate(`${id} finds no owner of its prompt, and there is one`);
    }
  }
}

const key = (model: string, prompt: string, worker: string): string =>
  `${model}\n${worker}\n${prompt}`;

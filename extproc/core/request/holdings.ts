// What one request holds, in the order in which it is given back.

import type { Disposer } from "../workers/worker.js";

export class Holdings {
  readonly #disposers: Disposer[] = [];

  /** Gives this back after everything that is held already. */
  addLast(disposer: Disposer): void {
    this.#disposers.push(disposer);
  }

  /** Gives this back before everything that is held already. */
  addFirst(disposer: Disposer): void {
    this.#disposers.unshift(disposer);
  }

  /** Gives everything back, each thing once; a fault in one step does not keep the rest. */
  giveBack(): void {
    const next = this.#disposers.shift();
    if (next === undefined) return;
    try {
      next();
    } finally {
      this.giveBack();
    }
  }
}

// Which models exist and what else they are called. Aliases are resolved once, at request entry;
// everything behind speaks of the canonical id only. Known models are those configured under
// `models` and those a worker serves; a canonical name always wins over an alias of the same
// spelling, and of two claims on one alias the first stands. Names are compared exactly.

import type { WeirConfig } from "../model/config.js";
import type { ModelId } from "../model/ids.js";

export class ModelNames {
  readonly #canonical = new Map<string, ModelId>();

  constructor(config: Pick<WeirConfig, "models" | "workers">) {
    for (const model of config.models.keys()) this.#canonical.set(model, model);
    for (const worker of config.workers) {
      for (const model of worker.models) this.#canonical.set(model, model);
    }
    for (const [model, { aliases }] of config.models) {
      for (const alias of aliases) {
        if (!this.#canonical.has(alias)) this.#canonical.set(alias, model);
      }
    }
  }

  /** The canonical id of a model or alias; undefined = no such model. Constant time. */
  canonical(name: string): ModelId | undefined {
    return this.#canonical.get(name);
  }
}

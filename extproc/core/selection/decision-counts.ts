// How often was which way of choosing taken? One count per model, policy and result since the start, for
// metrics and for the state page. Bounded: models are those of the configuration, the rest are closed
// lists.

import type { ModelId } from "../model/ids.js";
import type { SelectionDecision, SelectionResult } from "./decision.js";

export interface DecisionCount {
  readonly model: ModelId;
  readonly policy: SelectionDecision["policy"];
  readonly result: SelectionResult;
  readonly count: number;
}

export class DecisionCounts {
  readonly #byModel = new Map<ModelId, Map<string, DecisionCount>>();

  add(model: ModelId, { policy, result }: SelectionDecision): void {
    let counts = this.#byModel.get(model);
    if (counts === undefined) {
      counts = new Map();
      this.#byModel.set(model, counts);
    }
    const key = `${policy} ${result}`;
    const count = (counts.get(key)?.count ?? 0) + 1;
    counts.set(key, { model, policy, result, count });
  }

  *all(): IterableIterator<DecisionCount> {
    for (const counts of this.#byModel.values()) yield* counts.values();
  }
}

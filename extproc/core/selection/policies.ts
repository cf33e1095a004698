// Which worker does a policy choose that does not look at the prompt? `power_of_two` takes the less
// loaded of two, `least_load` the least loaded of all, `round_robin` the next in turn. `consistent_hash`
// needs a routing key; a request without one is treated like `power_of_two`. The only state is whose
// turn it is, per model and partition.

import { assertNever, invariant } from "../model/invariant.js";
import type { ModelId, PartitionName } from "../model/ids.js";
import type { SelectionPolicy } from "../model/selection-config.js";
import type { Worker } from "../workers/worker.js";
import type { SelectionQuery, SelectionResult } from "./decision.js";
import type { Loads } from "./loads.js";

type PromptBlindPolicy = Exclude<SelectionPolicy, "cache_aware">;

export interface PolicyChoice {
  readonly worker: Worker;
  readonly result: SelectionResult;
}

export class Policies {
  readonly #loads: Loads;
  readonly #turns = new Turns();

  constructor(loads: Loads) {
    this.#loads = loads;
  }

  /**
   * Chooses one of the candidates, of which there is at least one.
   *
   * @param serving every worker of the model, in a fixed order; turns go round in it
   */
  choose(
    policy: PromptBlindPolicy,
    query: TurnQuery,
    candidates: readonly Worker[],
    serving: readonly Worker[],
  ): PolicyChoice {
    switch (policy) {
      case "power_of_two":
        return { worker: this.#loads.ofTwo(candidates), result: "two_choices" };
      case "consistent_hash":
        return { worker: this.#loads.ofTwo(candidates), result: "no_routing_key" };
      case "least_load":
        return { worker: this.#loads.least(candidates), result: "least_loaded" };
      case "round_robin": {
        const worker = this.#turns.next(query, candidates, serving);
        return { worker, result: "next_in_turn" };
      }
      default:
        return assertNever(policy, "policy");
    }
  }
}

type TurnQuery = Pick<
  SelectionQuery,
  "model" | "partition" | "targetWorkerUrl" | "excludedWorkerUrls"
>;

/**
 * Whose turn is it? The first candidate behind the one chosen last, in the order of all workers: a
 * worker that comes and goes shifts nobody else's turn. Partitions of one model have turns of their own.
 * A request that may not go everywhere leaves the turn where it is: moved by it, the turn of some workers
 * would never come.
 */
class Turns {
  readonly #last = new Map<ModelId, Map<PartitionName, number>>();

  next(
    { model, partition, targetWorkerUrl, excludedWorkerUrls }: TurnQuery,
    candidates: readonly Worker[],
    serving: readonly Worker[],
  ): Worker {
    let turns = this.#last.get(model);
    if (turns === undefined) {
      turns = new Map();
      this.#last.set(model, turns);
    }
    const last = turns.get(partition) ?? -1;
    const moves = targetWorkerUrl === undefined && excludedWorkerUrls.length === 0;
    // Both lists have the same order, so one walk finds the places of all candidates.
    let place = 0;
    let first: number | undefined;
    for (const candidate of candidates) {
      while (place < serving.length && serving[place] !== candidate) place += 1;
      first ??= place;
      if (place <= last) continue;
      if (moves) turns.set(partition, place);
      return candidate;
    }
    const [worker] = candidates;
    invariant(worker !== undefined && first !== undefined, "a turn among no workers was asked for");
    if (moves) turns.set(partition, first);
    return worker;
  }
}

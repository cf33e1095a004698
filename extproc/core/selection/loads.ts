// Which of these workers is the least loaded? Load is compared in this order: tokens reserved by
// requests that have not ended (a long prompt weighs more than a short one), requests in flight or just
// chosen, requests processed so far, place in the list. The processed count makes an idle fleet take
// turns: without it, one request at a time would always meet the first worker. Because a choice
// reserves its tokens in the same step, simultaneous arrivals see each other and spread.
//
// Two random choices compare only the first two and keep the first drawn on a tie (Mitzenmacher, "The
// power of two choices in randomized load balancing").

import { invariant } from "../model/invariant.js";
import type { Rng } from "../model/rng.js";
import type { Bookings } from "../workers/bookings.js";
import type { Worker } from "../workers/worker.js";

/** Orders workers that are equally loaded: below 0 when the first one is to be preferred. */
export type TieBreak = (a: Worker, b: Worker) => number;

export class Loads {
  readonly #bookings: Bookings;
  readonly #rng: Rng;

  constructor(bookings: Bookings, rng: Rng) {
    this.#bookings = bookings;
    this.#rng = rng;
  }

  reservedTokens(worker: Worker): number {
    return this.#bookings.reservedTokens(worker.identity.generation);
  }

  /** Requests in flight, and requests chosen whose load is not held yet. */
  requests(worker: Worker): number {
    return worker.runtime.liveLoad + this.#bookings.claims(worker.identity.generation);
  }

  /**
   * The least loaded of one or more workers.
   *
   * @param tieBreak asked before the place in the list decides
   */
  least(workers: readonly Worker[], tieBreak?: TieBreak): Worker {
    let best = workers[0];
    invariant(best !== undefined, "the least loaded of no workers was asked for");
    for (let index = 1; index < workers.length; index += 1) {
      const worker = workers[index];
      if (worker === undefined) continue;
      const difference =
        this.#compare(worker, best) ||
        worker.runtime.processed - best.runtime.processed ||
        (tieBreak?.(worker, best) ?? 0);
      if (difference < 0) best = worker;
    }
    return best;
  }

  /** The less loaded of two different workers drawn at random from one or more. */
  ofTwo(workers: readonly Worker[]): Worker {
    const { length } = workers;
    const first = length < 2 ? 0 : this.#rng.below(length);
    const one = workers[first];
    invariant(one !== undefined, "two choices among no workers were asked for");
    if (length < 2) return one;
    const other = workers[(first + 1 + this.#rng.below(length - 1)) % length];
    return other !== undefined && this.#compare(other, one) < 0 ? other : one;
  }

  #compare(a: Worker, b: Worker): number {
    return this.reservedTokens(a) - this.reservedTokens(b) || this.requests(a) - this.requests(b);
  }
}

// What one request is at the worker it was sent to: a load that others see, one verdict for the
// worker's breaker from the head of the answer, and, when its answer ends well, the proof that the worker
// now holds its prompt. A request that ends without a verdict says so, because it may have been the
// breaker's probe.

import type { MonotonicMs } from "../model/time.js";
import type { PrefixTrace } from "../selection/decision.js";
import type { CacheReport } from "../selection/evictions.js";
import type { WorkerSelector } from "../selection/selector.js";
import { workerVerdict, type ResponseAttributes } from "../settlement/answer-origin.js";
import type { BreakerTicket, BreakerVerdict } from "../workers/breaker.js";
import type { Worker } from "../workers/worker.js";
import type { Answer } from "./answer.js";

export class WorkerCall {
  readonly worker: Worker;
  readonly #trace: PrefixTrace | undefined;
  #ticket: BreakerTicket | undefined;

  constructor(worker: Worker, trace: PrefixTrace | undefined, now: MonotonicMs) {
    this.worker = worker;
    this.#trace = trace;
    this.#ticket = worker.runtime.breaker.begin(now);
  }

  /** Judges the worker by the head of the answer. */
  judge({ origin, status }: Answer, attributes: ResponseAttributes, now: MonotonicMs): void {
    this.#record(workerVerdict(origin, attributes, status ?? 0), now);
  }

  /** The request has ended without more to say about the worker. */
  over(now: MonotonicMs): void {
    this.#record("neutral", now);
  }

  /**
   * Lets the selector learn who holds the prompt; how many holdings turned out to be stale.
   *
   * @param success the worker's own answer was good and came whole
   */
  learn(selector: WorkerSelector, success: boolean, report: CacheReport, now: MonotonicMs): number {
    if (this.#trace === undefined) return 0;
    return selector.ended(this.#trace, success, report, now);
  }

  #record(verdict: BreakerVerdict, now: MonotonicMs): void {
    if (this.#ticket !== undefined) this.worker.runtime.breaker.record(this.#ticket, verdict, now);
    this.#ticket = undefined;
  }
}

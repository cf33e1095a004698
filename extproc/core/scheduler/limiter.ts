// The plain limiter: admission without classes, partitions or preemption. A token per request, given
// back when it ends; tokens also come back by themselves at a rate, so only a rate of 0 bounds
// concurrency strictly. Who finds no token waits in one bounded queue, first in first out.

import { GLOBAL_PARTITION } from "../model/config.js";
import { LinkedQueue } from "../model/linked-queue.js";
import type { ClassRank, PerClass } from "../model/priority.js";
import type { MonotonicMs } from "../model/time.js";
import {
  GRANTS_PER_TURN,
  type Admission,
  type AdmissionAsk,
  type AdmissionControl,
  type AdmissionListener,
  type PartitionView,
  type Waiter,
} from "./admission.js";
import { newWaiter, type LaneWaiter } from "./lanes.js";
import { Admitted, type Permit } from "./permit.js";
import { ReleaseRate } from "./release-rate.js";
import type { SlotHold } from "./slot-hold.js";
import { TokenBucket } from "./token-bucket.js";

export interface LimiterOptions {
  /** Requests at once; undefined = no limit. */
  readonly maxConcurrent: number | undefined;
  /** Tokens that come back by themselves; undefined = as many as `maxConcurrent`. */
  readonly tokensPerSecond: number | undefined;
  readonly queueSize: number;
  readonly queueTimeoutSecs: number;
}

const DEFAULT_RANK: ClassRank = 1;

export class Limiter<T> implements AdmissionControl<T> {
  readonly #options: LimiterOptions;
  readonly #bucket: TokenBucket | undefined;
  readonly #listener: AdmissionListener<T>;
  readonly #queue = new LinkedQueue<LaneWaiter<T>>();
  readonly #open = new LinkedQueue<Admitted<T>>();
  readonly #rate: ReleaseRate;
  #inFlight = 0;

  constructor(options: LimiterOptions, listener: AdmissionListener<T>, now: MonotonicMs) {
    const { maxConcurrent, tokensPerSecond } = options;
    this.#options = options;
    this.#listener = listener;
    this.#rate = new ReleaseRate(now);
    this.#bucket =
      maxConcurrent === undefined
        ? undefined
        : new TokenBucket(maxConcurrent, tokensPerSecond ?? maxConcurrent, now);
  }

  admit(ask: AdmissionAsk<T>, now: MonotonicMs): Admission<T> {
    if (this.#queue.size === 0 && this.#takeToken(now)) {
      return { kind: "granted", permit: this.#permit(ask.request, 0, now) };
    }
    if (this.#queue.size >= this.#options.queueSize) {
      return { kind: "queue_full", limit: "global_limit", retryAfterS: this.#retryAfterS(now) };
    }
    const plain = { ...ask, partition: GLOBAL_PARTITION, rank: DEFAULT_RANK };
    const waiter = newWaiter(plain, now, this.#options.queueTimeoutSecs * 1_000);
    waiter.node = this.#queue.push(waiter);
    this.#listener.onWake(waiter.deadline);
    this.#wakeForToken(now);
    return { kind: "queued", waiter };
  }

  /** Its tokens come back by themselves, so none can be kept for a request to come. */
  hold(): SlotHold<T> | undefined {
    return undefined;
  }

  cancel(waiter: Waiter<T>): boolean {
    const { node } = waiter as LaneWaiter<T>;
    return node !== undefined && this.#queue.remove(node);
  }

  dispatch(now: MonotonicMs): boolean {
    for (let grants = 0; this.#queue.size > 0; grants += 1) {
      if (grants === GRANTS_PER_TURN) return true;
      if (!this.#takeToken(now)) break;
      const waiter = this.#queue.shift();
      if (waiter === undefined) break;
      const permit = this.#permit(waiter.request, now - waiter.enqueuedAt, now);
      this.#listener.onGranted(waiter.request, permit);
    }
    if (this.#queue.size > 0) this.#wakeForToken(now);
    return false;
  }

  expire(now: MonotonicMs, all = false): void {
    for (;;) {
      const head = this.#queue.head;
      if (head === undefined) return;
      if (!all && head.deadline > now) {
        this.#listener.onWake(head.deadline);
        return;
      }
      this.cancel(head);
      this.#listener.onTimedOut(head.request, this.#retryAfterS(now));
    }
  }

  /** The limit is the configured one, whatever the workers report. */
  setCapacities(): void {
    return;
  }

  get queued(): number {
    return this.#queue.size;
  }

  view(now: MonotonicMs): PartitionView[] {
    const only = (value: number): PerClass<number> => [0, value, 0, 0];
    return [
      {
        name: GLOBAL_PARTITION,
        capacity: this.#options.maxConcurrent,
        queue_size: this.#options.queueSize,
        in_flight: only(this.#inFlight),
        queued: only(this.#queue.size),
        reserved: only(0),
        queue_share: only(this.#options.queueSize),
        retry_after_secs: only(this.#retryAfterS(now)),
        next: [[], [], [], []],
      },
    ];
  }

  #takeToken(now: MonotonicMs): boolean {
    return this.#bucket === undefined || this.#bucket.tryTake(now);
  }

  #permit(request: T, queuedMs: number, now: MonotonicMs): Permit {
    this.#inFlight += 1;
    const facts = { partition: GLOBAL_PARTITION, rank: DEFAULT_RANK, queuedMs, promoted: false };
    return new Admitted<T>(request, facts, undefined, now, this.#open, () => {
      this.#inFlight -= 1;
      this.#bucket?.giveBack();
      this.#rate.released();
    });
  }

  #retryAfterS(now: MonotonicMs): number {
    return this.#rate.retryAfterS(this.#queue.size, this.#options.queueTimeoutSecs, now);
  }

  #wakeForToken(now: MonotonicMs): void {
    const at = this.#bucket?.nextTokenAt(now);
    if (at !== undefined) this.#listener.onWake(at);
  }
}

// One partition: its slots and its bounded queue. A request gets a slot at once, or waits in arrival
// order, or is refused. The queue holds live waiters only: who times out or leaves is taken out in
// the same call.
//
// Invariants: in flight = permits not yet released; queue length <= queue size; nobody is passed by a
// later request of the same partition. A shrink below the number in flight takes nothing away; new
// grants stop until enough slots were released.

import { invariant } from "../model/invariant.js";
import type { PartitionName } from "../model/ids.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { after, type MonotonicMs } from "../model/time.js";
import { ReleaseRate } from "./release-rate.js";

export interface PartitionOptions {
  readonly name: PartitionName;
  /** Slots now, 0..65535. */
  readonly capacity: number;
  /** Waiters at most; 0 = nobody waits. */
  readonly queueSize: number;
  readonly queueTimeoutSecs: number;
}

/** The handle of an admitted request: it owns one slot until `release`. */
export interface Permit {
  readonly partition: PartitionName;
  /** Time spent in the queue; 0 for a request that never waited. */
  readonly queuedMs: number;
  /** Gives the slot back; a second call does nothing. */
  readonly release: () => void;
}

/** The handle of a queued request. */
export interface Waiter<T> {
  readonly request: T;
  readonly enqueuedAt: MonotonicMs;
  readonly deadline: MonotonicMs;
}

export class Partition<T> {
  readonly name: PartitionName;
  readonly queueSize: number;
  readonly #timeoutSecs: number;
  readonly #rate: ReleaseRate;
  readonly #queue = new LinkedQueue<Waiter<T>>();
  readonly #nodes = new Map<Waiter<T>, QueueNode<Waiter<T>>>();
  #capacity: number;
  #inFlight = 0;

  constructor(options: PartitionOptions, now: MonotonicMs) {
    this.name = options.name;
    this.queueSize = options.queueSize;
    this.#capacity = options.capacity;
    this.#timeoutSecs = options.queueTimeoutSecs;
    this.#rate = new ReleaseRate(now);
  }

  get capacity(): number {
    return this.#capacity;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get queued(): number {
    return this.#queue.size;
  }

  /** Deadline of the waiter that times out next; all waiters have the same patience. */
  get nextDeadline(): MonotonicMs | undefined {
    return this.#queue.head?.deadline;
  }

  /** True while a slot is free and somebody waits for one. */
  get hasWork(): boolean {
    return this.#queue.size > 0 && this.#inFlight < this.#capacity;
  }

  setCapacity(slots: number): void {
    invariant(Number.isInteger(slots) && slots >= 0, "a capacity is a whole number of slots");
    this.#capacity = slots;
  }

  /** Takes a slot for a request that does not wait: only when one is free and nobody is ahead. */
  tryAdmit(now: MonotonicMs): Permit | undefined {
    if (this.#queue.size > 0 || this.#inFlight >= this.#capacity) return undefined;
    return this.#grant(now, now);
  }

  /** Queues a request; undefined when the queue is full. */
  tryEnqueue(request: T, now: MonotonicMs): Waiter<T> | undefined {
    if (this.#queue.size >= this.queueSize) return undefined;
    const deadline = after(now, this.#timeoutSecs * 1_000);
    const waiter: Waiter<T> = { request, enqueuedAt: now, deadline };
    this.#nodes.set(waiter, this.#queue.push(waiter));
    return waiter;
  }

  /** Gives the next free slot to the oldest waiter; undefined without work. */
  dispatch(now: MonotonicMs): { readonly waiter: Waiter<T>; readonly permit: Permit } | undefined {
    if (!this.hasWork) return undefined;
    const waiter = this.#queue.shift();
    invariant(waiter !== undefined, "a queue with work has a head");
    this.#nodes.delete(waiter);
    return { waiter, permit: this.#grant(waiter.enqueuedAt, now) };
  }

  /** Takes the oldest waiter out if its time is over (`force`: whatever its time). */
  expire(now: MonotonicMs, force = false): Waiter<T> | undefined {
    const head = this.#queue.head;
    if (head === undefined || (!force && head.deadline > now)) return undefined;
    this.remove(head);
    return head;
  }

  /** Takes a waiter out, wherever it stands; false when it no longer waits. */
  remove(waiter: Waiter<T>): boolean {
    const node = this.#nodes.get(waiter);
    if (node === undefined) return false;
    this.#nodes.delete(waiter);
    return this.#queue.remove(node);
  }

  /** Whole seconds after which a refused request may come again. */
  retryAfterS(now: MonotonicMs): number {
    return this.#rate.retryAfterS(this.#queue.size, this.#timeoutSecs, now);
  }

  #grant(enqueuedAt: MonotonicMs, now: MonotonicMs): Permit {
    invariant(this.#inFlight < this.#capacity, "a grant needs a free slot");
    this.#inFlight += 1;
    let held = true;
    return {
      partition: this.name,
      queuedMs: now - enqueuedAt,
      release: () => {
        if (!held) return;
        held = false;
        this.#inFlight -= 1;
        invariant(this.#inFlight >= 0, "more slots released than granted");
        this.#rate.released();
      },
    };
  }
}

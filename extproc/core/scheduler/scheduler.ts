// Who may run now. Holds the partitions, answers each request with a permit, a place in the queue or
// a refusal, and later tells its listener who was granted a slot and whose time is over. Grants are
// drained from a loop, never by recursion, and at most GRANTS_PER_TURN in one turn, so that a mass
// release cannot hold up the tokens of running streams.

import type { PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import { Partition, type PartitionOptions, type Permit, type Waiter } from "./partition.js";

/** Grants in one turn of the event loop. */
export const GRANTS_PER_TURN = 64;

export type Admission<T> =
  | { readonly kind: "granted"; readonly permit: Permit }
  | { readonly kind: "queued"; readonly waiter: Waiter<T> }
  | { readonly kind: "queue_full"; readonly retryAfterS: number };

export interface SchedulerListener<T> {
  /** A waiter got its slot. */
  readonly onGranted: (request: T, permit: Permit) => void;
  /** A waiter's queue timeout elapsed; it holds nothing any more. */
  readonly onTimedOut: (request: T, retryAfterS: number) => void;
}

export interface PartitionView {
  readonly name: PartitionName;
  readonly capacity: number;
  readonly in_flight: number;
  readonly queued: number;
  readonly queue_size: number;
}

export class Scheduler<T> {
  readonly #partitions = new Map<PartitionName, Partition<T>>();
  readonly #listener: SchedulerListener<T>;

  constructor(
    partitions: readonly PartitionOptions[],
    listener: SchedulerListener<T>,
    now: MonotonicMs,
  ) {
    for (const options of partitions) {
      this.#partitions.set(options.name, new Partition<T>(options, now));
    }
    this.#listener = listener;
  }

  /** Asks for a slot. A free slot goes to waiters first; the request itself then waits its turn. */
  admit(name: PartitionName, request: T, now: MonotonicMs): Admission<T> {
    const partition = this.#get(name);
    const permit = partition.tryAdmit(now);
    if (permit !== undefined) return { kind: "granted", permit };
    let waiter = partition.tryEnqueue(request, now);
    if (waiter === undefined && this.#step(partition, now)) {
      // The grant made a place in the queue, or emptied it: ask once more.
      const late = partition.tryAdmit(now);
      if (late !== undefined) return { kind: "granted", permit: late };
      waiter = partition.tryEnqueue(request, now);
    }
    if (waiter !== undefined) return { kind: "queued", waiter };
    return { kind: "queue_full", retryAfterS: partition.retryAfterS(now) };
  }

  /** Takes a waiter out whose client left; false when it no longer waits. */
  cancel(name: PartitionName, waiter: Waiter<T>): boolean {
    return this.#get(name).remove(waiter);
  }

  /** Sets the slots of each named partition. */
  setCapacities(capacities: ReadonlyMap<PartitionName, number>): void {
    for (const [name, slots] of capacities) this.#get(name).setCapacity(slots);
  }

  /** Hands free slots to waiters; true when GRANTS_PER_TURN was reached and work may remain. */
  dispatch(now: MonotonicMs): boolean {
    let grants = 0;
    let progress = true;
    // Partitions take turns, so that one with many waiters cannot use up the whole turn.
    while (progress) {
      progress = false;
      for (const partition of this.#partitions.values()) {
        if (!partition.hasWork) continue;
        if (grants === GRANTS_PER_TURN) return true;
        if (this.#step(partition, now)) {
          grants += 1;
          progress = true;
        }
      }
    }
    return false;
  }

  /** Tells every waiter whose time is over; `all` ends the waiting of everybody. */
  expire(now: MonotonicMs, all = false): void {
    for (const partition of this.#partitions.values()) {
      for (;;) {
        const waiter = partition.expire(now, all);
        if (waiter === undefined) break;
        this.#listener.onTimedOut(waiter.request, partition.retryAfterS(now));
      }
    }
  }

  /** The earliest moment at which `expire` has something to do. */
  get nextDeadline(): MonotonicMs | undefined {
    let earliest: MonotonicMs | undefined;
    for (const partition of this.#partitions.values()) {
      const deadline = partition.nextDeadline;
      if (deadline !== undefined && (earliest === undefined || deadline < earliest)) {
        earliest = deadline;
      }
    }
    return earliest;
  }

  get queued(): number {
    let sum = 0;
    for (const partition of this.#partitions.values()) sum += partition.queued;
    return sum;
  }

  view(): PartitionView[] {
    return Array.from(this.#partitions.values(), (partition) => ({
      name: partition.name,
      capacity: partition.capacity,
      in_flight: partition.inFlight,
      queued: partition.queued,
      queue_size: partition.queueSize,
    }));
  }

  #step(partition: Partition<T>, now: MonotonicMs): boolean {
    const grant = partition.dispatch(now);
    if (grant === undefined) return false;
    this.#listener.onGranted(grant.waiter.request, grant.permit);
    return true;
  }

  #get(name: PartitionName): Partition<T> {
    const partition = this.#partitions.get(name);
    invariant(partition !== undefined, `unknown partition ${name}`);
    return partition;
  }
}

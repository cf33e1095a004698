// Who may run now: partitions with priority classes. Answers each request with a permit, a place in
// the queue or a refusal, and later tells its listener who was granted a slot, whose time is over and
// who must give way. Grants are drained from a loop, never by recursion, and at most GRANTS_PER_TURN
// in one turn. Only partitions in which something changed are looked at, so that many partitions cost
// nothing while they are quiet.

import type { PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import {
  GRANTS_PER_TURN,
  type Admission,
  type AdmissionAsk,
  type AdmissionControl,
  type AdmissionListener,
  type PartitionView,
  type QueueLimit,
  type Waiter,
} from "./admission.js";
import type { FairQueueing, LaneWaiter } from "./lanes.js";
import type { PartitionSettings } from "./partition-settings.js";
import { Partition, type Grant } from "./partition.js";
import type { HoldAsk, SlotHold } from "./slot-hold.js";

export class Scheduler<T> implements AdmissionControl<T> {
  readonly #partitions = new Map<PartitionName, Partition<T>>();
  readonly #listener: AdmissionListener<T>;
  /** Partitions in which a step may make progress. */
  readonly #changed = new Set<Partition<T>>();

  constructor(
    partitions: readonly PartitionSettings[],
    capacities: ReadonlyMap<PartitionName, number>,
    fair: FairQueueing | undefined,
    listener: AdmissionListener<T>,
    now: MonotonicMs,
  ) {
    this.#listener = listener;
    for (const settings of partitions) {
      const capacity = capacities.get(settings.name) ?? 0;
      const onChanged = (partition: Partition<T>): void => {
        this.#changed.add(partition);
      };
      this.#partitions.set(
        settings.name,
        new Partition<T>(settings, capacity, fair, onChanged, now),
      );
    }
  }

  /**
   * Asks for a slot. A request that finds no place in the queue is offered to one step outside the
   * budget; not served by it, it is refused. Victims for a queued request are looked for by the next
   * `dispatch`, when its owner knows that it waits.
   */
  admit(ask: AdmissionAsk<T>, now: MonotonicMs): Admission<T> {
    const partition = this.#get(ask.partition);
    const permit = partition.tryAdmit(ask, now);
    if (permit !== undefined) return { kind: "granted", permit };
    const waiter = partition.enqueue(ask, now);
    const grant = partition.step(now);
    if (grant?.waiter === waiter) return { kind: "granted", permit: grant.permit };
    if (grant !== undefined) this.#granted(partition, grant);
    const limit = partition.limitCrossedBy(waiter);
    if (limit !== undefined && !this.#madeRoom(partition, waiter, limit, now)) {
      partition.remove(waiter);
      return { kind: "queue_full", limit, retryAfterS: partition.retryAfterS(ask.rank, now) };
    }
    this.#changed.add(partition);
    this.#listener.onWake(waiter.deadline);
    this.#wakeForPromotion(partition, now);
    return { kind: "queued", waiter };
  }

  hold(ask: HoldAsk, now: MonotonicMs): SlotHold<T> | undefined {
    return this.#partitions.get(ask.partition)?.hold(ask, now);
  }

  cancel(waiter: Waiter<T>): boolean {
    const partition = this.#get(waiter.partition);
    const left = partition.remove(waiter as LaneWaiter<T>);
    if (left) this.#changed.add(partition);
    return left;
  }

  setCapacities(capacities: ReadonlyMap<PartitionName, number>): void {
    for (const [name, slots] of capacities) {
      const partition = this.#get(name);
      partition.setCapacity(slots);
      this.#changed.add(partition);
    }
  }

  dispatch(now: MonotonicMs): boolean {
    let grants = 0;
    // Partitions take turns, so that one with many waiters cannot use up the whole turn.
    while (this.#changed.size > 0) {
      for (const partition of [...this.#changed]) {
        if (grants === GRANTS_PER_TURN) return true;
        const grant = partition.step(now);
        if (grant === undefined) {
          this.#changed.delete(partition);
          this.#preempt(partition, now);
          this.#wakeForPromotion(partition, now);
        } else {
          grants += 1;
          this.#granted(partition, grant);
        }
      }
    }
    return false;
  }

  expire(now: MonotonicMs, all = false): void {
    for (const partition of this.#partitions.values()) {
      if (partition.queued === 0) continue;
      this.#changed.add(partition);
      for (;;) {
        const waiter = partition.expire(now, all);
        if (waiter === undefined) break;
        this.#listener.onTimedOut(waiter.request, partition.retryAfterS(waiter.rank, now));
      }
      const deadline = partition.nextDeadline();
      if (deadline !== undefined) this.#listener.onWake(deadline);
    }
  }

  get queued(): number {
    let sum = 0;
    for (const partition of this.#partitions.values()) sum += partition.queued;
    return sum;
  }

  view(now: MonotonicMs): PartitionView[] {
    return Array.from(this.#partitions.values(), (partition) => partition.view(now));
  }

  /** Lets a waiter of whoever has the most places give up its own, if the whole queue is full. */
  #madeRoom(
    partition: Partition<T>,
    newcomer: LaneWaiter<T>,
    limit: QueueLimit,
    now: MonotonicMs,
  ): boolean {
    const displaced = limit === "global_limit" ? partition.makeRoomFor(newcomer) : undefined;
    if (displaced === undefined) return false;
    const { request, rank } = displaced;
    this.#listener.onDisplaced(request, partition.retryAfterS(rank, now));
    return true;
  }

  #preempt(partition: Partition<T>, now: MonotonicMs): void {
    for (;;) {
      const victim = partition.preempt(now);
      if (victim === undefined) return;
      this.#listener.onPreempted(victim.admitted.request, victim.by);
    }
  }

  #granted(partition: Partition<T>, grant: Grant<T>): void {
    this.#changed.add(partition);
    this.#listener.onGranted(grant.waiter.request, grant.permit);
  }

  #wakeForPromotion(partition: Partition<T>, now: MonotonicMs): void {
    const at = partition.nextPromotion(now);
    if (at !== undefined) this.#listener.onWake(at);
  }

  #get(name: PartitionName): Partition<T> {
    const partition = this.#partitions.get(name);
    invariant(partition !== undefined, `unknown partition ${name}`);
    return partition;
  }
}

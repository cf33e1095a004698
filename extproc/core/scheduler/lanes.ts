// The queue of one partition: a lane per class over one budget. Within a lane all waiters have the same
// patience, so the oldest is also the next to time out, and entering, leaving from anywhere and timing
// out cost the same at any length. Whom a lane serves next is its oldest waiter, or, with fair sharing,
// the one the ledger names; within a tenant that is always the oldest.

import type { Choice, Stand } from "../fairshare/contest.js";
import { FairLane } from "../fairshare/fair-lane.js";
import type { Ledger } from "../fairshare/ledger.js";
import type { FairTicket } from "../fairshare/ticket.js";
import { invariant } from "../model/invariant.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import type { TenantKey } from "../model/ids.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";
import { after, type MonotonicMs } from "../model/time.js";
import type { AdmissionAsk, Waiter } from "./admission.js";

/** A waiter as its lane keeps it. */
export interface LaneWaiter<T> extends Waiter<T> {
  /** Its place; undefined when it no longer waits. */
  node: QueueNode<LaneWaiter<T>> | undefined;
  /** Its entry in the ledger and its place among the contenders; undefined without fair sharing. */
  readonly share: LaneShare<T> | undefined;
}

interface LaneShare<T> {
  readonly ticket: FairTicket;
  stand: Stand<LaneWaiter<T>> | undefined;
}

/** A waiter that stands nowhere yet. `patienceMs` is how long it waits at most. */
export function newWaiter<T>(
  ask: AdmissionAsk<T>,
  now: MonotonicMs,
  patienceMs: number,
  ticket?: FairTicket,
): LaneWaiter<T> {
  return {
    ...ask,
    enqueuedAt: now,
    deadline: after(now, patienceMs),
    node: undefined,
    share: ticket === undefined ? undefined : { ticket, stand: undefined },
  };
}

export class Lanes<T> {
  readonly #lanes: PerClass<LinkedQueue<LaneWaiter<T>>> = perClass(
    () => new LinkedQueue<LaneWaiter<T>>(),
  );
  readonly #fair = perClass(() => new FairLane<LaneWaiter<T>>());
  readonly #perTenant = new Map<TenantKey, number>();
  #size = 0;

  /** Waiters of all lanes. */
  get size(): number {
    return this.#size;
  }

  get depths(): PerClass<number> {
    return perClass((rank) => this.#lanes[rank].size);
  }

  depth(rank: ClassRank): number {
    return this.#lanes[rank].size;
  }

  /** Waiters of a tenant in all lanes. */
  queuedOf(tenant: TenantKey): number {
    return this.#perTenant.get(tenant) ?? 0;
  }

  /** The oldest waiter of a lane. */
  head(rank: ClassRank): LaneWaiter<T> | undefined {
    return this.#lanes[rank].head;
  }

  /** The waiter a lane serves next. */
  next(rank: ClassRank): LaneWaiter<T> | undefined {
    const oldest = this.head(rank);
    if (oldest?.share === undefined) return oldest;
    const next = this.#fair[rank].next(oldest.share.ticket.standing.profile);
    invariant(next !== undefined, "the profile of a waiter has a contender");
    return next;
  }

  /** Why the next one of a lane is the next, from the outermost contest in. */
  explain(rank: ClassRank): readonly Choice[] {
    const share = this.head(rank)?.share;
    return share === undefined ? [] : this.#fair[rank].explain(share.ticket.standing.profile);
  }

  push(waiter: LaneWaiter<T>): void {
    waiter.node = this.#lanes[waiter.rank].push(waiter);
    this.#size += 1;
    this.#perTenant.set(waiter.tenant, this.queuedOf(waiter.tenant) + 1);
    const { share } = waiter;
    if (share !== undefined) share.stand = this.#fair[waiter.rank].join(share.ticket, waiter);
  }

  /** Takes a waiter out, wherever it stands; false when it no longer waits. */
  remove(waiter: LaneWaiter<T>): boolean {
    const { node, share, tenant, rank } = waiter;
    if (node === undefined) return false;
    waiter.node = undefined;
    this.#lanes[rank].remove(node);
    this.#size -= 1;
    const left = this.queuedOf(tenant) - 1;
    if (left > 0) this.#perTenant.set(tenant, left);
    else this.#perTenant.delete(tenant);
    if (share?.stand !== undefined) {
      this.#fair[rank].leave(share.ticket, share.stand);
      share.stand = undefined;
    }
    return true;
  }

  /** The oldest waiter whose time is over, in any lane. */
  overdue(now: MonotonicMs): LaneWaiter<T> | undefined {
    for (const rank of RANKS) {
      const head = this.#lanes[rank].head;
      if (head !== undefined && head.deadline <= now) return head;
    }
    return undefined;
  }
}

/** Makes the entries of waiters in the ledger; undefined = first come, first served. */
export interface FairQueueing {
  readonly ledger: Ledger;
  /** Waiters of one tenant in one partition, in all classes together. */
  readonly maxQueuedPerTenant: number;
}

// The queue of one partition: a lane per class over one budget. Within a lane all waiters have the same
// patience, so the oldest is also the next to time out, and entering, leaving from anywhere and timing
// out cost the same at any length. Whom a lane serves next is its oldest waiter, or, with fair sharing,
// the one the ledger names; within a tenant that is always the oldest.

import { TransientMap } from "../model/transient-map.js";
import type { Choice } from "../fairshare/contest.js";
import { FairLane, type FairPlace } from "../fairshare/fair-lane.js";
import type { Ledger } from "../fairshare/ledger.js";
import type { FairTicket } from "../fairshare/ticket.js";
import { invariant } from "../model/invariant.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";
import { after, type MonotonicMs } from "../model/time.js";
import type { AdmissionAsk, Waiter } from "./admission.js";
import { QueueShares, type QueuePlace } from "./queue-shares.js";

/** A waiter as its lane keeps it. */
export interface LaneWaiter<T> extends Waiter<T> {
  /** Its place; undefined when it no longer waits. */
  node: QueueNode<LaneWaiter<T>> | undefined;
  /** Its entry in the ledger and its place among the contenders; undefined without fair sharing. */
  readonly share: LaneShare<T> | undefined;
}

interface LaneShare<T> {
  readonly ticket: FairTicket;
  place: FairPlace<LaneWaiter<T>> | undefined;
  queuePlace: QueuePlace<LaneWaiter<T>> | undefined;
}

/** A waiter that stands nowhere yet. `patienceMs` is how long it waits at most. */
export function newWaiter<T>(
  ask: AdmissionAsk<T>,
  now: MonotonicMs,
  patienceMs: number,
  ticket?: FairTicket,
): LaneWaiter<T> {
  return {
    request: ask.request,
    partition: ask.partition,
    rank: ask.rank,
    tenant: ask.tenant,
    model: ask.model,
    estimateTokens: ask.estimateTokens,
    proof: ask.proof,
    enqueuedAt: now,
    deadline: after(now, patienceMs),
    node: undefined,
    share: ticket === undefined ? undefined : { ticket, place: undefined, queuePlace: undefined },
  };
}

export class Lanes<T> {
  readonly #lanes: PerClass<LinkedQueue<LaneWaiter<T>>> = perClass(
    () => new LinkedQueue<LaneWaiter<T>>(),
  );
  readonly #fair = perClass(() => new FairLane<LaneWaiter<T>>());
  readonly #shares = new QueueShares<LaneWaiter<T>>();
  readonly #perTenant = new TransientMap<string, number>();
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

  /** Waiters of a waiter's tenant in all lanes; those that share an account count as one tenant. */
  queuedLike(waiter: LaneWaiter<T>): number {
    return this.#perTenant.get(payerOf(waiter)) ?? 0;
  }

  /** Who gives up its place to a waiter that came last; undefined = nobody. */
  givesWayTo({ share }: LaneWaiter<T>): LaneWaiter<T> | undefined {
    return share?.queuePlace === undefined ? undefined : this.#shares.givesWayTo(share.queuePlace);
  }

  /** The oldest waiter of a lane. */
  head(rank: ClassRank): LaneWaiter<T> | undefined {
    return this.#lanes[rank].head;
  }

  /** The waiter a lane serves next. */
  next(rank: ClassRank): LaneWaiter<T> | undefined {
    const oldest = this.head(rank);
    if (oldest?.share === undefined) return oldest;
    const { next } = this.#fair[rank];
    invariant(next !== undefined, "a lane with a waiter has a contender");
    return next;
  }

  /** Why the next one of a lane is the next, from the outermost contest in. */
  explain(rank: ClassRank): readonly Choice[] {
    return this.#fair[rank].explain();
  }

  /** @param catchUpTokens see {@link FairLane.join} */
  push(waiter: LaneWaiter<T>, catchUpTokens: number): void {
    waiter.node = this.#lanes[waiter.rank].push(waiter);
    this.#size += 1;
    this.#perTenant.set(payerOf(waiter), this.queuedLike(waiter) + 1);
    const { share, rank } = waiter;
    if (share === undefined) return;
    share.queuePlace = this.#shares.enter(share.ticket, rank, waiter);
    share.place = this.#fair[rank].join(share.ticket, waiter, catchUpTokens);
  }

  /** A request runs in a lane without having waited. */
  pass(rank: ClassRank, ticket: FairTicket): void {
    this.#fair[rank].pass(ticket);
  }

  /** Takes out the waiter that a lane serves next. */
  shift(rank: ClassRank): LaneWaiter<T> | undefined {
    const next = this.next(rank);
    if (next === undefined) return undefined;
    const { share } = next;
    if (share?.place !== undefined) {
      this.#fair[rank].serve(share.place);
      share.place = undefined;
    }
    this.remove(next);
    return next;
  }

  /** Takes a waiter out that gives up, wherever it stands; false when it no longer waits. */
  remove(waiter: LaneWaiter<T>): boolean {
    const { node, share, rank } = waiter;
    if (node === undefined) return false;
    waiter.node = undefined;
    this.#lanes[rank].remove(node);
    this.#size -= 1;
    const left = this.queuedLike(waiter) - 1;
    if (left > 0) this.#perTenant.set(payerOf(waiter), left);
    else this.#perTenant.delete(payerOf(waiter));
    if (share?.queuePlace !== undefined) this.#shares.leave(share.queuePlace);
    if (share?.place !== undefined) {
      this.#fair[rank].leave(share.place);
      share.place = undefined;
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

/** Whose waiters are counted together. */
function payerOf<T>({ share, tenant }: LaneWaiter<T>): string {
  return share?.ticket.payer ?? tenant;
}

/** Makes the entries of waiters in the ledger; undefined = first come, first served. */
export interface FairQueueing {
  readonly ledger: Ledger;
  /** Waiters of one tenant in one partition, in all classes together. */
  readonly maxQueuedPerTenant: number;
  /**
   * How far behind the others of its lane a tenant may begin, output tokens for each slot of the
   * partition: one ordinary request.
   */
  readonly catchUpTokensPerSlot: number;
}

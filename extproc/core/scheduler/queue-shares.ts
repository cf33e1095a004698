// Who holds the places of a partition's queue, and who gives one up when it is full? A full queue in
// which one has many places and another comes for its first would undo the sharing of slots: whoever
// cannot even wait is never chosen. The rule:
//
// - A place belongs to a tenant, on a side. A tenant with a share of its own (by flat weight, or named
//   in a profile) is a side by itself, whatever its models; each profile's bucket of others is one side
//   of many tenants. Places are counted over all classes, the newcomer's own included.
// - Only who has a waiter of the newcomer's class or a lower one can give way.
// - Of such sides the one with the most places gives way if it has more than the newcomer's side: in it
//   such a tenant with the most. Otherwise such a tenant of the newcomer's own side with the most
//   places does, if it has more than the newcomer's tenant. Otherwise nobody.
// - The tenant's newest waiter of its lowest class goes. Of equals the last to come is asked.
//
// Weights play no part: places are for waiting, and a few are enough to have one's share of the slots.
// Everything costs O(log sides + log tenants).

import type { ClockEntry } from "../fairshare/fair-clock.js";
import type { FairTicket } from "../fairshare/ticket.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { perClass, RANKS, type ClassRank, type PerClass } from "../model/priority.js";
import { Fullest, type Member } from "./fullest.js";

/** The payer of a tenant that is a side by itself, or the entry of a bucket. */
type SideKey = string | ClockEntry;

/** Waiters of a tenant, in the order in which they came. */
type Waiters<W> = PerClass<LinkedQueue<W>>;

/** The tenants of a side, by payer. */
type Tenants<W> = Fullest<string, Waiters<W>>;

/** A place in the queue. */
export interface QueuePlace<W> {
  readonly side: Member<SideKey, Tenants<W>>;
  readonly tenant: Member<string, Waiters<W>>;
  readonly rank: ClassRank;
  readonly node: QueueNode<W>;
}

export class QueueShares<W> {
  readonly #sides = new Fullest<SideKey, Tenants<W>>(
    () => new Fullest(() => perClass(() => new LinkedQueue<W>())),
  );

  enter(ticket: FairTicket, rank: ClassRank, waiter: W): QueuePlace<W> {
    const side = this.#sides.add(sideOf(ticket), rank);
    const tenant = side.value.add(ticket.payer, rank);
    return { side, tenant, rank, node: tenant.value[rank].push(waiter) };
  }

  leave({ side, tenant, rank, node }: QueuePlace<W>): void {
    if (!tenant.value[rank].remove(node)) return;
    side.value.remove(tenant, rank);
    this.#sides.remove(side, rank);
  }

  /** Who gives up its place to a newcomer that has entered already; undefined = nobody. */
  givesWayTo({ side: own, tenant: newcomer, rank }: QueuePlace<W>): W | undefined {
    const side = this.#sides.first(rank);
    const another = side !== undefined && side.places > own.places;
    const tenant = (another ? side : own).value.first(rank);
    if (tenant === undefined || (!another && tenant.places <= newcomer.places)) return undefined;
    const lowest = RANKS.find((at) => tenant.value[at].size > 0);
    return lowest === undefined ? undefined : tenant.value[lowest].tail;
  }
}

function sideOf({ standing, contenders, payer }: FairTicket): SideKey {
  const bucket = standing.bucket === "other" ? contenders[0]?.entry : undefined;
  return bucket ?? payer;
}

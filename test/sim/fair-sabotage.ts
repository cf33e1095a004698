// Does the naive book of fair sharing see anything? Each sabotage breaks one part of it on purpose and
// names the violation that must stop the run.

import { FairClock } from "../../extproc/core/fairshare/fair-clock.js";
import { FairTicket } from "../../extproc/core/fairshare/ticket.js";
import type { LinkedQueue, QueueNode } from "../../extproc/core/model/linked-queue.js";
import { Fullest } from "../../extproc/core/scheduler/fullest.js";
import { Lanes, type LaneWaiter } from "../../extproc/core/scheduler/lanes.js";
import { Partition } from "../../extproc/core/scheduler/partition.js";
import { QueueShares } from "../../extproc/core/scheduler/queue-shares.js";
import { everyNth, replace, replaceGetter } from "./replace.js";
import type { Sabotage } from "./sabotage.js";

/** The handle of a waiter as the linked queue keeps it. */
type Linked = QueueNode<LaneWaiter<unknown>> & {
  readonly next: Linked | undefined;
  readonly queue: LinkedQueue<LaneWaiter<unknown>>;
};

const OF_CHARGES: readonly Sabotage[] = [
  {
    title: "a settlement that is forgotten now and then, so that the estimate stands",
    violation: /tokens charged in all: Weir says/,
    apply: (): (() => void) => {
      // Odd, because the release of each permit settles once more, in vain.
      const forgets = everyNth(51);
      return replace(
        FairTicket.prototype,
        "settle",
        (original) =>
          function forgetful(this: FairTicket, settlement) {
            if (!forgets()) original.call(this, settlement);
          },
      );
    },
  },
  {
    title: "an estimate that is not booked on the account",
    violation: /tokens reserved for \S+: Weir says/,
    apply: () =>
      replace(
        FairTicket.prototype,
        "reserve",
        (original) =>
          function thrifty(this: FairTicket) {
            original.call(this, 1);
          },
      ),
  },
  {
    title: "an estimate that is not booked on the clock",
    violation: /[FV] of .*: Weir says|it is the turn of/,
    apply: (): (() => void) => {
      const mends = [
        replace(
          FairClock.prototype,
          "reserve",
          (original) =>
            function blind(this: FairClock, entry) {
              original.call(this, entry, 0);
            },
        ),
        replace(
          FairClock.prototype,
          "settle",
          (original) =>
            function late(this: FairClock, entry, _estimateTokens, chargedTokens) {
              original.call(this, entry, 0, chargedTokens);
            },
        ),
      ];
      return () => {
        for (const mend of mends) mend();
      };
    },
  },
  {
    title: "work that never ran and is charged",
    violation: /tokens charged|[FV] of .*: Weir says/,
    apply: () =>
      replace(
        FairTicket.prototype,
        "settle",
        (original) =>
          function charging(this: FairTicket, settlement) {
            const never = settlement.clockTokens === 0;
            original.call(this, never ? { tokens: 1, clockTokens: 1 } : settlement);
          },
      ),
  },
  {
    title: "tokens that are counted twice",
    violation: /tokens charged in all: Weir says/,
    apply: (): (() => void) => {
      const doubles = everyNth(51);
      return replace(
        FairTicket.prototype,
        "settle",
        (original) =>
          function twice(this: FairTicket, settlement) {
            const tokens = settlement.tokens * (doubles() ? 2 : 1);
            original.call(this, { ...settlement, tokens });
          },
      );
    },
  },
];

const OF_THE_CLOCK: readonly Sabotage[] = [
  {
    title: "a tenant that comes back with what it was behind when it left",
    violation: /[FV] of .*: Weir says|it is the turn of/,
    apply: () =>
      replace(
        FairClock.prototype,
        "register",
        (original) =>
          function banking(this: FairClock, entry) {
            const { settled } = entry;
            original.call(this, entry);
            entry.settled = settled;
            for (const place of entry.places) place.moved();
          },
      ),
  },
  {
    title: "a refund that goes below the floor",
    violation: /[FV] of .*: Weir says|it is the turn of/,
    apply: () =>
      replace(
        FairClock.prototype,
        "settle",
        (original) =>
          function generous(this: FairClock, entry, estimateTokens, chargedTokens) {
            entry.floor = Number.NEGATIVE_INFINITY;
            original.call(this, entry, estimateTokens, chargedTokens);
          },
      ),
  },
  {
    title: "a clock that goes back",
    violation: /clock.* goes back/,
    apply: (): (() => void) => {
      const errs = everyNth(1_000);
      return replaceGetter(
        FairClock.prototype,
        "virtualTime",
        (original) =>
          function back(this: FairClock) {
            return original.call(this) - (errs() ? 1 : 0);
          },
      );
    },
  },
];

const OF_TURNS: readonly Sabotage[] = [
  {
    title: "the oldest waiter of a lane, whatever its tenant was served",
    violation: /passes 0 that waited longer: it is the turn of/,
    apply: () =>
      replace(
        Lanes.prototype,
        "next",
        () =>
          function oldest(this: Lanes<unknown>, rank) {
            return this.head(rank);
          },
      ),
  },
  {
    title: "the youngest waiter of a tenant before its older ones",
    violation: /passes [1-9]\d* that waited longer: it is the turn of/,
    apply: () =>
      replace(
        Lanes.prototype,
        "next",
        (original) =>
          function youngest(this: Lanes<unknown>, rank) {
            const first = original.call(this, rank);
            if (first === undefined) return undefined;
            let last = first;
            let node = (first.node as Linked | undefined)?.next;
            for (; node !== undefined; node = node.next) {
              const { tenant, model } = node.value;
              if (tenant === first.tenant && model === first.model) last = node.value;
            }
            return last;
          },
      ),
  },
  {
    title: "the oldest waiter that gives up its place instead of the newest",
    violation: /loses its place to \S+ against the rule/,
    apply: () =>
      replace(
        Lanes.prototype,
        "givesWayTo",
        (original) =>
          function oldest(this: Lanes<unknown>, newcomer) {
            const newest = original.call(this, newcomer);
            return newest?.share?.queuePlace?.tenant.value[newest.rank].head;
          },
      ),
  },
  {
    title: "a full queue that never makes room",
    violation: /is refused although another has more places/,
    apply: () => replace(QueueShares.prototype, "givesWayTo", () => () => undefined),
  },
  {
    title: "tenants of a bucket that never give way to each other",
    violation: /is refused although another has more places/,
    apply: () =>
      replace(
        Lanes.prototype,
        "givesWayTo",
        (original) =>
          function united(this: Lanes<unknown>, newcomer) {
            const one = original.call(this, newcomer);
            const same = one?.share?.queuePlace?.side === newcomer.share?.queuePlace?.side;
            return same ? undefined : one;
          },
      ),
  },
  {
    title: "a full queue that asks the fullest alone, whatever the classes of its waiters",
    violation: /is refused although another has more places/,
    apply: () =>
      replace(
        Fullest.prototype,
        "first",
        (original) =>
          function alone(this: Fullest<unknown, unknown>, rank) {
            const fullest = original.call(this, 3);
            const places = fullest?.placesOf.slice(0, rank + 1);
            return places?.some((count) => count > 0) === true ? fullest : undefined;
          },
      ),
  },
  {
    title: "a tenant that is a side of its own for each profile",
    violation: /is refused although another has more places|against the rule/,
    apply: () =>
      replace(
        QueueShares.prototype,
        "enter",
        (original) =>
          function divided(this: QueueShares<unknown>, ticket, rank, waiter) {
            const payer = `${ticket.payer} ${ticket.standing.profile ?? ""}`;
            const masked = Object.create(ticket, { payer: { value: payer } }) as typeof ticket;
            return original.call(this, masked, rank, waiter);
          },
      ),
  },
  {
    title: "a tenant's ceiling that is ignored",
    violation: /has no place: its tenant has enough/,
    apply: () =>
      replace(
        Partition.prototype,
        "limitCrossedBy",
        () =>
          function lenient(this: Partition<unknown>) {
            return this.queued > this.settings.queueSize ? "global_limit" : undefined;
          },
      ),
  },
];

export const FAIR_SABOTAGES: readonly Sabotage[] = [...OF_CHARGES, ...OF_THE_CLOCK, ...OF_TURNS];

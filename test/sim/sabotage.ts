// Do the checkers see anything? Each sabotage breaks one part of Weir on purpose, in the way such
// parts do break, and names the violation that must stop the run.

import { LinkedQueue, type QueueNode } from "../../extproc/core/model/linked-queue.js";
import { perClass, RANKS_DOWN, type ClassRank } from "../../extproc/core/model/priority.js";
import { reject } from "../../extproc/core/model/rejection.js";
import { Answer } from "../../extproc/core/request/answer.js";
import { RequestDesk } from "../../extproc/core/request/request-desk.js";
import { RequestLife } from "../../extproc/core/request/request-life.js";
import type { VerdictListener } from "../../extproc/core/request/verdict.js";
import { FirstByteCell } from "../../extproc/core/scheduler/first-byte.js";
import { Lanes, type LaneWaiter } from "../../extproc/core/scheduler/lanes.js";
import { Partition } from "../../extproc/core/scheduler/partition.js";
import type {
  ClassSettings,
  PartitionSettings,
} from "../../extproc/core/scheduler/partition-settings.js";
import { Admitted, type Permit } from "../../extproc/core/scheduler/permit.js";
import { Preemption } from "../../extproc/core/scheduler/preemption.js";
import { PromotionWindow } from "../../extproc/core/scheduler/promotions.js";
import { Scheduler } from "../../extproc/core/scheduler/scheduler.js";
import { SlotPool } from "../../extproc/core/scheduler/slot-pool.js";
import { WorkerRuntime } from "../../extproc/core/workers/worker.js";
import { everyNth, replace, replaceGetter } from "./replace.js";

export interface Sabotage {
  readonly title: string;
  /** Breaks it; returns how to mend it. */
  readonly apply: () => () => void;
  readonly violation: RegExp;
}

/** The handle of a waiter as the linked queue keeps it. */
type Linked = QueueNode<LaneWaiter<unknown>> & {
  readonly next: Linked | undefined;
  readonly queue: LinkedQueue<LaneWaiter<unknown>>;
};

const keep = (permit: Permit): Permit =>
  Object.assign(Object.create(permit) as Permit, { release: () => undefined });

const OF_QUEUE_AND_SLOTS: readonly Sabotage[] = [
  {
    title: "a slot that is never given back",
    violation: /slots in use of \w+ in \w+: Weir says \d+, the book \d+/,
    apply: (): (() => void) => {
      const leaks = everyNth(50);
      return replace(
        Partition.prototype,
        "tryAdmit",
        (original) =>
          function leaking(this: Partition<unknown>, ask, now) {
            const permit = original.call(this, ask, now);
            return permit !== undefined && leaks() ? keep(permit) : permit;
          },
      );
    },
  },
  {
    title: "a waiter that passes another",
    violation: /passes 1 that waited longer/,
    apply: () =>
      replace(
        Lanes.prototype,
        "head",
        (original) =>
          function unfair(this: Lanes<unknown>, rank) {
            const first = original.call(this, rank);
            return (first?.node as Linked | undefined)?.next?.value ?? first;
          },
      ),
  },
  {
    title: "a newcomer that goes to the front of its lane",
    violation: /passes \d+ that waited longer|times out out of turn/,
    apply: () =>
      replace(
        Lanes.prototype,
        "push",
        (original) =>
          function barging(this: Lanes<unknown>, waiter, catchUpTokens) {
            original.call(this, waiter, catchUpTokens);
            const { queue } = waiter.node as Linked;
            for (let others = queue.size - 1; others > 0; others -= 1) {
              const first = queue.shift();
              if (first !== undefined) first.node = queue.push(first);
            }
          },
      ),
  },
  {
    title: "a queue timeout that never comes",
    violation: /waits longer than the queue timeout/,
    apply: () => replace(Lanes.prototype, "overdue", () => () => undefined),
  },
  {
    title: "a queue timeout that comes too early",
    violation: /times out after \d/,
    apply: () =>
      replace(
        Scheduler.prototype,
        "expire",
        (original) =>
          function early(this: Scheduler<unknown>, now) {
            original.call(this, now, true);
          },
      ),
  },
  {
    title: "a free slot that is not handed on",
    violation: /leaves a slot free while \d+ wait/,
    apply: (): (() => void) => {
      const forgets = everyNth(20);
      return replace(
        Scheduler.prototype,
        "dispatch",
        (original) =>
          function idle(this: Scheduler<unknown>, now) {
            return forgets() ? false : original.call(this, now);
          },
      );
    },
  },
  {
    title: "one slot too many",
    violation: /gets slot \d+ of \d+|slots of \w+: Weir says/,
    apply: () =>
      replace(
        Partition.prototype,
        "setCapacity",
        (original) =>
          function generous(this: Partition<unknown>, slots) {
            original.call(this, slots + 1);
          },
      ),
  },
  {
    title: "a shrink of capacity that grants all the same",
    violation: /gets slot \d+ of \d+|takes a slot that is kept back/,
    apply: (): (() => void) => {
      const largest = new WeakMap<SlotPool, number>();
      const published = new WeakMap<SlotPool, number>();
      const mends = [
        replace(
          SlotPool.prototype,
          "resize",
          (original) =>
            function lagging(this: SlotPool, capacity, reserved) {
              published.set(this, capacity);
              largest.set(this, Math.max(capacity, largest.get(this) ?? 0));
              original.call(this, largest.get(this) ?? 0, reserved);
            },
        ),
        replaceGetter(
          SlotPool.prototype,
          "capacity",
          (original) =>
            function told(this: SlotPool) {
              return published.get(this) ?? original.call(this);
            },
        ),
      ];
      return () => {
        for (const mend of mends) mend();
      };
    },
  },
  {
    title: "a queue that is too long",
    violation: /has no place/,
    apply: () => replace(Partition.prototype, "limitCrossedBy", () => () => undefined),
  },
];

const OF_CLASSES: readonly Sabotage[] = [
  {
    title: "reservations that are ignored",
    violation: /takes a slot that is kept back/,
    apply: () =>
      replace(
        SlotPool.prototype,
        "tryTake",
        () =>
          function greedy(this: SlotPool, rank) {
            return this.tryTakeIgnoringReservations(rank);
          },
      ),
  },
  {
    title: "promotions without a bound",
    violation: /is one contested promotion too many/,
    apply: () => replaceGetter(PromotionWindow.prototype, "allowsContested", () => () => true),
  },
  {
    title: "a starved lane that is never promoted over a higher class",
    violation: /is served before the starved lane/,
    apply: () => replaceGetter(PromotionWindow.prototype, "allowsContested", () => () => false),
  },
  {
    title: "starved lanes of which the lowest always goes first",
    violation: /is served before the starved lane/,
    apply: () => replace(PromotionWindow.prototype, "countOf", () => () => 0),
  },
  {
    title: "a starvation threshold for which no timer is set",
    violation: /is over its threshold while a slot is free/,
    apply: () => replace(Partition.prototype, "nextPromotion", () => () => undefined),
  },
];

const OF_PREEMPTION: readonly Sabotage[] = [
  {
    title: "a victim past its first byte",
    violation: /is preempted after its answer began/,
    apply: (): (() => void) => {
      const listeners = new WeakMap<RequestLife, VerdictListener>();
      const mends = [
        replace(FirstByteCell.prototype, "markFirstByte", () => () => false),
        replace(
          RequestDesk.prototype,
          "open",
          (original) =>
            function noting(this: RequestDesk, head, onVerdict, now) {
              const opened = original.call(this, head, onVerdict, now);
              listeners.set(opened.request, onVerdict);
              return opened;
            },
        ),
        // Weir's own assertion would stop this at once, so it goes too.
        replace(
          RequestLife.prototype,
          "preempted",
          (original) =>
            function unasked(this: RequestLife, by) {
              try {
                original.call(this, by);
                return;
              } catch {
                // Too late for it.
              }
              listeners.get(this)?.({
                kind: "refuse",
                rejection: reject("scheduler_preempted", "too late"),
              });
            },
        ),
      ];
      return () => {
        for (const mend of mends) mend();
      };
    },
  },
  {
    title: "a victim past its first byte, by Weir's own assertion",
    violation: /only a request before its first byte is preempted/,
    apply: () => replace(FirstByteCell.prototype, "markFirstByte", () => () => false),
  },
  {
    title: "a victim whose slot is free at once",
    violation: /slots in use of \w+ in \w+: Weir says|gets slot \d+ of|takes a slot that is kept/,
    apply: () =>
      replace(
        Admitted.prototype,
        "preempt",
        (original) =>
          function hasty(this: Admitted<unknown>) {
            const marked = original.call(this);
            if (marked) this.release();
            return marked;
          },
      ),
  },
  {
    title: "a victim that is charged",
    violation: /charge of r\d+, a victim/,
    apply: () =>
      replace(
        Answer.prototype,
        "settle",
        (original) =>
          function charging(this: Answer, ending) {
            return original.call(this, { ...ending, takenAway: false });
          },
      ),
  },
  {
    title: "a victim for every waiter that may preempt, whether it helps or not",
    violation: /is preempted (without need|in vain)|gives way to the class/,
    apply: () =>
      replace(
        Preemption.prototype,
        "mark",
        () =>
          function eager(this: Preemption<unknown>, waiting, may) {
            for (const by of RANKS_DOWN) {
              if (waiting[by] === 0 || !may(by)) continue;
              const lower = this.open.slice(0, by).map(({ tail }) => tail);
              const admitted = lower.find((candidate) => candidate?.preempt() === true);
              if (admitted !== undefined) return { admitted, by };
            }
            return undefined;
          },
      ),
  },
  {
    title: "a victim of a higher class than need be",
    violation: /is preempted before another of a lower class, or a younger one/,
    apply: () =>
      replaceGetter(
        LinkedQueue.prototype as LinkedQueue<unknown>,
        "tail",
        () =>
          function oldest(this: LinkedQueue<unknown>) {
            return this.head;
          },
      ),
  },
  {
    title: "a class that preempts without the right",
    violation: /gives way to the class/,
    apply: () =>
      replace(
        Partition.prototype,
        "preempt",
        (original) =>
          function entitled(this: Partition<unknown>, now) {
            const mine = this as { settings: PartitionSettings };
            const { settings } = mine;
            const all = (rank: ClassRank): ClassSettings => ({
              ...settings.classes[rank],
              canPreempt: true,
            });
            mine.settings = { ...settings, classes: perClass(all) };
            const victim = original.call(this, now);
            mine.settings = settings;
            return victim;
          },
      ),
  },
];

const OF_THE_REST: readonly Sabotage[] = [
  {
    title: "live load that is not given back",
    violation: /load of http/,
    apply: (): (() => void) => {
      const leaks = everyNth(50);
      return replace(
        WorkerRuntime.prototype,
        "holdLoad",
        (original) =>
          function leaking(this: WorkerRuntime) {
            const release = original.call(this);
            return leaks() ? () => undefined : release;
          },
      );
    },
  },
  {
    title: "a client that leaves unnoticed",
    violation: /is over and not settled/,
    apply: () =>
      replace(
        RequestDesk.prototype,
        "end",
        (original) =>
          function deaf(this: RequestDesk, request: RequestLife, complete, now) {
            if (complete) original.call(this, request, complete, now);
          },
      ),
  },
];

export const SABOTAGES: readonly Sabotage[] = [
  ...OF_QUEUE_AND_SLOTS,
  ...OF_CLASSES,
  ...OF_PREEMPTION,
  ...OF_THE_REST,
];

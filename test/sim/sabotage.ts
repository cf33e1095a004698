// Do the checkers see anything? Each sabotage breaks one part of Weir on purpose, in the way such
// parts do break, and names the violation that must stop the run.

import { LinkedQueue } from "../../extproc/core/model/linked-queue.js";
import { Partition, type Permit } from "../../extproc/core/scheduler/partition.js";
import { Scheduler } from "../../extproc/core/scheduler/scheduler.js";
import { WorkerRuntime } from "../../extproc/core/workers/worker.js";
import { RequestDesk } from "../../extproc/core/request/request-desk.js";
import type { RequestLife } from "../../extproc/core/request/request-life.js";

export interface Sabotage {
  readonly title: string;
  /** Breaks it; returns how to mend it. */
  readonly apply: () => () => void;
  readonly violation: RegExp;
}

/** Replaces a method until the returned function is called. */
function replace<T extends object, K extends keyof T>(
  target: T,
  name: K,
  make: (original: T[K]) => T[K],
): () => void {
  const original = target[name];
  target[name] = make(original);
  return () => {
    target[name] = original;
  };
}

/** True once in `period` calls. */
function everyNth(period: number): () => boolean {
  let calls = 0;
  return () => {
    calls += 1;
    return calls % period === 0;
  };
}

const keep = (permit: Permit): Permit => ({ ...permit, release: () => undefined });

export const SABOTAGES: readonly Sabotage[] = [
  {
    title: "a slot that is never given back",
    violation: /slots in use in \w+: Weir says \d+, the book \d+/,
    apply: (): (() => void) => {
      const leaks = everyNth(50);
      return replace(
        Partition.prototype,
        "tryAdmit",
        (original) =>
          function leaking(this: Partition<unknown>, now) {
            const permit = original.call(this, now);
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
        LinkedQueue.prototype as LinkedQueue<unknown>,
        "shift",
        (original) =>
          function unfair(this: LinkedQueue<unknown>) {
            const first = original.call(this);
            if (this.size === 0) return first;
            const second = original.call(this);
            this.push(first);
            return second;
          },
      ),
  },
  {
    title: "a queue timeout that never comes",
    violation: /waits longer than the queue timeout/,
    apply: () => replace(Scheduler.prototype, "expire", () => () => undefined),
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
  {
    title: "a queue that is too long",
    violation: /more waiters than places/,
    apply: () => replace(Partition.prototype, "tryEnqueue", (original) => overlong(original)),
  },
];

/** Enqueues as if the queue were endless, by making room in the middle of the call. */
function overlong(original: Partition<unknown>["tryEnqueue"]): Partition<unknown>["tryEnqueue"] {
  return function endless(this: Partition<unknown>, request, now) {
    const size = this.queueSize;
    Object.defineProperty(this, "queueSize", { value: 1_000, configurable: true });
    const waiter = original.call(this, request, now);
    Object.defineProperty(this, "queueSize", { value: size, configurable: true });
    return waiter;
  };
}

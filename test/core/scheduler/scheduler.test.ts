import { expect } from "chai";
import fc from "fast-check";
import { partitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import type { Permit, Waiter } from "../../../extproc/core/scheduler/partition.js";
import { GRANTS_PER_TURN, Scheduler } from "../../../extproc/core/scheduler/scheduler.js";

const MAIN = partitionName("main");
const OTHER = partitionName("other");
const at = (ms: number): MonotonicMs => monotonicMs(ms);

interface Heard {
  readonly granted: string[];
  readonly timedOut: { request: string; retryAfterS: number }[];
  readonly permits: Permit[];
}

function build(
  capacity: number,
  queueSize: number,
  queueTimeoutSecs = 60,
): { scheduler: Scheduler<string>; heard: Heard } {
  const heard: Heard = { granted: [], timedOut: [], permits: [] };
  const scheduler = new Scheduler<string>(
    [
      { name: MAIN, capacity, queueSize, queueTimeoutSecs },
      { name: OTHER, capacity, queueSize, queueTimeoutSecs },
    ],
    {
      onGranted: (request, permit) => {
        heard.granted.push(request);
        heard.permits.push(permit);
      },
      onTimedOut: (request, retryAfterS) => {
        heard.timedOut.push({ request, retryAfterS });
      },
    },
    at(0),
  );
  return { scheduler, heard };
}

function grant(scheduler: Scheduler<string>, request: string, now = 0): Permit {
  const admission = scheduler.admit(MAIN, request, at(now));
  if (admission.kind !== "granted") throw new Error(`${request} was ${admission.kind}`);
  return admission.permit;
}

function queue(scheduler: Scheduler<string>, request: string, now = 0): Waiter<string> {
  const admission = scheduler.admit(MAIN, request, at(now));
  if (admission.kind !== "queued") throw new Error(`${request} was ${admission.kind}`);
  return admission.waiter;
}

describe("Scheduler", () => {
  it("grants a free slot at once, queues behind a full partition, and refuses past the queue size", () => {
    const { scheduler } = build(2, 2);
    grant(scheduler, "a");
    grant(scheduler, "b");
    queue(scheduler, "c");
    queue(scheduler, "d");
    expect(scheduler.admit(MAIN, "e", at(0)).kind).to.equal("queue_full");
    expect(scheduler.view()[0]).to.deep.include({ in_flight: 2, queued: 2 });
  });

  it("needs no queue place for a request that a free slot can take at once", () => {
    const { scheduler } = build(1, 0);
    const permit = grant(scheduler, "a");
    expect(scheduler.admit(MAIN, "b", at(0)).kind).to.equal("queue_full");
    permit.release();
    grant(scheduler, "c");
  });

  it("admits exactly 64 of 200 requests on 64 slots in one tick", () => {
    const { scheduler } = build(64, 0);
    const kinds = Array.from({ length: 200 }, (_, index) =>
      scheduler.admit(MAIN, String(index), at(0)),
    ).map((admission) => admission.kind);
    expect(kinds.filter((kind) => kind === "granted")).to.have.length(64);
    expect(kinds.filter((kind) => kind === "queue_full")).to.have.length(136);
  });

  it("serves waiters in the order of arrival and lets no newcomer pass them", () => {
    const { scheduler, heard } = build(1, 10);
    const permit = grant(scheduler, "a");
    queue(scheduler, "b", 10);
    queue(scheduler, "c", 20);
    permit.release();
    // The slot is free, but b waits: d must queue.
    queue(scheduler, "d", 30);
    scheduler.dispatch(at(40));
    expect(heard.granted).to.deep.equal(["b"]);
    expect(heard.permits[0]?.queuedMs).to.equal(30);
    heard.permits[0]?.release();
    scheduler.dispatch(at(50));
    expect(heard.granted).to.deep.equal(["b", "c"]);
  });

  it("makes room in a full queue before it refuses, when a slot is free for the oldest waiter", () => {
    const { scheduler, heard } = build(1, 1);
    const permit = grant(scheduler, "a");
    queue(scheduler, "b");
    permit.release();
    queue(scheduler, "c");
    expect(heard.granted).to.deep.equal(["b"]);
  });

  it("returns a slot once, however often its permit is released", () => {
    const { scheduler } = build(1, 0);
    const permit = grant(scheduler, "a");
    permit.release();
    permit.release();
    expect(scheduler.view()[0]?.in_flight).to.equal(0);
    grant(scheduler, "b");
    expect(scheduler.admit(MAIN, "c", at(0)).kind).to.equal("queue_full");
  });

  it("takes out a waiter whose client left, and frees its place in the same call", () => {
    const { scheduler, heard } = build(1, 1);
    const permit = grant(scheduler, "a");
    const waiter = queue(scheduler, "b");
    expect(scheduler.cancel(MAIN, waiter)).to.equal(true);
    expect(scheduler.cancel(MAIN, waiter)).to.equal(false);
    queue(scheduler, "c");
    permit.release();
    scheduler.dispatch(at(1));
    expect(heard.granted).to.deep.equal(["c"]);
  });

  it("ends a wait at the queue timeout and not a millisecond earlier", () => {
    const { scheduler, heard } = build(0, 10, 30);
    queue(scheduler, "a", 0);
    queue(scheduler, "b", 5);
    expect(scheduler.nextDeadline).to.equal(30_000);
    scheduler.expire(at(29_999));
    expect(heard.timedOut).to.deep.equal([]);
    scheduler.expire(at(30_000));
    expect(heard.timedOut.map(({ request }) => request)).to.deep.equal(["a"]);
    expect(scheduler.nextDeadline).to.equal(30_005);
    expect(scheduler.queued).to.equal(1);
  });

  it("prefers the permit when slot and timeout fall on the same instant", () => {
    const { scheduler, heard } = build(1, 10, 30);
    const permit = grant(scheduler, "a");
    queue(scheduler, "b", 0);
    permit.release();
    scheduler.dispatch(at(30_000));
    scheduler.expire(at(30_000));
    expect(heard.granted).to.deep.equal(["b"]);
    expect(heard.timedOut).to.deep.equal([]);
  });

  it("grants at most 64 in one turn and says that there is more", () => {
    const { scheduler, heard } = build(0, 200);
    for (let index = 0; index < 100; index += 1) queue(scheduler, String(index));
    scheduler.setCapacities(new Map([[MAIN, 100]]));
    expect(scheduler.dispatch(at(1))).to.equal(true);
    expect(heard.granted).to.have.length(GRANTS_PER_TURN);
    expect(scheduler.dispatch(at(1))).to.equal(false);
    expect(heard.granted).to.have.length(100);
  });

  it("does not report more work when a turn ends exactly at its limit", () => {
    const { scheduler, heard } = build(0, 200);
    for (let index = 0; index < 64; index += 1) queue(scheduler, String(index));
    scheduler.setCapacities(new Map([[MAIN, 100]]));
    expect(scheduler.dispatch(at(1))).to.equal(false);
    expect(heard.granted).to.have.length(64);
  });

  it("takes nothing away when the capacity falls below what is in flight", () => {
    const { scheduler, heard } = build(3, 10);
    const permits = ["a", "b", "c"].map((request) => grant(scheduler, request));
    queue(scheduler, "d");
    scheduler.setCapacities(new Map([[MAIN, 1]]));
    permits[0]?.release();
    permits[1]?.release();
    scheduler.dispatch(at(1));
    expect(heard.granted).to.deep.equal([]);
    permits[2]?.release();
    scheduler.dispatch(at(2));
    expect(heard.granted).to.deep.equal(["d"]);
  });

  it("keeps partitions apart: a full one does not block another", () => {
    const { scheduler } = build(1, 0);
    grant(scheduler, "a");
    expect(scheduler.admit(MAIN, "b", at(0)).kind).to.equal("queue_full");
    expect(scheduler.admit(OTHER, "c", at(0)).kind).to.equal("granted");
  });

  it("estimates Retry-After from the rate of releases: 20 waiting, 100 releases in 10 s is 3 s", () => {
    const { scheduler } = build(100, 20, 17);
    const permits = Array.from({ length: 100 }, (_, index) => grant(scheduler, String(index)));
    for (const permit of permits) permit.release();
    for (let index = 0; index < 100; index += 1) grant(scheduler, `again ${String(index)}`);
    for (let index = 0; index < 20; index += 1) queue(scheduler, `w${String(index)}`, 9_000);
    expect(scheduler.admit(MAIN, "x", at(10_000))).to.deep.equal({
      kind: "queue_full",
      retryAfterS: 3,
    });
  });

  it("answers the queue timeout as Retry-After while nothing was ever released", () => {
    const { scheduler } = build(1, 0, 17);
    grant(scheduler, "a");
    expect(scheduler.admit(MAIN, "b", at(5_000))).to.deep.equal({
      kind: "queue_full",
      retryAfterS: 17,
    });
  });

  it("agrees with a naive model under random admissions, releases, departures, timeouts and resizing", () => {
    const step = fc.record({
      kind: fc.constantFrom("admit", "release", "leave", "tick", "resize"),
      at: fc.nat(30),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        compareWithModel(steps);
      }),
      { numRuns: 300 },
    );
  });
});

/** Replays the steps on the scheduler and on arrays, and compares after each. */
function compareWithModel(steps: readonly { readonly kind: string; readonly at: number }[]): void {
  const timeoutMs = 10_000;
  const queueSize = 4;
  const { scheduler, heard } = build(2, queueSize, timeoutMs / 1_000);
  let capacity = 2;
  let now = 0;
  let next = 0;
  const waiters = new Map<string, Waiter<string>>();
  const permits = new Map<string, Permit>();
  let waiting: { name: string; since: number }[] = [];
  const running: string[] = [];
  const settle = (): void => {
    scheduler.dispatch(at(now));
    while (waiting.length > 0 && running.length < capacity) {
      const head = waiting.shift();
      if (head !== undefined) running.push(head.name);
    }
    heard.granted.forEach((name, index) => {
      const permit = heard.permits[index];
      if (permit !== undefined && !permits.has(name)) permits.set(name, permit);
    });
  };
  for (const { kind, at: pick } of steps) {
    now += 500;
    if (kind === "admit") {
      const name = `r${String(next)}`;
      next += 1;
      const admission = scheduler.admit(MAIN, name, at(now));
      if (running.length < capacity && waiting.length === 0) {
        expect(admission.kind).to.equal("granted");
        running.push(name);
      } else if (waiting.length < queueSize) {
        expect(admission.kind).to.equal("queued");
        waiting.push({ name, since: now });
      } else {
        expect(admission.kind).to.equal("queue_full");
      }
      if (admission.kind === "granted") permits.set(name, admission.permit);
      if (admission.kind === "queued") waiters.set(name, admission.waiter);
    } else if (kind === "release") {
      const name = running[pick % Math.max(1, running.length)];
      if (name !== undefined) {
        permits.get(name)?.release();
        running.splice(running.indexOf(name), 1);
      }
    } else if (kind === "leave") {
      const entry = waiting[pick % Math.max(1, waiting.length)];
      const waiter = entry === undefined ? undefined : waiters.get(entry.name);
      if (entry !== undefined && waiter !== undefined) {
        expect(scheduler.cancel(MAIN, waiter)).to.equal(true);
        waiting = waiting.filter((other) => other !== entry);
      }
    } else if (kind === "resize") {
      capacity = pick % 4;
      scheduler.setCapacities(new Map([[MAIN, capacity]]));
    } else {
      const before = heard.timedOut.length;
      scheduler.expire(at(now));
      const late = waiting.filter(({ since }) => since + timeoutMs <= now).map(({ name }) => name);
      expect(heard.timedOut.slice(before).map(({ request }) => request)).to.deep.equal(late);
      waiting = waiting.filter(({ since }) => since + timeoutMs > now);
    }
    settle();
    expect(scheduler.view()[0]).to.deep.include({
      in_flight: running.length,
      queued: waiting.length,
    });
  }
}

// The scheduler on virtual time: order, refusal, timeouts, starvation, capacity.

import { expect } from "chai";
import { partitionName } from "../../../extproc/core/model/ids.js";
import { perClass } from "../../../extproc/core/model/priority.js";
import { GRANTS_PER_TURN, sumOf } from "../../../extproc/core/scheduler/admission.js";
import { pressure } from "../../../extproc/core/scheduler/pressure.js";
import { classReservations, scaleFloor } from "../../../extproc/core/scheduler/reservations.js";
import { ask, settings, SchedulerBench, SHIPPED_CLASSES } from "../../support/scheduler.js";
import { Scheduler } from "../../../extproc/core/scheduler/scheduler.js";

describe("Scheduler", () => {
  it("Q1 a queue of four refuses the fifth, keeps the order of arrival and reports its depth", () => {
    const bench = new SchedulerBench({ capacity: 0, queueSize: 4 });
    for (const request of ["a", "b", "c", "d"]) expect(bench.admit(request)).to.equal("queued");
    expect(bench.admit("e")).to.equal("queue_full");
    expect(bench.view().queued).to.deep.equal([0, 4, 0, 0]);
    bench.resize(10);
    expect(bench.granted).to.deep.equal(["a", "b", "c", "d"]);
    expect(sumOf(bench.view().queued)).to.equal(0);
  });

  it("Q2 three waiters that left one after the other are gone at once, and the live one is next", () => {
    const bench = new SchedulerBench({ capacity: 0 });
    for (const request of ["a", "b", "c", "live"]) bench.admit(request);
    for (const request of ["a", "b", "c"]) expect(bench.leave(request)).to.equal(true);
    expect(bench.leave("a")).to.equal(false);
    expect(bench.view().queued).to.deep.equal([0, 1, 0, 0]);
    bench.resize(1);
    expect(bench.granted).to.deep.equal(["live"]);
  });

  it("Q3 the classes share one budget of three: one lane may hold all of it, another waits for room", () => {
    const bench = new SchedulerBench({ capacity: 0, queueSize: 3 });
    for (const request of ["a", "b", "c"]) expect(bench.admit(request, "bulk")).to.equal("queued");
    expect(bench.admit("d", "interactive")).to.equal("queue_full");
    bench.leave("b");
    expect(bench.admit("d", "interactive")).to.equal("queued");
    expect(bench.view().queued).to.deep.equal([2, 0, 1, 0]);
  });

  it("Q4 a waiter that left frees its place, and 200 arrivals in one tick fill 64 places exactly", () => {
    const bench = new SchedulerBench({ capacity: 0, queueSize: 64 });
    const kinds = Array.from({ length: 200 }, (_, index) => bench.admit(String(index)));
    expect(kinds.filter((kind) => kind === "queued")).to.have.length(64);
    bench.leave("7");
    expect(bench.admit("late")).to.equal("queued");
    expect(bench.admit("later")).to.equal("queue_full");
  });

  it("E2 a partition of 64 among 8000 gives the default class 47 slots and refuses the 48th", () => {
    const reservations = perClass((rank) => ({
      floor: scaleFloor(SHIPPED_CLASSES[rank].reserved_floor, 64, 8_000),
      perSlot: SHIPPED_CLASSES[rank].reserved_per_slot,
    }));
    const reserved = classReservations(reservations, 64, 1);
    const bench = new SchedulerBench({ capacity: 64, queueSize: 0, reserved });
    const kinds = Array.from({ length: 48 }, (_, index) => bench.admit(String(index)));
    expect(kinds.filter((kind) => kind === "granted")).to.have.length(47);
    expect(kinds.at(-1)).to.equal("queue_full");
  });

  it("E3 at 200 slots bulk gets 20 and no 21st", () => {
    const reserved = [0, 20, 128, 32] as const;
    const bench = new SchedulerBench({ capacity: 200, queueSize: 0, reserved });
    const kinds = Array.from({ length: 21 }, (_, index) => bench.admit(String(index), "bulk"));
    expect(kinds.filter((kind) => kind === "granted")).to.have.length(20);
    expect(kinds.at(-1)).to.equal("queue_full");
  });

  it("E4 a permit gives its slot back once, and the next waiter is served", () => {
    const bench = new SchedulerBench({ capacity: 1 });
    bench.admit("a");
    bench.admit("b");
    bench.admit("c");
    bench.release("a");
    bench.release("a");
    expect(bench.granted).to.deep.equal(["b"]);
    expect(bench.view().in_flight).to.deep.equal([0, 1, 0, 0]);
  });

  it("E5 a free slot is granted at once; with one waiter in a queue of one the next is refused", () => {
    const bench = new SchedulerBench({ capacity: 1, queueSize: 1 });
    expect(bench.admit("a")).to.equal("granted");
    expect(bench.admit("b")).to.equal("queued");
    expect(bench.admit("c")).to.equal("queue_full");
  });

  it("E5 a wait of one second ends at one second, frees its place at once, and not a millisecond earlier", () => {
    const bench = new SchedulerBench({ capacity: 1, queueSize: 1, queueTimeoutSecs: 1 });
    bench.admit("a");
    bench.admit("b");
    expect(bench.wakes).to.include(1_000);
    bench.advance(999);
    expect(bench.timedOut).to.deep.equal([]);
    bench.advance(1);
    expect(bench.timedOut.map(({ request }) => request)).to.deep.equal(["b"]);
    expect(bench.admit("c")).to.equal("queued");
  });

  it("E6 Retry-After is 3 s with 20 waiting and 100 releases in 10 s, and 17 s without any turnover", () => {
    const bench = new SchedulerBench({ capacity: 100, queueSize: 20, queueTimeoutSecs: 17 });
    for (let index = 0; index < 100; index += 1) bench.admit(`first ${String(index)}`);
    for (let index = 0; index < 100; index += 1) bench.release(`first ${String(index)}`);
    for (let index = 0; index < 100; index += 1) bench.admit(`again ${String(index)}`);
    for (let index = 0; index < 20; index += 1) bench.admit(`w${String(index)}`);
    bench.advance(10_000);
    expect(bench.ask("x")).to.include({ kind: "queue_full", retryAfterS: 3 });
    const still = new SchedulerBench({ capacity: 1, queueSize: 0, queueTimeoutSecs: 17 });
    still.admit("a");
    still.advance(5_000);
    expect(still.ask("b")).to.include({ kind: "queue_full", retryAfterS: 17 });
  });

  it("E6 counts the waiters of its own class and of higher ones, not of lower ones", () => {
    const bench = new SchedulerBench({ capacity: 10, queueSize: 12, queueTimeoutSecs: 100 });
    for (let index = 0; index < 10; index += 1) bench.admit(`r${String(index)}`);
    for (let index = 0; index < 10; index += 1) bench.release(`r${String(index)}`);
    for (let index = 0; index < 10; index += 1) bench.admit(`s${String(index)}`);
    for (let index = 0; index < 6; index += 1) bench.admit(`b${String(index)}`, "bulk");
    for (let index = 0; index < 6; index += 1) bench.admit(`i${String(index)}`, "interactive");
    bench.advance(10_000);
    // One release per second: 6 ahead for interactive, 12 for bulk.
    expect(bench.ask("x", "interactive")).to.include({ kind: "queue_full", retryAfterS: 7 });
    expect(bench.ask("y", "bulk")).to.include({ kind: "queue_full", retryAfterS: 13 });
  });

  it("E7 the slot goes to the live waiter behind one that left, which never counts as admitted", () => {
    const bench = new SchedulerBench({ capacity: 1 });
    bench.admit("a");
    bench.admit("dead");
    bench.admit("live");
    bench.leave("dead");
    bench.release("a");
    expect(bench.granted).to.deep.equal(["live"]);
    expect(sumOf(bench.view().in_flight)).to.equal(1);
  });

  it("E8 a freed slot goes to interactive before bulk, whoever came first", () => {
    const bench = new SchedulerBench({ capacity: 1 });
    bench.admit("a");
    bench.admit("bulk", "bulk");
    bench.admit("default");
    bench.admit("interactive", "interactive");
    bench.admit("system", "system");
    for (const request of ["a", "system", "interactive", "default"]) bench.release(request);
    expect(bench.granted).to.deep.equal(["system", "interactive", "default", "bulk"]);
  });

  it("E9 bulk behind the only slot, kept for interactive, is promoted once it is starved, without any release", () => {
    const bench = new SchedulerBench({ capacity: 1, reserved: [0, 0, 1, 0], starvationSecs: 1 });
    expect(bench.admit("a", "bulk")).to.equal("queued");
    expect(bench.wakes).to.include(1_001);
    bench.advance(1_000);
    expect(bench.granted).to.deep.equal([]);
    bench.advance(1);
    expect(bench.granted).to.deep.equal(["a"]);
    expect(bench.permits.get("a")?.promoted).to.equal(true);
  });

  it("E9 is woken for a promotion also when the kept slot becomes free later", () => {
    const bench = new SchedulerBench({ capacity: 1, reserved: [0, 0, 1, 0], starvationSecs: 10 });
    bench.admit("i", "interactive");
    bench.admit("b", "bulk");
    bench.wakes.length = 0;
    bench.advance(2_000);
    bench.release("i");
    expect(bench.granted).to.deep.equal([]);
    expect(bench.wakes).to.include(10_001);
  });

  it("E10 growth serves a waiter; the same value again changes nothing; releases are served all the while", () => {
    const bench = new SchedulerBench({ capacity: 1 });
    bench.admit("a");
    bench.admit("b");
    bench.admit("c");
    bench.resize(2);
    expect(bench.granted).to.deep.equal(["b"]);
    bench.resize(2);
    expect(bench.granted).to.deep.equal(["b"]);
    bench.release("a");
    expect(bench.granted).to.deep.equal(["b", "c"]);
  });

  it("E10 a shrink below what is in flight takes nothing away and stops grants until it has drained", () => {
    const bench = new SchedulerBench({ capacity: 3 });
    for (const request of ["a", "b", "c"]) bench.admit(request);
    bench.admit("d");
    bench.resize(1);
    bench.release("a");
    bench.release("b");
    expect(bench.granted).to.deep.equal([]);
    bench.release("c");
    expect(bench.granted).to.deep.equal(["d"]);
  });

  it("E11 a permit released after its waiters and its partition's slots are gone returns its slot without error", () => {
    const bench = new SchedulerBench({ capacity: 2 });
    bench.admit("a");
    bench.resize(0);
    bench.release("a");
    expect(bench.view().in_flight).to.deep.equal([0, 0, 0, 0]);
  });

  it("E12 pressure is the larger of queue filling and slot use, capped at one", () => {
    const table = [
      [10, 8, 10, 100, 0.8],
      [50, 1, 10, 100, 0.5],
      [200, 100, 10, 100, 1],
      [0, 0, 0, 100, 0],
    ] as const;
    for (const [inFlight, depth, limit, capacity, expected] of table) {
      expect(pressure({ inFlight, depth, limit, capacity })).to.equal(expected);
    }
  });

  it("offers a request without a place to one step first: an idle slot serves it whatever the budget", () => {
    const bench = new SchedulerBench({ capacity: 1, queueSize: 0 });
    expect(bench.admit("a")).to.equal("granted");
    expect(bench.admit("b")).to.equal("queue_full");
    bench.permits.get("a")?.release();
    expect(bench.admit("c")).to.equal("granted");
  });

  it("serves the waiter that makes room before it refuses a newcomer", () => {
    const bench = new SchedulerBench({ capacity: 1, queueSize: 1 });
    bench.admit("a");
    bench.admit("b");
    bench.permits.get("a")?.release();
    expect(bench.admit("c")).to.equal("queued");
    expect(bench.granted).to.deep.equal(["b"]);
  });

  it("lets a higher class take a free slot past lower waiters that may not have it", () => {
    const bench = new SchedulerBench({ capacity: 2, reserved: [0, 0, 1, 0] });
    bench.admit("a", "bulk");
    expect(bench.admit("b", "bulk")).to.equal("queued");
    expect(bench.admit("c", "interactive")).to.equal("granted");
  });

  it("prefers the permit when slot and timeout fall on the same instant", () => {
    const bench = new SchedulerBench({ capacity: 1, queueTimeoutSecs: 30 });
    bench.admit("a");
    bench.admit("b");
    bench.permits.get("a")?.release();
    bench.now = 30_000 as typeof bench.now;
    bench.scheduler.dispatch(bench.now);
    bench.scheduler.expire(bench.now);
    expect([bench.granted, bench.timedOut]).to.deep.equal([["b"], []]);
  });

  it("grants at most 64 in one turn, says when there is more, and not when the turn was just enough", () => {
    const bench = new SchedulerBench({ capacity: 0, queueSize: 200 });
    for (let index = 0; index < 100; index += 1) bench.admit(String(index));
    bench.scheduler.setCapacities(new Map([[bench.view().name, 100]]));
    expect(bench.scheduler.dispatch(bench.now)).to.equal(true);
    expect(bench.granted).to.have.length(GRANTS_PER_TURN);
    expect(bench.scheduler.dispatch(bench.now)).to.equal(false);
    expect(bench.granted).to.have.length(100);
  });

  it("takes turns between partitions, so that one with many waiters cannot use up a whole turn", () => {
    const other = partitionName("other");
    const bench = new SchedulerBench(
      { name: partitionName("main"), capacity: 0, queueSize: 200 },
      { name: other, capacity: 0, queueSize: 200 },
    );
    for (let index = 0; index < 100; index += 1) bench.admit(`m${String(index)}`);
    for (let index = 0; index < 3; index += 1) bench.admit(`o${String(index)}`, "default", other);
    bench.scheduler.setCapacities(
      new Map([
        [partitionName("main"), 100],
        [other, 100],
      ]),
    );
    bench.scheduler.dispatch(bench.now);
    expect(bench.granted.slice(0, 6)).to.deep.equal(["m0", "o0", "m1", "o1", "m2", "o2"]);
  });

  it("ends everybody's waiting at once when told to", () => {
    const bench = new SchedulerBench({ capacity: 0 });
    for (const name of ["bulk", "default", "interactive", "system"] as const)
      bench.admit(name, name);
    bench.scheduler.expire(bench.now, true);
    expect(bench.timedOut).to.have.length(4);
    expect(bench.scheduler.queued).to.equal(0);
  });

  it("refuses a partition nobody configured as a fault of the caller", () => {
    const listener = {
      onGranted: () => undefined,
      onTimedOut: () => undefined,
      onDisplaced: () => undefined,
      onPreempted: () => undefined,
      onWake: () => undefined,
    };
    const bench = new SchedulerBench({ capacity: 1 });
    const scheduler = new Scheduler<string>(
      [settings({ capacity: 1 })],
      new Map(),
      undefined,
      listener,
      bench.now,
    );
    expect(() => scheduler.admit(ask("a", 1, partitionName("nowhere")), bench.now)).to.throw(
      /nowhere/,
    );
  });
});

describe("starvation", () => {
  const contested = {
    capacity: 1,
    queueSize: 500,
    starvationSecs: [1, 1_000_000, 1_000_000, 1_000_000] as const,
  };

  /** Serves `count` requests one after the other under a constant supply of both classes. */
  function serve(bench: SchedulerBench, count: number): string[] {
    for (let index = 0; index < count; index += 1) {
      const running = bench.granted.at(-1) ?? "first";
      bench.release(running);
    }
    return bench.granted;
  }

  function overloaded(starvationMaxShare: number): SchedulerBench {
    const bench = new SchedulerBench({ ...contested, starvationMaxShare });
    bench.admit("first");
    for (let index = 0; index < 200; index += 1) bench.admit(`b${String(index)}`, "bulk");
    for (let index = 0; index < 200; index += 1) bench.admit(`s${String(index)}`, "system");
    bench.advance(2_000);
    return bench;
  }

  it("lets a starved lane have at most 16 of 64 dispatches while a higher class waits", () => {
    const order = serve(overloaded(0.25), 128);
    const bulk = (from: number): number =>
      order.slice(from, from + 64).filter((request) => request.startsWith("b")).length;
    for (let from = 0; from + 64 <= 128; from += 1) expect(bulk(from)).to.be.at.most(16);
    expect(bulk(64)).to.equal(16);
  });

  it("gives every slot to the starved lane when the bound is switched off", () => {
    const order = serve(overloaded(1), 64);
    expect(order.every((request) => request.startsWith("b"))).to.equal(true);
  });

  it("never promotes at a share of zero while a higher class waits", () => {
    const order = serve(overloaded(0), 64);
    expect(order.every((request) => request.startsWith("s"))).to.equal(true);
  });

  it("promotes without limit and without counting where no higher class could have the slot", () => {
    const bench = new SchedulerBench({
      capacity: 1,
      queueSize: 500,
      reserved: [0, 0, 1, 0],
      starvationSecs: 1,
      starvationMaxShare: 0,
    });
    for (let index = 0; index < 100; index += 1) bench.admit(`b${String(index)}`, "bulk");
    bench.advance(1_001);
    for (let index = 0; index < 99; index += 1) bench.release(`b${String(index)}`);
    expect(bench.granted).to.have.length(100);
  });

  it("serves the starved lane with the fewest promotions first, the lower class on a tie", () => {
    const bench = new SchedulerBench({
      capacity: 1,
      queueSize: 500,
      starvationSecs: [1, 1, 1_000_000, 1_000_000],
    });
    bench.admit("first");
    for (let index = 0; index < 20; index += 1) {
      bench.admit(`b${String(index)}`, "bulk");
      bench.admit(`d${String(index)}`, "default");
      bench.admit(`s${String(index)}`, "system");
    }
    bench.advance(1_001);
    const order = serve(bench, 4);
    expect(order).to.deep.equal(["b0", "d0", "b1", "d1"]);
  });
});

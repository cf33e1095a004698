// Who holds the one place for a seed? Every condition of taking a lease and of keeping it, each broken on
// its own.

import { expect } from "chai";
import { modelId, partitionName, type PartitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import {
  LEASE_FAULTS,
  LEASE_REFUSALS,
  Leases,
  type Lease,
  type LeaseGrant,
  type LeaseTarget,
} from "../../../extproc/core/seeding/lease.js";
import { DEMO, POOL, url } from "../selection/support.js";
import { free, r, SeedBench } from "./support.js";

const OTHER = partitionName("other");

function idle(slots = 5, options: ConstructorParameters<typeof SeedBench>[0] = {}): SeedBench {
  const bench = new SeedBench(options);
  bench.room([free(slots), free(slots), free(slots)]);
  return bench;
}

function acquire(
  bench: SeedBench,
  target: LeaseTarget,
  partition: PartitionName = POOL,
  model = DEMO,
): LeaseGrant {
  return bench.seeder.leases.acquire({ target, partition, model }, bench.now);
}

function acquired(bench: SeedBench, target = bench.target(1)): Lease {
  const grant = acquire(bench, target);
  if (!grant.ok) throw new Error(grant.refusal);
  return grant.lease;
}

function refusal(grant: LeaseGrant): string {
  return grant.ok ? "granted" : grant.refusal;
}

/** Urls and revisions of the workers that are leased. */
function active(bench: SeedBench): string[] {
  return bench.seeder.explain(bench.now).leases.map((one) => `${one.url} ${String(one.revision)}`);
}

describe("leases", () => {
  it("S-1 gives one worker to one of 8 in one step, and one partition to one of 3", () => {
    const bench = idle();
    const target = bench.target(1);
    const grants = Array.from({ length: 8 }, () => acquire(bench, target));
    expect(grants.map(refusal)).to.deep.equal([
      "granted",
      ...Array.from({ length: 7 }, () => "partition_taken"),
    ]);
    for (const grant of grants) if (grant.ok) grant.lease.release();
    const targets = bench.targets();
    const each = targets.map((one) => acquire(bench, one));
    expect(each.map(refusal)).to.deep.equal(["granted", "partition_taken", "partition_taken"]);
    expect(bench.seeder.leases.count(POOL)).to.equal(1);
  });

  it("S-2 takes the last place of a worker, shows it full meanwhile, and gives it back", () => {
    const bench = idle(1);
    const lease = acquired(bench);
    expect(lease.verify(bench.now)).to.equal(undefined);
    expect(active(bench)).to.deep.equal([`${url(1)} 1`]);
    expect(bench.slots()).to.equal("w0 0, w1 0, w2 0");
    expect(bench.targets().map(({ block }) => block)).to.deep.equal(
      Array.from({ length: 3 }, () => "seed_under_way"),
    );
    lease.release();
    expect([active(bench), bench.slots()]).to.deep.equal([[], "w0 1, w1 1, w2 1"]);
    expect(refusal(acquire(bench, bench.target(1)))).to.equal("granted");
  });

  it("S-3 does not take the worker that replaced the one of the snapshot", () => {
    const bench = idle();
    const target = bench.target(1);
    bench.add({ url: url(1) });
    expect(refusal(acquire(bench, target))).to.equal("worker_replaced");
    bench.room([free(5), free(5), free(5)]);
    expect(refusal(acquire(bench, target))).to.equal("worker_replaced");
    // Removed and registered anew, it has the revision of the first one and is another all the same.
    bench.registry.remove(url(1));
    bench.add({ url: url(1) });
    expect(bench.worker(1).identity.revision).to.equal(target.worker.identity.revision);
    expect(refusal(acquire(bench, target))).to.equal("worker_replaced");
    expect(bench.seeder.leases.count(POOL)).to.equal(0);
  });

  it("S-4 is void when its worker is replaced, also when the new one reports the same", () => {
    const bench = idle();
    const lease = acquired(bench);
    bench.add({ url: url(1) });
    expect(lease.verify(bench.now)).to.equal("worker_replaced");
    bench.room([free(5), free(5), free(5)]);
    expect(lease.verify(bench.now)).to.equal("worker_replaced");
  });

  it("S-5 is void when its engine has reported anew, and not when it repeats itself", () => {
    const bench = idle();
    const token = { kind: "timestamp" as const, value: "noon" };
    bench.room([free(5), free(5), free(5)], { token });
    const lease = acquired(bench);
    bench.room([free(5), free(5), free(5)], { token });
    expect(lease.verify(bench.now)).to.equal(undefined);
    bench.room([free(5), free(5), free(5)]);
    expect(lease.verify(bench.now)).to.equal("record_changed");
  });

  it("S-6 does not take a worker that became unusable after the snapshot", () => {
    const bench = idle();
    const target = bench.target(1);
    bench.registry.recordHealth(url(1), false);
    expect(refusal(acquire(bench, target))).to.equal("worker_unusable");
  });

  it("asks everything of the snapshot again, and says what speaks against it", () => {
    const cases: [string, (bench: SeedBench, target: LeaseTarget) => LeaseGrant][] = [
      ["no_slots", (bench, target) => acquire(bench, { ...target, slots: 0 })],
      ["disabled", (bench, target) => acquire(bench, target, OTHER)],
      ["model_not_served", (bench, target) => acquire(bench, target, POOL, modelId("alias"))],
      [
        "worker_claimed",
        (bench, target) => {
          bench.selector.bookings.claim(target.worker, POOL, DEMO);
          return acquire(bench, target);
        },
      ],
      [
        "worker_leased",
        (bench, target) => {
          bench.selector.bookings.holdLease(target.worker, POOL, DEMO);
          return acquire(bench, target);
        },
      ],
      [
        "record_lost",
        (bench, target) => {
          bench.passSeconds(31);
          return acquire(bench, target);
        },
      ],
      [
        "record_lost",
        (bench, target) => {
          bench.room([free(5), undefined, free(5)]);
          return acquire(bench, target);
        },
      ],
      [
        "record_changed",
        (bench, target) => {
          bench.room([free(5), free(5), free(5)]);
          return acquire(bench, target);
        },
      ],
      [
        "not_clean",
        (bench) => {
          bench.room([free(5), r(0, 1, 0.1, 0.1, 5), free(5)]);
          return acquire(bench, { ...bench.target(1), slots: 5 });
        },
      ],
      [
        "full",
        (bench, target) => {
          bench.load(1, 5);
          return acquire(bench, target);
        },
      ],
    ];
    for (const [expected, run] of cases) {
      const bench = idle();
      expect(refusal(run(bench, bench.target(1)))).to.equal(expected);
      expect(LEASE_REFUSALS).to.include(expected);
      expect(bench.seeder.leases.count(POOL)).to.equal(0);
    }
  });

  it("does not take a worker of another partition, though that one seeds too", () => {
    const bench = idle(5, {
      workers: [{ url: url(0) }, { url: url(1), partition: OTHER }],
      rules: { partitions: new Set([POOL, OTHER]) },
    });
    const [target] = bench.seeder.headroom.snapshot(OTHER, DEMO, bench.now);
    expect(target).not.to.equal(undefined);
    if (target === undefined) return;
    expect(refusal(acquire(bench, target, POOL))).to.equal("model_not_served");
    expect(refusal(acquire(bench, target, OTHER))).to.equal("granted");
    // The cap is each partition's own.
    expect(refusal(acquire(bench, bench.target(0), POOL))).to.equal("granted");
  });

  it("is verified as long as all of that stays as it was, and voided by each change", () => {
    const cases: [string | undefined, (bench: SeedBench, lease: Lease) => void][] = [
      [undefined, () => undefined],
      // One place is left, and it is this lease's own.
      [
        undefined,
        (bench) => {
          bench.load(1, 4);
        },
      ],
      [
        "full",
        (bench) => {
          bench.load(1, 5);
        },
      ],
      [
        "worker_unusable",
        (bench) => {
          bench.registry.recordHealth(url(1), false);
        },
      ],
      ["worker_replaced", (bench) => void bench.registry.remove(url(1))],
      [
        "lease_lost",
        (_, lease) => {
          lease.release();
        },
      ],
      [
        "record_lost",
        (bench) => {
          bench.passSeconds(31);
        },
      ],
      [
        "record_changed",
        (bench) => {
          bench.room([free(5), free(5), free(5)]);
        },
      ],
      [
        "record_lost",
        (bench) => {
          bench.room([free(5), undefined, free(5)]);
        },
      ],
    ];
    for (const [expected, change] of cases) {
      const bench = idle();
      const lease = acquired(bench);
      change(bench, lease);
      expect(lease.verify(bench.now)).to.equal(expected);
      if (expected !== undefined) expect(LEASE_FAULTS).to.include(expected);
    }
  });

  it("is void when another lease has taken its place, and the other one is not", () => {
    const bench = idle();
    const first = acquired(bench);
    first.release();
    const second = acquired(bench);
    expect([first.verify(bench.now), second.verify(bench.now)]).to.deep.equal([
      "lease_lost",
      undefined,
    ]);
  });

  it("is given back once: a late second release leaves a newer lease alone", () => {
    const bench = idle();
    const first = acquired(bench);
    first.release();
    const second = acquired(bench);
    first.release();
    expect([second.verify(bench.now), bench.seeder.leases.count(POOL)]).to.deep.equal([
      undefined,
      1,
    ]);
    second.release();
    second.release();
    expect([bench.seeder.leases.count(POOL), bench.selector.bookings.size]).to.deep.equal([0, 0]);
  });

  it("keeps its partition when its worker is removed, and never touches a successor of it", () => {
    const bench = idle();
    const lease = acquired(bench);
    bench.registry.remove(url(1));
    bench.add({ url: url(1) });
    bench.room([free(5), free(5), free(5)]);
    expect([lease.verify(bench.now), bench.seeder.leases.count(POOL)]).to.deep.equal([
      "worker_replaced",
      1,
    ]);
    expect(bench.targets().every(({ slots }) => slots === 0)).to.equal(true);
    lease.release();
    const { generation } = bench.worker(1).identity;
    const successor = acquired(bench, bench.targets()[1]);
    lease.release();
    expect(successor.verify(bench.now)).to.equal(undefined);
    expect(bench.selector.bookings.leaseOf(generation)?.identity.generation).to.equal(generation);
  });

  it("is void when seeding is switched off under it, and when pressure rises in the same sample", () => {
    const bench = idle();
    const lease = acquired(bench);
    const { fleet, rules } = { fleet: { registry: bench.registry }, rules: bench.seeder.rules };
    expect(lease.verify(bench.now)).to.equal(undefined);
    const partitions = new Set([POOL]);
    const switched = { ...rules, partitions };
    const record = bench.target(2).record;
    let pressure = 0.1;
    const leases = new Leases({
      fleet: { ...fleet, partitionOf: () => POOL },
      rules: switched,
      bookings: bench.selector.bookings,
      headroom: { record: () => ({ ok: true, record: { ...record, pressure } }) },
    });
    const grant = leases.acquire(
      { target: bench.target(2), partition: POOL, model: DEMO },
      bench.now,
    );
    expect(refusal(grant)).to.equal("no_slots");
    lease.release();
    const held = leases.acquire(
      { target: bench.target(2), partition: POOL, model: DEMO },
      monotonicMs(bench.now),
    );
    if (!held.ok) throw new Error(held.refusal);
    pressure = 0.9;
    expect(held.lease.verify(bench.now)).to.equal("not_clean");
    partitions.clear();
    expect(held.lease.verify(bench.now)).to.equal("disabled");
  });
});

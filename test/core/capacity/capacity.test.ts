import { expect } from "chai";
import fc from "fast-check";
import { globalCapacity } from "../../../extproc/core/capacity/global-capacity.js";
import { fleetCapacity } from "../../../extproc/core/capacity/partition-capacity.js";
import { splitByWeight } from "../../../extproc/core/capacity/partition-split.js";
import { partitionRules } from "../../../extproc/core/identity/partition.js";
import type { PartitionConfig, SchedulerConfig } from "../../../extproc/core/model/config.js";
import { partitionName, type PartitionName } from "../../../extproc/core/model/ids.js";
import { testConfig } from "../../support/config.js";
import { healthyRegistry, type WorkerSketch } from "../../support/workers.js";

const weights = (entries: Record<string, number>): Map<PartitionName, number> =>
  new Map(Object.entries(entries).map(([name, weight]) => [partitionName(name), weight]));

const plain = (shares: ReadonlyMap<PartitionName, number>): Record<string, number> =>
  Object.fromEntries(shares);

describe("globalCapacity", () => {
  const cases: readonly {
    readonly title: string;
    readonly ceilings: readonly (number | undefined)[];
    readonly max: number | undefined;
    readonly slots: number;
  }[] = [
    { title: "no healthy worker and no limit", ceilings: [], max: undefined, slots: 1024 },
    { title: "no healthy worker and a limit", ceilings: [], max: 24, slots: 24 },
    { title: "all report", ceilings: [8, 8, 8], max: undefined, slots: 24 },
    {
      title: "one of three reports nothing",
      ceilings: [8, undefined, 8],
      max: undefined,
      slots: 80,
    },
    { title: "workers below the limit lower it", ceilings: [8], max: 24, slots: 8 },
    { title: "workers above the limit do not raise it", ceilings: [512], max: 256, slots: 256 },
    {
      title: "the sum stays a 16-bit number",
      ceilings: [65_535, 1],
      max: undefined,
      slots: 65_535,
    },
  ];
  for (const { title, ceilings, max, slots } of cases) {
    it(`${title}: ${String(slots)} slots`, () => {
      const reported = ceilings.filter((ceiling) => ceiling !== undefined);
      const sum = reported.reduce((left, right) => left + right, 0);
      const reporting = reported.length;
      expect(globalCapacity({ healthy: ceilings.length, reporting, reported: sum }, max)).to.equal(
        slots,
      );
    });
  }
});

describe("splitByWeight", () => {
  it("P1 splits by largest remainder: weights 1, 2, 7 into 10 and into 5", () => {
    const three = weights({ default: 1, dsv4: 2, "kimi-k3": 7 });
    expect(plain(splitByWeight(three, 10))).to.deep.equal({ default: 1, dsv4: 2, "kimi-k3": 7 });
    // 0.5, 1, 3.5: the two halves tie, and the smaller name gets the slot that is left.
    expect(plain(splitByWeight(three, 5))).to.deep.equal({ default: 1, dsv4: 1, "kimi-k3": 3 });
  });

  it("gives nobody a slot when no weight is above zero", () => {
    expect(plain(splitByWeight(weights({ a: 0, b: 0 }), 9))).to.deep.equal({ a: 0, b: 0 });
  });

  it("hands out every slot, none beyond the rounded-up share, whatever the order of the map", () => {
    const names = ["a", "b", "c", "d", "e"];
    fc.assert(
      fc.property(
        fc.array(fc.nat(500), { minLength: 5, maxLength: 5 }),
        fc.nat(65_535),
        (values, total) => {
          const entries = names.map((name, index) => [name, values[index] ?? 0] as const);
          const sum = values.reduce((left, right) => left + right, 0);
          const shares = splitByWeight(weights(Object.fromEntries(entries)), total);
          const reversed = splitByWeight(
            weights(Object.fromEntries([...entries].reverse())),
            total,
          );
          const handedOut = [...shares.values()].reduce((left, right) => left + right, 0);
          expect(handedOut).to.equal(sum === 0 ? 0 : total);
          for (const [name, weight] of entries) {
            const share = shares.get(partitionName(name)) ?? -1;
            expect(reversed.get(partitionName(name))).to.equal(share);
            if (sum === 0) continue;
            expect(share).to.be.within(
              Math.floor((weight * total) / sum),
              Math.ceil((weight * total) / sum),
            );
          }
        },
      ),
    );
  });
});

describe("fleetCapacity", () => {
  const base = testConfig().scheduler;

  function scheduler(
    names: readonly string[],
    partition: Partial<PartitionConfig>,
    max: number | undefined,
  ): SchedulerConfig {
    const config = {
      max_concurrent_requests: undefined,
      max_concurrent_requests_per_healthy_replica: undefined,
      queue_size: 1,
      ...partition,
    };
    return {
      ...base,
      max_concurrent_requests: max,
      admission_partitions: new Map(names.map((name) => [partitionName(name), config])),
      default_admission_partition: partitionName("default"),
    };
  }

  const NAMES = ["kimi", "private", "dsv4", "default"];

  function fleet(
    config: SchedulerConfig,
    sketches: readonly Omit<WorkerSketch, "url">[],
  ): { readonly slots: Record<string, number>; readonly replicas: Record<string, number> } {
    const workers = healthyRegistry(
      sketches.map((sketch, index) => ({
        ...sketch,
        url: `http://127.0.0.1:${String(index + 1)}`,
      })),
    );
    const capacity = fleetCapacity(config, partitionRules(config), workers.all());
    return { slots: plain(capacity.partitions), replicas: plain(capacity.healthyReplicas) };
  }

  const kimi = { models: ["kimi"] };
  const dsv4 = { models: ["dsv4"] };

  it("P3 100 per replica: 3 kimi, 1 labelled private, 1 dsv4 of 500 give 300, 100, 100 and none", () => {
    const config = scheduler(NAMES, { max_concurrent_requests_per_healthy_replica: 100 }, 500);
    // Each reports 100, so that the fleet carries the 500.
    const reporting = [kimi, kimi, kimi, { ...kimi, partition: "private" }, dsv4].map((worker) => ({
      ...worker,
      ceiling: 100,
    }));
    const seen = fleet(config, reporting);
    expect(seen.slots).to.deep.equal({ kimi: 300, private: 100, dsv4: 100, default: 0 });
    expect(seen.replicas).to.deep.equal({ kimi: 3, private: 1, dsv4: 1 });
  });

  it("P4 follows what the replicas report: 64 and 64 for kimi, 256 for dsv4 give 128, 256 and none", () => {
    const config = scheduler(["kimi", "dsv4", "default"], {}, 384);
    const { slots } = fleet(config, [
      { ...kimi, ceiling: 64 },
      { ...kimi, ceiling: 64 },
      { ...dsv4, ceiling: 256 },
    ]);
    expect(slots).to.deep.equal({ kimi: 128, dsv4: 256, default: 0 });
  });

  it("P4 scales the mean of those that report to all replicas of the partition", () => {
    const config = scheduler(["kimi", "default"], {}, 1_000);
    const { slots } = fleet(config, [{ ...kimi, ceiling: 30 }, { ...kimi, ceiling: 31 }, kimi]);
    // floor(61 x 3 / 2) = 91.
    expect(slots).to.deep.equal({ kimi: 91, default: 0 });
  });

  it("P5 counts a worker of a model without a partition to the default one, with 64 assumed slots", () => {
    const config = scheduler(["kimi", "default"], {}, undefined);
    expect(fleet(config, [{ models: ["other"] }]).slots).to.deep.equal({ kimi: 0, default: 64 });
  });

  it("P6 3 per replica of 9 in all: none for an empty fleet, then kimi 7, then private exactly 2", () => {
    const config = scheduler(NAMES, { max_concurrent_requests_per_healthy_replica: 3 }, 9);
    expect(fleet(config, []).slots).to.deep.equal({ kimi: 0, private: 0, dsv4: 0, default: 0 });
    expect(fleet(config, [kimi, kimi, kimi, dsv4]).slots).to.include({ kimi: 7, dsv4: 2 });
    const relabelled = fleet(config, [kimi, kimi, { ...kimi, partition: "private" }, dsv4]);
    expect(relabelled.slots).to.include({ private: 2 });
  });

  it("P8 a worker that reports 512 is held to the configured 256, and the only worker reporting 1 gives 1", () => {
    const config = scheduler(["kimi", "default"], { max_concurrent_requests: 256 }, 256);
    const one = {
      ...config,
      admission_partitions: new Map([
        [partitionName("default"), config.admission_partitions.get(partitionName("kimi"))],
      ]),
    } as SchedulerConfig;
    expect(fleet(one, [{ ...kimi, ceiling: 512 }]).slots).to.deep.equal({ default: 256 });
    expect(fleet(one, [{ ...kimi, ceiling: 1 }]).slots).to.deep.equal({ default: 1 });
  });

  it("counts healthy workers only, and a worker of several models where its first model belongs", () => {
    const config = scheduler(NAMES, { max_concurrent_requests_per_healthy_replica: 10 }, 500);
    const workers = healthyRegistry([
      { url: "http://127.0.0.1:1", models: ["kimi", "dsv4"] },
      { url: "http://127.0.0.1:2", models: ["dsv4"] },
    ]);
    const slots = (): Record<string, number> =>
      plain(fleetCapacity(config, partitionRules(config), workers.all()).partitions);
    expect(slots()).to.include({ kimi: 10, dsv4: 10 });
    workers.recordHealth("http://127.0.0.1:2", false);
    workers.recordHealth("http://127.0.0.1:2", false);
    expect(slots()).to.include({ kimi: 10, dsv4: 0 });
  });

  it("splits what is there when static partitions ask for more than the workers carry", () => {
    const config = scheduler(["a", "b", "default"], { max_concurrent_requests: 10 }, 30);
    expect(fleet(config, [{ models: ["a"], ceiling: 6 }]).slots).to.deep.equal({
      a: 2,
      b: 2,
      default: 2,
    });
  });
});

import { expect } from "chai";
import fc from "fast-check";
import { globalCapacity } from "../../../extproc/core/capacity/global-capacity.js";
import { splitByWeight } from "../../../extproc/core/capacity/partition-split.js";
import { partitionName, type PartitionName } from "../../../extproc/core/model/ids.js";

const weights = (entries: Record<string, number>): Map<PartitionName, number> =>
  new Map(Object.entries(entries).map(([name, weight]) => [partitionName(name), weight]));

const plain = (shares: Map<PartitionName, number>): Record<string, number> =>
  Object.fromEntries(shares);

describe("globalCapacity", () => {
  const cases: {
    readonly title: string;
    readonly ceilings: (number | undefined)[];
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
      expect(globalCapacity(ceilings, max)).to.equal(slots);
    });
  }
});

describe("splitByWeight", () => {
  it("splits by largest remainder: weights 1, 2, 7 into 10 and into 5", () => {
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

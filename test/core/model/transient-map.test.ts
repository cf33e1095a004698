import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect } from "chai";
import fc from "fast-check";
import { TransientMap } from "../../../extproc/core/model/transient-map.js";

describe("TransientMap", () => {
  it("says the same as a Map after any steps", () => {
    const key = fc.nat(40);
    const step = fc.oneof(
      { weight: 10, arbitrary: fc.record({ kind: fc.constant("set" as const), key }) },
      { weight: 9, arbitrary: fc.record({ kind: fc.constant("delete" as const), key }) },
      fc.record({ kind: fc.constant("clear" as const), key }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 400 }), (steps) => {
        const naive = new Map<number, number>();
        const map = new TransientMap<number, number>();
        for (const [value, { kind, key }] of steps.entries()) {
          if (kind === "set") {
            naive.set(key, value);
            map.set(key, value);
          } else if (kind === "delete") {
            expect(map.delete(key)).to.equal(naive.delete(key));
          } else if (value % 10 === 0) {
            naive.clear();
            map.clear();
          }
          expect([map.size, map.has(key), map.get(key)]).to.deep.equal([
            naive.size,
            naive.has(key),
            naive.get(key),
          ]);
          expect([map.keys(), map.values()]).to.deep.equal([
            [...naive.keys()],
            [...naive.values()],
          ]);
        }
      }),
    );
  });

  it("gives what it handed out before no changes that come after", () => {
    const map = new TransientMap<string, number>();
    map.set("a", 1);
    const [keys, values] = [map.keys(), map.values()];
    map.clear();
    expect([keys, values, map.size]).to.deep.equal([["a"], [1], 0]);
  });

  // A Map fails this by megabytes: its dead tables hold values until the next full collection.
  it("lets what has passed through it be collected young, however old it is itself", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as (options?: { type: "minor" }) => void;
    const map = new TransientMap<number, readonly number[]>();
    let next = 0;
    const pass = (count: number): void => {
      for (let passed = 0; passed < count; passed += 1) {
        map.set(next, new Array<number>(125).fill(next));
        map.delete(next - 10);
        next += 1;
      }
    };
    pass(100);
    // Twice, so that the map and its table are of the old generation.
    collect();
    collect();
    const before = oldBytes();
    for (let round = 0; round < 10; round += 1) {
      pass(1_000);
      collect({ type: "minor" });
    }
    expect(oldBytes() - before).to.be.below(1_000_000);
  });
});

function oldBytes(): number {
  const old = getHeapSpaceStatistics().find(({ space_name }) => space_name === "old_space");
  return old?.space_used_size ?? NaN;
}

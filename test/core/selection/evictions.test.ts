import { expect } from "chai";
import { testHasher } from "../../support/prefix-hasher.js";
import { modelId } from "../../../extproc/core/model/ids.js";
import { monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import type { BlockKeys } from "../../../extproc/core/prefixes/block-keys.js";
import { Evictions, type CacheReport } from "../../../extproc/core/selection/evictions.js";

const BLOCK_TOKENS = 16;
const hasher = testHasher();
const keys = (text: string): BlockKeys => hasher.text(modelId("demo"), text, 4, 8);
const miss: CacheReport = { promptTokens: 1_024, cachedTokens: 15 };

describe("Evictions", () => {
  /** Reports on prompts a, b, c, ... whose holdings are 100 ms older than the one before. */
  function proofs(reports: readonly (readonly [prompt: string, report: CacheReport])[]): unknown[] {
    const evictions = new Evictions(BLOCK_TOKENS);
    return reports.map(([prompt, report], index) =>
      evictions.reported(1, keys(`${prompt}${prompt}${prompt}${prompt}`), at(index), report),
    );
  }
  const at = (index: number): MonotonicMs => monotonicMs(10_000 - 100 * index);

  it("takes three misses in a row on different prompts, and the latest of the missed successes", () => {
    expect(
      proofs([
        ["a", miss],
        ["b", miss],
        ["c", miss],
        ["d", miss],
      ]),
    ).to.deep.equal([undefined, undefined, at(0), undefined]);
    expect(
      proofs([
        ["a", miss],
        ["a", miss],
        ["b", miss],
        ["a", miss],
        ["c", miss],
      ]),
    ).to.deep.equal([undefined, undefined, undefined, undefined, at(0)]);
  });

  it("begins anew after a hit, which is one whole block", () => {
    const hit: CacheReport = { promptTokens: 20, cachedTokens: 16 };
    expect(
      proofs([
        ["a", miss],
        ["b", miss],
        ["d", hit],
        ["c", miss],
      ]),
    ).to.deep.equal(new Array(4).fill(undefined));
  });

  it("does not count answers that do not report, and prompts too short to tell", () => {
    for (const report of [
      { promptTokens: 2_000, cachedTokens: undefined },
      { promptTokens: undefined, cachedTokens: 0 },
      { promptTokens: 1_023, cachedTokens: 0 },
    ]) {
      expect(
        proofs([
          ["a", miss],
          ["b", miss],
          ["c", report],
        ]),
      ).to.deep.equal(new Array(3).fill(undefined));
    }
  });

  it("keeps workers apart, and forgets one that has left", () => {
    const evictions = new Evictions(BLOCK_TOKENS);
    const report = (generation: number, prompt: string): unknown =>
      evictions.reported(generation, keys(prompt.repeat(4)), at(0), miss);
    report(1, "a");
    report(1, "b");
    expect(report(2, "c")).to.equal(undefined);
    evictions.forget(1);
    expect(report(1, "c")).to.equal(undefined);
  });
});

import { expect } from "chai";
import { KvCache } from "../../envoy/mock-worker/kv-cache.js";

const cacheOf = (capacityBlocks: number): KvCache => new KvCache({ capacityBlocks, blockChars: 4 });

/** Runs one prompt to its end: held, computed, released. Returns its cached blocks. */
function run(cache: KvCache, prompt: string, outputTokens = 0): number | undefined {
  const hold = cache.tryHold(cache.plan([prompt], outputTokens));
  if (hold === undefined) return undefined;
  cache.publish(hold);
  cache.release(hold);
  return hold.hitBlocks[0];
}

describe("KvCache", () => {
  it("finds the longest equal beginning in whole blocks", () => {
    const cache = cacheOf(100);
    expect(run(cache, "aaaabbbbccccd")).to.equal(0);
    expect(run(cache, "aaaabbbbXXXXd")).to.equal(2);
    expect(cache.hitBlocks).to.equal(2);
    expect(cache.queriedBlocks).to.equal(6);
  });

  it("does not match the same block behind another beginning", () => {
    const cache = cacheOf(100);
    run(cache, "aaaabbbbc");
    expect(run(cache, "bbbbaaaac")).to.equal(0);
  });

  it("never takes a whole prompt from the cache: the last token is computed", () => {
    const cache = cacheOf(100);
    run(cache, "aaaabbbb");
    expect(run(cache, "aaaabbbb")).to.equal(1);
  });

  it("does not share a prompt that is still being computed", () => {
    const cache = cacheOf(100);
    const first = cache.tryHold(cache.plan(["aaaabbbbc"], 0));
    const second = cache.tryHold(cache.plan(["aaaabbbbc"], 0));
    expect(second?.hitBlocks).to.deep.equal([0]);
    if (first === undefined || second === undefined) throw new Error("no room");
    // Three blocks each; once both are computed they share the two full ones.
    expect(cache.usedBlocks).to.equal(6);
    cache.publish(first);
    cache.publish(second);
    expect(cache.usedBlocks).to.equal(4);
    cache.release(first);
    cache.release(second);
    expect(cache.usedBlocks).to.equal(0);
    expect(cache.cachedBlocks).to.equal(2);
  });

  it("evicts the longest unused prompt first, its last block before its first", () => {
    const cache = cacheOf(6);
    run(cache, "aaaaAAAAx"); // 3 blocks, 2 remembered
    run(cache, "bbbbBBBBx"); // 2 more remembered
    expect(cache.evictions).to.equal(0);
    // Needs 3 of 6 blocks while 4 are remembered: one goes, the last of "a".
    run(cache, "ccccCCCCx");
    expect(cache.evictions).to.equal(1);
    expect(run(cache, "aaaaAAAAx")).to.equal(1);
    expect(run(cache, "ccccCCCCx")).to.equal(2);
  });

  it("gives no room while running requests hold it, also not by evicting", () => {
    const cache = cacheOf(4);
    const first = cache.tryHold(cache.plan(["aaaabbbbc"], 0));
    if (first === undefined) throw new Error("no room");
    expect(cache.tryHold(cache.plan(["xxxxyyyyz"], 0))).to.equal(undefined);
    expect(cache.usedBlocks).to.equal(3);
    cache.release(first);
    expect(cache.tryHold(cache.plan(["xxxxyyyyz"], 0))).not.to.equal(undefined);
  });

  it("reserves room for the output", () => {
    const cache = cacheOf(8);
    // One prompt block and 3 tokens of 4 characters: 4 blocks.
    cache.tryHold(cache.plan(["abcd"], 3));
    expect(cache.usedBlocks).to.equal(4);
  });

  it("gives a request larger than the cache the whole cache and nothing more", () => {
    const cache = cacheOf(3);
    const hold = cache.tryHold(cache.plan(["a".repeat(100)], 50));
    if (hold === undefined) throw new Error("no room");
    expect(cache.usedBlocks).to.equal(3);
    cache.publish(hold);
    cache.release(hold);
    expect(cache.usedBlocks).to.equal(0);
    expect(cache.cachedBlocks).to.equal(3);
  });

  it("forgets unused blocks on flush and keeps those in use", () => {
    const cache = cacheOf(100);
    run(cache, "aaaabbbbc");
    const hold = cache.tryHold(cache.plan(["aaaaX"], 0));
    cache.flush();
    expect(hold?.hitBlocks).to.deep.equal([1]);
    expect(cache.cachedBlocks).to.equal(1);
  });
});

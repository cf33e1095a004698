// What names a prefix: equal keys exactly for equal beginnings, whatever stands where.

import { testHasher } from "../../support/prefix-hasher.js";
import { createCipheriv } from "node:crypto";
import { expect } from "chai";
import fc from "fast-check";
import { modelId } from "../../../extproc/core/model/ids.js";
import { prefixId, type BlockKeys } from "../../../extproc/core/prefixes/block-keys.js";

const MODEL = modelId("k3");
const hasher = testHasher();
const ALL = 1_000;

const ids = (keys: BlockKeys): string[] =>
  Array.from({ length: keys.count }, (_, block) => prefixId(keys, block + 1));
const text = (value: string, size = 4, most = ALL): string[] =>
  ids(hasher.text(MODEL, value, size, most));
const tokens = (value: readonly number[], size = 4, most = ALL): string[] =>
  ids(hasher.tokens(MODEL, value, size, most));

describe("PrefixHasher", () => {
  it("gives a key per full block, drops the rest, and stops at the most that is asked for", () => {
    expect([text("abc").length, text("abcd").length, text("abcdefg").length]).to.deep.equal([
      0, 1, 1,
    ]);
    expect(tokens([1, 2, 3]).length).to.equal(0);
    expect(tokens([1, 2, 3, 4, 5, 6, 7, 8]).length).to.equal(2);
    expect([text("abcdefgh", 4, 2).length, text("abcdefghijkl", 4, 2).length]).to.deep.equal([
      2, 2,
    ]);
    expect(text("abcdefgh", 4, 1)).to.deep.equal(text("abcdefgh").slice(0, 1));
  });

  it("never takes one unit for two smaller ones, however short a block is", () => {
    for (let size = 1; size <= 6; size += 1) {
      const narrow = text("a".repeat(size), size);
      const wide = text("\u6161".repeat(size), size);
      const mixed = text("\u6161".repeat(Math.ceil(size / 2)).padEnd(size, "\0"), size);
      expect(new Set([...narrow, ...wide, ...mixed]).size).to.equal(size === 1 ? 2 : 3);
    }
  });

  it("gives two texts the same key exactly as far as their blocks are equal", () => {
    // What is packed four to a word and what is not, and units that could pass for two smaller ones.
    const units = ["a", "b", "\0", "\u00ff", "\u0100", "\u6161", "\ud83d\ude00", "\uffff"];
    const letters = fc.array(fc.constantFrom(...units), { maxLength: 20 });
    fc.assert(
      fc.property(
        letters,
        letters,
        letters,
        fc.integer({ min: 1, max: 9 }),
        (begin, a, b, size) => {
          const one = [...begin, ...a].join("");
          const other = [...begin, ...b].join("");
          let equal = 0;
          while (equal < one.length && equal < other.length && one[equal] === other[equal])
            equal += 1;
          const [left, right] = [text(one, size), text(other, size)];
          for (let block = 0; block < Math.max(left.length, right.length); block += 1) {
            const same = (block + 1) * size <= equal;
            expect(left[block] !== undefined && left[block] === right[block]).to.equal(same);
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it("never gives the same text at another position the same key", () => {
    const block = fc.constantFrom("aaaa", "bbbb", "abab", "\u0000\u0000\u0000\u0000");
    fc.assert(
      fc.property(fc.array(block, { minLength: 1, maxLength: 30 }), (blocks) => {
        const keys = text(blocks.join(""));
        expect(new Set(keys).size).to.equal(blocks.length);
      }),
    );
    fc.assert(
      fc.property(fc.array(block, { minLength: 1 }), fc.array(block, { minLength: 1 }), (a, b) => {
        const behind = text([...a, ...b].join("")).slice(a.length);
        const alone = text(b.join(""));
        expect(behind.filter((key, index) => alone[index] === key)).to.deep.equal([]);
      }),
    );
  });

  it("never takes wide units for the bytes of narrow ones, wherever they stand", () => {
    for (const size of [8, 16, 32, 256]) {
      const chains = [
        "a".repeat(6 * size),
        "\u6161".repeat(3 * size),
        "a".repeat(2 * size) + "\u6161".repeat(2 * size),
        "a".repeat(size) + "\u6161".repeat(3 * size),
        "\0".repeat(size) + "\u6161".repeat(3 * size),
      ].map((value) => text(value, size));
      // Two of them begin with the same block, one of these with the same two; nothing else is alike.
      const shared = [chains[0]?.[0], chains[2]?.[0], chains[3]?.[0]];
      expect(new Set(shared).size).to.equal(1);
      expect(chains[0]?.[1]).to.equal(chains[2]?.[1]);
      const all = chains.flat();
      expect(new Set(all).size).to.equal(all.length - 3);
    }
  });

  it("is AES-128-CBC over the label and the blocks, whatever was hashed before", () => {
    const key = new Uint8Array(16).fill(1);
    const label = new Uint32Array([1, 16, 2, 0, 0x33006b, 0, 0, 0]);
    const value = "exactly sixteen. and sixteen more";
    const message = Buffer.concat([Buffer.from(label.buffer), Buffer.from(value.slice(0, 32))]);
    const cipher = createCipheriv("aes-128-cbc", key, new Uint8Array(16)).setAutoPadding(false);
    const words = cipher.update(message).toString("hex", 32, 64).match(/.{8}/g) ?? [];
    const swapped = words.map((word) => word.replace(/(..)(..)(..)(..)/, "$4$3$2$1"));
    const expected = [swapped.slice(0, 4).join(""), swapped.slice(4).join("")];
    for (const before of ["", "another prompt altogether, and longer", "\u6161".repeat(50)]) {
      text(before, 16);
      expect(text(value, 16)).to.deep.equal(expected);
    }
  });

  it("never matches another model, another kind, another block size or another secret", () => {
    // One token per word is what two characters of a text are in memory.
    const words = [0x00620061, 0x00640063, 0x00660065, 0x00680067];
    const keys = [
      hasher.text(MODEL, "abcdefgh", 8, 1),
      hasher.text(modelId("k4"), "abcdefgh", 8, 1),
      hasher.text(modelId(""), "abcdefgh", 8, 1),
      hasher.text(MODEL, "abcdefgh", 4, 1),
      hasher.tokens(MODEL, words, 4, 1),
      hasher.tokens(MODEL, words, 2, 1),
      testHasher(2).text(MODEL, "abcdefgh", 8, 1),
    ];
    expect(new Set(keys.map((each) => prefixId(each, 1))).size).to.equal(keys.length);
  });

  it("takes odd block sizes and tokens of all 32 bits", () => {
    expect(text("abcabd", 3)[0]).to.equal(text("abcxyz", 3)[0]);
    expect(text("abcabd", 3)[1]).to.not.equal(text("abcabe", 3)[1]);
    const high = [0xffff_ffff, 0x8000_0000];
    expect(tokens(high, 2)).to.deep.equal(ids(hasher.tokens(MODEL, Uint32Array.from(high), 2, 1)));
    expect(tokens(high, 2)).to.not.deep.equal(tokens([0x7fff_ffff, 0], 2));
  });

  it("extends a chain block by block to the keys of the whole prompt", () => {
    const chain = new Uint32Array(16);
    hasher.tokenRoot(MODEL, 2, chain, 0);
    for (const [block, pair] of [
      [1, 2],
      [3, 4],
      [5, 6],
    ].entries()) {
      hasher.extend(chain, block * 4, pair);
    }
    const whole = hasher.tokens(MODEL, [1, 2, 3, 4, 5, 6], 2, ALL);
    expect([...chain.slice(4)]).to.deep.equal([...whole.words]);
  });

  it("gives the names that engines use keys of their own, never those of a prompt or a model", () => {
    const out = new Uint32Array(12);
    hasher.engineHash("12", out, 0);
    hasher.engineHash("1", out, 4);
    hasher.tokenRoot(modelId("12"), 1, out, 8);
    const keys = ids({ words: out, count: 3 });
    expect(new Set(keys).size).to.equal(3);
  });

  it("names a prefix by 32 characters, and refuses to name what is not there", () => {
    const keys = hasher.text(MODEL, "abcdefgh", 4, ALL);
    expect(prefixId(keys, 2)).to.match(/^[0-9a-f]{32}$/);
    expect(() => prefixId(keys, 0)).to.throw("a prefix has at least one block");
    expect(() => prefixId(keys, 3)).to.throw("a prefix has at least one block");
  });
});

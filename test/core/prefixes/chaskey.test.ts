// Chaskey-12 against the test vectors that its author publishes with the reference implementation: the
// tags of the messages 00, 00 01, 00 01 02 … under one key. Those of whole words are checked here.

import { expect } from "chai";
import { Chaskey } from "../../../extproc/core/prefixes/chaskey.js";

const KEY = [0x833d3433, 0x009f389f, 0x2398e64f, 0x417acf39] as const;

/** By the message's length in words. */
const TAGS: readonly (readonly number[])[] = [
  [0x43cb1f41, 0x51eba0c2, 0xff0a8ac3, 0x7ee3f642],
  [0x0b2b62db, 0x1e9e3f50, 0xa1b8dcad, 0xb4279ae0],
  [0x9faf57d6, 0xf4bc02cf, 0x6af6d831, 0xd2930d90],
  [0xc040258c, 0xf25392c0, 0x9f6b5dc0, 0x35c3d638],
  [0x5dd0e2a9, 0xfb5eac8c, 0x633a392e, 0x500c36f3],
  [0xece3bdb9, 0x17e5a589, 0x64aa2eef, 0x9a75eced],
  [0x9f01c148, 0xae4fc446, 0x6563e38e, 0xd5483b99],
  [0x76d1eb98, 0x8c72085a, 0x77155006, 0xbf389002],
  [0x77962784, 0x07c647fa, 0xdd752c0f, 0xd2f5a799],
  [0xa98ecb80, 0x5ef583cf, 0x4e20e76e, 0x7873b8f1],
  [0x155ab3ab, 0x73d51ed7, 0xac6f3601, 0xef6aa85c],
  [0x4bdfff32, 0xb258591a, 0x26ad161b, 0xe3445e89],
  [0xf36e748b, 0x8f34677f, 0x1e00ba1b, 0xdd7da46d],
  [0x4ec246aa, 0x01edaab3, 0xbfe09c48, 0x7c5c4c45],
  [0x9ab66191, 0x7daf7dff, 0x868090ae, 0x35b7d6c6],
  [0xa8f07a68, 0x366fc33b, 0xaf00eefb, 0x1a48a9df],
];

/** The words of the bytes 00 01 02 …, little-endian. */
const word = (index: number): number => 0x03020100 + 0x04040404 * index;

describe("Chaskey", () => {
  for (const [words, tag] of TAGS.entries()) {
    it(`gives the published tag of ${String(4 * words)} bytes`, () => {
      const mac = new Chaskey(KEY);
      const message = mac.message(words);
      for (let index = 0; index < words; index += 1) message[index] = word(index);
      const out = new Uint32Array(6);
      mac.mac(words, out, 1);
      expect([...out]).to.deep.equal([0, ...tag, 0]);
    });
  }

  it("gives the same tag after longer messages, and after its buffer has grown", () => {
    const mac = new Chaskey(KEY);
    const out = new Uint32Array(4);
    mac.message(10_000).fill(-1);
    mac.mac(10_000, out, 0);
    const message = mac.message(5);
    for (let index = 0; index < 5; index += 1) message[index] = word(index);
    mac.mac(5, out, 0);
    expect([...out]).to.deep.equal(TAGS[5]);
  });
});

import { expect } from "chai";
import fc from "fast-check";
import { byteOrder } from "../../../extproc/core/model/byte-order.js";

const sign = (value: number): number => Math.sign(value);

describe("byteOrder", () => {
  it("orders as the UTF-8 bytes do, also where 16-bit units do not", () => {
    const character = fc.constantFrom("a", "b", "é", "￿", "\ue000", "퟿", "𐀀", "😀", "z");
    const text = fc.array(character, { maxLength: 6 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(text, text, (one, other) => {
        const bytes = Buffer.compare(Buffer.from(one), Buffer.from(other));
        expect(sign(byteOrder(one, other))).to.equal(bytes);
      }),
      { numRuns: 500 },
    );
  });

  it("puts an astral character behind U+FFFF, and a prefix before the longer text", () => {
    expect(byteOrder("😀", "￿")).to.be.greaterThan(0);
    expect(byteOrder("ab", "abc")).to.be.lessThan(0);
    expect(byteOrder("abc", "abc")).to.equal(0);
  });
});

// Goal: nothing that an engine sends makes the decoder throw, hang or claim memory. Method: bytes by hand
// for every family of values, and random ones against the library's own encoder.
import { encode } from "@msgpack/msgpack";
import { expect } from "chai";
import fc from "fast-check";
import {
  decodeMessage,
  MESSAGE_NESTING_MAX_LEVELS,
} from "../../../extproc/edge/engines/kv-msgpack.js";

const hex = (text: string): Uint8Array => Buffer.from(text.replace(/\s+/g, ""), "hex");

function valueOf(bytes: Uint8Array): unknown {
  const result = decodeMessage(bytes);
  if (result.kind === "problem") throw new Error(result.detail);
  return result.value;
}

const problemOf = (bytes: Uint8Array): string => {
  const result = decodeMessage(bytes);
  return result.kind === "problem" ? result.detail : "a value";
};

describe("decodeMessage", () => {
  for (const [text, value] of [
    ["00", 0],
    ["7f", 127],
    ["ff", -1],
    ["c0", null],
    ["c3", true],
    ["cd 01 2c", 300],
    ["ce 00 01 11 70", 70_000],
    ["cf de ad be ef 12 34 56 78", 16_045_690_981_402_826_360n],
    ["d3 ff ff ff ff ff ff ff fe", -2n],
    ["cb 3f f8 00 00 00 00 00 00", 1.5],
    ["a3 47 50 55", "GPU"],
    ["d9 03 47 50 55", "GPU"],
    ["92 01 a1 61", [1, "a"]],
    ["dc 00 02 01 02", [1, 2]],
    ["dd 00 00 00 01 90", [[]]],
    ["81 a1 61 02", { a: 2 }],
    ["de 00 01 a1 61 02", { a: 2 }],
  ] as const) {
    it(`reads ${text}`, () => {
      expect(valueOf(hex(text))).to.deep.equal(value);
    });
  }

  it("reads byte strings", () => {
    expect([...(valueOf(hex("c4 02 ab cd")) as Uint8Array)]).to.deep.equal([0xab, 0xcd]);
    expect([...(valueOf(hex("c5 00 01 ab")) as Uint8Array)]).to.deep.equal([0xab]);
  });

  for (const [title, text, problem] of [
    ["nothing", "", "no value begins at byte 0"],
    ["a head that no value has", "c1", "no value begins at byte 0"],
    ["an integer cut short", "cd 01", "it ends early, after 2 bytes"],
    ["a text longer than the message", "a3 47 50", "it ends early, after 3 bytes"],
    ["a size cut short", "dc 00", "no value begins at byte 0"],
    ["an array with an element too few", "92 01", "no value begins at byte 2"],
    ["four billion elements claimed by five bytes", "dd ff ff ff ff", "no value begins at byte 5"],
    ["four billion bytes claimed by five", "c6 ff ff ff ff", "it ends early, after 5 bytes"],
    ["a second message behind the first", "01 02", "it goes on after its end at byte 1"],
  ] as const) {
    it(`refuses ${title}`, () => {
      expect(problemOf(hex(text))).to.equal(problem);
    });
  }

  it("takes the allowed depth and refuses one level more", () => {
    const nested = (levels: number): Uint8Array => hex("91".repeat(levels) + "01");
    expect(problemOf(nested(MESSAGE_NESTING_MAX_LEVELS))).to.equal("a value");
    expect(problemOf(nested(MESSAGE_NESTING_MAX_LEVELS + 1))).to.equal(
      `it is nested deeper than ${String(MESSAGE_NESTING_MAX_LEVELS)} levels`,
    );
  });

  it("refuses a key that would change an object's prototype", () => {
    expect(problemOf(hex("81 a9 5f5f70726f746f5f5f 01"))).not.to.equal("a value");
  });

  it("reads back whatever the library's encoder writes", () => {
    const plain = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.integer(),
        fc.double({ noNaN: true }),
        fc.string(),
        fc.boolean(),
        fc.constant(null),
        fc.uint8Array({ maxLength: 40 }),
        fc.array(tie("value"), { maxLength: 20 }),
        fc.dictionary(fc.string({ minLength: 1 }), tie("value"), { maxKeys: 5 }),
      ),
    }));
    fc.assert(
      fc.property(plain.value, (value) => {
        fc.pre(!JSON.stringify(value).includes("__proto__"));
        const bytes = encode(value);
        expect(encode(valueOf(bytes))).to.deep.equal(bytes);
      }),
    );
  });

  it("never throws, whatever bytes come", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(decodeMessage(bytes).kind).to.be.oneOf(["value", "problem"]);
      }),
      { numRuns: 2_000 },
    );
  });
});

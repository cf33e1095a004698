// Goal: nothing that an engine sends makes the reader throw, hang or claim memory. Method: bytes by hand
// for every family of values, and random ones against the library's own encoder.
import { encode } from "@msgpack/msgpack";
import { expect } from "chai";
import fc from "fast-check";
import {
  MESSAGE_NESTING_MAX_LEVELS,
  MessageCursor,
  MessageFault,
  NO_SINGLE_VALUE,
} from "../../../extproc/edge/engines/kv-msgpack.js";
import { resultOf } from "./kv-batch-reading.js";

const hex = (text: string): Uint8Array => Buffer.from(text.replace(/\s+/g, ""), "hex");

/** All of a message by the cursor's means, maps as lists of pairs. */
function valueAt(cursor: MessageCursor): unknown {
  const elements = cursor.array();
  if (elements !== undefined) return Array.from({ length: elements }, () => valueAt(cursor));
  const pairs = cursor.map();
  if (pairs === undefined) return resultOf(cursor.single());
  return Array.from({ length: pairs }, () => [valueAt(cursor), valueAt(cursor)]);
}

function valueOf(bytes: Uint8Array): unknown {
  const cursor = new MessageCursor(bytes);
  const value = valueAt(cursor);
  cursor.end();
  return value;
}

function problemOf(bytes: Uint8Array): string {
  try {
    const cursor = new MessageCursor(bytes);
    resultOf(cursor.skip());
    cursor.end();
    return "a value";
  } catch (error) {
    if (error instanceof MessageFault) return error.message;
    throw error;
  }
}

describe("MessageCursor", () => {
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
    ["81 a1 61 02", [["a", 2]]],
    ["de 00 01 a1 61 02", [["a", 2]]],
    ["df 00 00 00 01 a1 61 80", [["a", []]]],
  ] as const) {
    it(`reads ${text}, and passes over it`, () => {
      expect(valueOf(hex(text))).to.deep.equal(value);
      expect(problemOf(hex(text))).to.equal("a value");
    });
  }

  it("reads byte strings", () => {
    expect([...(valueOf(hex("c4 02 ab cd")) as Uint8Array)]).to.deep.equal([0xab, 0xcd]);
    expect([...(valueOf(hex("c5 00 01 ab")) as Uint8Array)]).to.deep.equal([0xab]);
  });

  it("passes over an array or a map where a single value is asked for", () => {
    const cursor = new MessageCursor(hex("93 92 01 02 80 05"));
    expect(cursor.array()).to.equal(3);
    expect(resultOf(cursor.single())).to.equal(NO_SINGLE_VALUE);
    expect(resultOf(cursor.single())).to.equal(NO_SINGLE_VALUE);
    expect(resultOf(cursor.single())).to.equal(5);
    cursor.end();
  });

  it("reads lists of integers in every form, and tells the first that is none of 32 bits", () => {
    const integers = (text: string): unknown => {
      const list = resultOf(new MessageCursor(hex(text)).integers());
      return list && [[...list.values], list.firstOther, list.isNested];
    };
    expect(integers("95 05 cc ff cd 01 2c ce ff ff ff ff d1 00 07")).to.deep.equal([
      [5, 255, 300, 4_294_967_295, 7],
      5,
      false,
    ]);
    expect(integers("93 05 ff a1 61")).to.deep.equal([[5, 0, 0], 1, false]);
    expect(integers("92 92 01 02 05")).to.deep.equal([[0, 5], 0, true]);
    expect(integers("92 01 cf 00 00 00 00 00 00 00 01")).to.deep.equal([[1, 0], 1, false]);
    expect(integers("90")).to.deep.equal([[], 0, false]);
    expect(integers("a1 61")).to.equal(undefined);
    expect(() => integers("92 01 cd 01")).to.throw(MessageFault, "ends early, after 4 bytes");
    expect(() => integers("dd ff ff ff ff")).to.throw(MessageFault, "ends early, after 5 bytes");
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

  it("reads back whatever the library's encoder writes", () => {
    const plain = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.integer(),
        // Beyond 32 bits they are read as bigints, and a double may be one of them.
        fc.maxSafeInteger(),
        fc.double({ noNaN: true }),
        fc.string(),
        fc.boolean(),
        fc.constant(null),
        fc.uint8Array({ maxLength: 40 }),
        fc.array(tie("value"), { maxLength: 20 }),
      ),
    }));
    fc.assert(
      fc.property(plain.value, (value) => {
        const bytes = encode(value);
        expect(encode(valueOf(bytes), { useBigInt64: true })).to.deep.equal(bytes);
      }),
    );
  });

  it("faults in one way only, whatever bytes come", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(() => problemOf(bytes)).not.to.throw();
      }),
      { numRuns: 2_000 },
    );
  });
});

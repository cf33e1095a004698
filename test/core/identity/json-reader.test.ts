// The oracle is JSON.parse after a strict decoding: what it takes, the reader takes, and finds each value
// where it stands; what it does not take, the reader refuses. Both in one step and in the smallest ones.

import { expect } from "chai";
import fc from "fast-check";
import { wantedKeys, type LocatedRootResult } from "../../../extproc/core/identity/json-located.js";
import { JsonReader } from "../../../extproc/core/identity/json-reader.js";
import { damagedText, KEYS, objectText, parsed } from "./json-texts.js";
import { utf8 } from "./support.js";

const NAMES = KEYS.filter((key) => /^[a-z_]+$/.test(key));
const FORMAT = wantedKeys(["type"]);
const WANTED = wantedKeys(NAMES, {
  text: wantedKeys(["format"], { format: FORMAT }),
  response_format: FORMAT,
});

function read(bytes: Uint8Array, stepBytes = Infinity): LocatedRootResult {
  const reader = new JsonReader(bytes, WANTED);
  // Once per byte is enough, whatever the steps.
  for (let step = 0; step <= bytes.length; step += 1) if (reader.step(stepBytes)) break;
  expect(reader.step(1)).to.equal(true);
  return reader.finish();
}

const fault = (text: string): unknown => {
  const bytes = utf8(text);
  const result = read(bytes);
  for (const stepBytes of [1, 2, 3, 7]) expect(read(bytes, stepBytes)).to.deep.equal(result);
  return result.ok ? "none" : result.fault;
};

/** The located values as values; `inner` objects as they were located. */
function values(bytes: Uint8Array, result = read(bytes)): unknown {
  if (!result.ok) return result.fault;
  const taken = (located: typeof result.values): unknown =>
    Array.from(located, ([name, { start, end, inner }]) => [
      name,
      parsed(bytes.subarray(start, end)),
      inner && taken(inner),
    ]);
  return taken(result.values);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What `values` has to give, in the order of the first appearance of each key. */
function expected(value: Record<string, unknown>, wanted = WANTED): unknown {
  const names = wanted.names.flat();
  return Object.entries(value)
    .filter(([name]) => names.includes(name))
    .map(([name, one]) => {
      const inner = wanted.inner.get(name);
      return [name, one, inner && isObject(one) ? expected(one, inner) : undefined];
    });
}

describe("identity/json-reader", () => {
  it("finds wanted values, and wanted values inside them", () => {
    const text = '{"model":"demo","x":[{"model":1}],"n":2,"text":{"a":0,"format":{"type":"b"}}}';
    expect(values(utf8(text))).to.deep.equal([
      ["model", "demo", undefined],
      ["n", 2, undefined],
      [
        "text",
        { a: 0, format: { type: "b" } },
        [["format", { type: "b" }, [["type", "b", undefined]]]],
      ],
    ]);
    expect(values(utf8("{}"))).to.deep.equal([]);
  });

  it("takes the last of equal keys with all that is in it, escaped or not", () => {
    expect(values(utf8('{"model":"a","mod\\u0065l":"b"}'))).to.deep.equal([
      ["model", "b", undefined],
    ]);
    const twice = '{"response_format":{"type":"a"},"response_format":{"x":1}}';
    expect(values(utf8(twice))).to.deep.equal([["response_format", { x: 1 }, []]]);
    expect(values(utf8('{"text":{"format":1},"text":"plain"}'))).to.deep.equal([
      ["text", "plain", undefined],
    ]);
  });

  it("takes no key that only looks like a wanted one", () => {
    const keys = [
      "Model",
      "model ",
      "mode",
      "models",
      "mod\\\\u0065l",
      "mod\\u0065ls",
      "mod\\u00e9l",
    ];
    for (const key of keys) expect(values(utf8(`{"${key}":"a"}`)), key).to.deep.equal([]);
  });

  it("says what stands in place of the object", () => {
    const cases = {
      "": "nothing",
      " \n": "nothing",
      "\ufeff": "nothing",
      "[{}]": "an array",
      '"{}"': "a string",
      null: "a number, true, false or null",
      "-1": "a number, true, false or null",
      "<html>": "something that is not JSON",
      "\ufeff\ufeff{}": "something that is not JSON",
    };
    for (const [text, found] of Object.entries(cases)) {
      expect(fault(text), text).to.deep.equal({ kind: "not_an_object", found });
    }
  });

  it("points at the first byte that breaks the text", () => {
    const cases: readonly (readonly [string, number])[] = [
      ["{", 1],
      ['{"model"', 8],
      ['{"model":', 9],
      ['{"model":}', 9],
      ['{"model":"a"', 12],
      ['{"model":"a",}', 13],
      ['{"model":"a"}}', 13],
      ['{"model":"a"} x', 14],
      ['{"model":"a" "n":1}', 13],
      ['{"model":"a":1}', 12],
      ['{model:"a"}', 1],
      ["{'model':'a'}", 1],
      ['{"model" "a"}', 9],
      ['{"p":"unterminated', 18],
      ['{"p":"unterminated\\"}', 21],
      ['{"p":"cut\\', 9],
      ['{"p":"cut\\u00e', 9],
      ['{"p":"a\\x"}', 7],
      ['{"p":"a\\u00g0"}', 7],
      ['{"p":"a\nb"}', 7],
      ['{"p":"a\u0000b"}', 7],
      ['{"p":[1,2}', 9],
      ['{"p":[1,2', 9],
      ['{"p":[1,]}', 8],
      ['{"p":[,1]}', 6],
      ['{"p":[1 2]}', 8],
      ['{"p":[1]]', 8],
      ['{"p":{"a":1]}', 11],
      ['{"p":tru}', 8],
      ['{"p":nul', 8],
      ['{"p":True}', 5],
      ['{"p":truee}', 9],
      ['{"p":NaN}', 5],
      ['{"p":Infinity}', 5],
      ['{"p":01}', 6],
      ['{"p":-}', 6],
      ['{"p":-01}', 7],
      ['{"p":+1}', 5],
      ['{"p":1.}', 7],
      ['{"p":.5}', 5],
      ['{"p":1e}', 7],
      ['{"p":1e+}', 8],
      ['{"p":1.5.5}', 8],
      ['{"p":0x10}', 6],
      ['{"p":12', 7],
      ['{"p":1,,"n":1}', 7],
      ["{,}", 1],
      ["{}\u00a0", 2],
      ["{\u000c}", 1],
      ["{/**/}", 1],
      ["{} {}", 3],
    ];
    for (const [text, at] of cases) {
      expect(parsed(utf8(text)), text).to.equal(undefined);
      expect(fault(text), text).to.deep.equal({ kind: "malformed", at });
    }
  });

  it("refuses a text cut at any byte", () => {
    const whole = utf8(
      '{"a":[1,{"b":"c\\"é"}],"model":"demo","text":{"format":{"x":true}},"n":-1.5e3}',
    );
    expect(read(whole).ok).to.equal(true);
    for (let end = 0; end < whole.length; end += 1) {
      expect(read(whole.slice(0, end)).ok, String(end)).to.equal(false);
    }
  });

  it("takes all numbers that JSON has", () => {
    const numbers = [
      "0",
      "-0",
      "10",
      "1.0",
      "0.05",
      "1e5",
      "1E+5",
      "1e-05",
      "-1.5e400",
      "1".repeat(400),
    ];
    const text = `{"x":[${numbers.join(" ,\n")}],"n":${numbers[8] ?? ""}}`;
    expect(fault(text)).to.equal("none");
  });

  it("finds the end of a string behind any run of backslashes, and any length of plain text", () => {
    for (let run = 0; run <= 70; run += 1) {
      for (const plain of ["", "a".repeat(run)]) {
        const even = `{"p":"${plain}${"\\\\".repeat(run)}","model":"demo"}`;
        const odd = `{"p":"${plain}${"\\\\".repeat(run)}\\"${plain}","model":"demo"}`;
        for (const text of [even, odd]) {
          expect(values(utf8(text)), text).to.deep.equal([["model", "demo", undefined]]);
        }
      }
    }
  });

  it("sees every byte of a string, wherever the string stands in memory", () => {
    const wrong: readonly (readonly [number, string])[] = [
      [0x00, "malformed"],
      [0x1f, "malformed"],
      [0x0a, "malformed"],
      [0x5c, "malformed"],
      [0x80, "not_utf8"],
      [0xff, "not_utf8"],
    ];
    const text = utf8(`{"p":"${"a".repeat(120)}"}`);
    for (let offset = 0; offset < 4; offset += 1) {
      const memory = new Uint8Array(text.length + offset);
      const bytes = memory.subarray(offset);
      for (let at = 6; at < 126; at += 1) {
        for (const [byte, kind] of wrong) {
          bytes.set(text);
          bytes[at] = byte;
          const result = read(bytes);
          // The escape of an "a" is none, and neither is that of the closing quote's.
          const place = byte === 0x5c && at === 125 ? bytes.length : at;
          expect(result.ok ? "ok" : result.fault).to.deep.equal({
            kind: place === at ? kind : "malformed",
            at: place,
          });
        }
        // Each neighbour of what is not plain is plain.
        for (const byte of [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f]) {
          bytes.set(text);
          bytes[at] = byte;
          expect(read(bytes).ok).to.equal(true);
        }
      }
    }
  });

  it("takes exactly the characters that UTF-8 has", () => {
    const inside = (bytes: readonly number[]): Uint8Array =>
      Uint8Array.from([...utf8('{"p":"'), ...bytes, ...utf8('"}')]);
    const seconds = [0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff];
    for (let first = 0x80; first <= 0xff; first += 1) {
      for (const second of seconds) {
        for (const rest of [[], [0x80], [0x80, 0xbf], [0xbf, 0x7f], [0x80, 0x80, 0x80]]) {
          const bytes = inside([first, second, ...rest]);
          expect(read(bytes).ok, bytes.join(" ")).to.equal(parsed(bytes) !== undefined);
        }
      }
    }
  });

  it("takes escapes of lone surrogates and characters of every plane", () => {
    const text = '{"model":"\\ud800 \\uDFFF \\ud83d\\ude00 😀 \ufeff \u2028 \uffff"}';
    const model = "\ud800 \udfff 😀 😀 \ufeff \u2028 \uffff";
    expect(values(utf8(text))).to.deep.equal([["model", model, undefined]]);
  });

  it("takes 512 levels of nesting and refuses 513, counting the root object", () => {
    const nested = (levels: number): string =>
      `\ufeff {"p":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)},"model":"a"}`;
    for (const levels of [2, 64, 65, 512]) expect(fault(nested(levels))).to.equal("none");
    for (const levels of [513, 100_000]) {
      expect(fault(nested(levels))).to.deep.equal({ kind: "too_deep" });
    }
    const objects = (levels: number): string => `${'{"p":'.repeat(levels)}1${"}".repeat(levels)}`;
    expect(fault(objects(512))).to.equal("none");
    expect(fault(objects(513))).to.deep.equal({ kind: "too_deep" });
    expect(fault(`{"p":"${"[{".repeat(2000)}","q":["${"[".repeat(2000)}"]}`)).to.equal("none");
  });

  it("closes each container with its own bracket, through all levels", () => {
    const kinds = fc.array(fc.boolean(), { minLength: 1, maxLength: 100 });
    fc.assert(
      fc.property(kinds, fc.nat(), (isObjects, place) => {
        const open = isObjects.map((one) => (one ? '{"a":' : "[")).join("");
        const closing = isObjects.map((one) => (one ? "}" : "]")).reverse();
        const text = (ends: readonly string[]): string => `{"p":${open}1${ends.join("")}}`;
        expect(fault(text(closing))).to.equal("none");
        const at = place % closing.length;
        const wrong = closing.map((one, index) => (index !== at ? one : one === "}" ? "]" : "}"));
        expect(fault(text(wrong))).to.deep.equal({
          kind: "malformed",
          at: utf8(text(wrong)).length - 1 - (closing.length - at),
        });
      }),
      { numRuns: 200 },
    );
  });

  it("finds what JSON.parse finds in any object, however small the steps", () => {
    fc.assert(
      fc.property(objectText(), fc.integer({ min: 1, max: 40 }), (text, stepBytes) => {
        const bytes = utf8(text);
        const result = read(bytes);
        expect(result.ok).to.equal(true);
        expect(sorted(values(bytes, result))).to.deep.equal(
          sorted(expected(parsed(bytes) as Record<string, unknown>)),
        );
        expect(read(bytes, stepBytes)).to.deep.equal(result);
      }),
      { numRuns: 1500 },
    );
  });

  it("takes a damaged text exactly when JSON.parse does, however small the steps", () => {
    fc.assert(
      fc.property(damagedText(), fc.integer({ min: 1, max: 40 }), (bytes, stepBytes) => {
        const result = read(bytes);
        expect(result.ok).to.equal(isObject(parsed(bytes)));
        expect(read(bytes, stepBytes)).to.deep.equal(result);
      }),
      { numRuns: 4000 },
    );
  });

  it("reads no further than a step, and about as far", () => {
    const body = utf8(`{"p":"${"x".repeat(10_000)}","q":[${"1,".repeat(5_000)}1]}`);
    const reader = new JsonReader(body, WANTED);
    let steps = 1;
    while (!reader.step(1_000)) steps += 1;
    expect(steps).to.be.within(Math.ceil(body.length / 1_006), Math.ceil(body.length / 1_000));
  });
});

/** A repeated key keeps its first place in an object and a map, a nested one is made anew. */
function sorted(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  return [...(value as [string, unknown, unknown][])]
    .map(([name, one, inner]) => [name, one, sorted(inner)] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

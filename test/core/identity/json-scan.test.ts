import { expect } from "chai";
import {
  OBJECT_KEYS_MAX,
  scanObject,
  type ScanResult,
  type Wanted,
} from "../../../extproc/core/identity/json-scan.js";
import { nestsTooDeep, startOfValue } from "../../../extproc/core/identity/json-skip.js";
import { utf8 } from "./support.js";

const WANTED: Wanted = {
  model: "scalar",
  n: "scalar",
  tools: "presence",
  text: { format: { type: "scalar" } },
};

const scan = (text: string): ScanResult => scanObject(utf8(text), WANTED);

function value(text: string): unknown {
  const result = scan(text);
  return result.ok ? result.value : result.fault;
}

describe("identity/json-scan", () => {
  it("keeps wanted keys only, with the types of their values", () => {
    expect(value('{"model":"demo","n":2,"other":[{"model":"inner"}],"tools":[{}]}')).to.deep.equal({
      model: "demo",
      n: 2,
      tools: [null],
    });
    expect(value('{"model":null,"n":true,"tools":{"a":1}}')).to.deep.equal({
      model: null,
      n: true,
      tools: {},
    });
    expect(value("{}")).to.deep.equal({});
  });

  it("takes objects with as many keys as the limit, and refuses one more at any level it reads", () => {
    const keys = (count: number): string =>
      Array.from({ length: count }, (_, index) => `"k${String(index)}":1`).join(",");
    const last = `"model":"demo"`;
    expect(value(`{${keys(OBJECT_KEYS_MAX - 1)},${last}}`)).to.deep.equal({ model: "demo" });
    const tooMany = { kind: "too_many_keys" };
    expect(value(`{${keys(OBJECT_KEYS_MAX)},${last}}`)).to.deep.equal(tooMany);
    expect(value(`{"text":{${keys(OBJECT_KEYS_MAX + 1)}}}`)).to.deep.equal(tooMany);
    // What is passed over is not counted: message objects may be as large as they like.
    expect(value(`{"messages":[{${keys(OBJECT_KEYS_MAX + 1)}}],${last}}`)).to.deep.equal({
      model: "demo",
    });
  });

  it("reads presence without the value", () => {
    const cases = {
      "[]": [],
      "[ ]": [],
      "[0]": [null],
      "{}": {},
      null: null,
      '"x"': true,
      "0": true,
    };
    for (const [text, expected] of Object.entries(cases)) {
      expect(value(`{"tools":${text}}`), text).to.deep.equal({ tools: expected });
    }
  });

  it("reads nested tables, and undefined for a value of another type", () => {
    expect(value('{"text":{"x":[1],"format":{"a":{},"type":"json_schema"}}}')).to.deep.equal({
      text: { format: { type: "json_schema" } },
    });
    expect(value('{"text":"a long prompt"}')).to.deep.equal({ text: undefined });
  });

  it("takes the last of several equal keys, escaped or not", () => {
    expect(value('{"model":"a","mod\\u0065l":"b"}')).to.deep.equal({ model: "b" });
    expect(value('{"model":"a","\\u006D\\u006fdel":"b"}')).to.deep.equal({ model: "b" });
    expect(value('{"n":1,"n":null}')).to.deep.equal({ n: null });
  });

  it("takes no key that only looks like a wanted one", () => {
    for (const key of [
      "Model",
      "model ",
      "mode",
      "models",
      "mod\\\\u0065l",
      "mod\\u0065ls",
      "mod\\u0065",
      "mod\\u006",
      "mod\\u00e9l",
      "mod\\/l",
    ]) {
      expect(value(`{"${key}":"a"}`), key).to.deep.equal({});
    }
  });

  it("is not fooled by quotes, brackets and keys inside strings", () => {
    for (const noise of ['\\"', "\\\\", '\\\\\\"', '{\\"model\\":\\"x\\"}', "]]}}", "\\u0022,"]) {
      for (const length of [0, 1, 61, 62, 63, 64, 65, 130]) {
        const padding = "a".repeat(length);
        const text = `{"p":"${padding}${noise}${padding}","q":["${noise}${padding}"],"model":"demo"}`;
        expect(() => JSON.parse(text) as unknown, text).to.not.throw();
        expect(value(text), text).to.deep.equal({ model: "demo" });
      }
    }
  });

  it("finds the end of a string behind any run of backslashes", () => {
    for (let run = 0; run <= 140; run += 1) {
      const even = `{"p":"${"\\\\".repeat(run)}","model":"demo"}`;
      const odd = `{"p":"${"\\\\".repeat(run)}\\"","model":"demo"}`;
      expect(value(even), even).to.deep.equal({ model: "demo" });
      expect(value(odd), odd).to.deep.equal({ model: "demo" });
    }
  });

  it("skips blanks of JSON anywhere between tokens, and one byte order mark", () => {
    const text = ' \t\r\n{ "model" : "demo" , "n"\n:\n2\t} \r\n';
    expect(value(text)).to.deep.equal({ model: "demo", n: 2 });
    expect(value(`\ufeff${text}`)).to.deep.equal({ model: "demo", n: 2 });
  });

  it("says what stands in place of the object", () => {
    const cases = {
      "": "nothing",
      "  ": "nothing",
      "[{}]": "an array",
      '"{}"': "a string",
      null: "a number, true, false or null",
      "-1": "a number, true, false or null",
      "<html>": "something that is not JSON",
      "\ufeff\ufeff{}": "something that is not JSON",
    };
    for (const [text, found] of Object.entries(cases)) {
      expect(value(text), text).to.deep.equal({ kind: "not_an_object", found });
    }
  });

  it("points at the byte where an object breaks", () => {
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
      ['{"p":"unterminated', 5],
      ['{"p":"unterminated\\"}', 5],
      ['{"p":[1,2}', 10],
      ['{"p":[1,2', 5],
      ['{"p":{"a":"x}', 5],
      ['{"model":tru}', 9],
      ['{"n":01}', 5],
      ['{"n":1.}', 5],
      ['{"n":NaN}', 5],
      ['{"model":"a\\x"}', 9],
      ['{"model":"a\nb"}', 9],
      ['{"text":{"format":{"type":}}}', 26],
      ['{"a":1,,"n":1}', 7],
      ["{,}", 1],
    ];
    for (const [text, at] of cases) {
      expect(() => JSON.parse(text) as unknown, text).to.throw();
      expect(value(text), text).to.deep.equal({ kind: "malformed", at });
    }
  });

  it("refuses a cut object at every byte", () => {
    const whole = '{"a":[1,{"b":"c\\""}],"model":"demo","text":{"format":{"type":"x"}},"n":12}';
    for (let end = 0; end < whole.length; end += 1) {
      expect(scan(whole.slice(0, end)).ok, whole.slice(0, end)).to.equal(false);
    }
    expect(scan(whole).ok).to.equal(true);
  });

  it("refuses a wanted string that is not UTF-8", () => {
    const bytes = utf8('{"model":"aXb"}');
    bytes[11] = 0xff;
    expect(scanObject(bytes, WANTED)).to.deep.equal({ ok: false, fault: { kind: "not_utf8" } });
  });

  it("takes 512 levels of nesting and refuses 513, counting the root object", () => {
    const nested = (levels: number): string =>
      `{"p":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)},"model":"a"}`;
    expect(value(nested(512))).to.deep.equal({ model: "a" });
    expect(value(nested(513))).to.deep.equal({ kind: "too_deep" });
    expect(nestsTooDeep(utf8(nested(512)), 0)).to.equal(false);
    expect(nestsTooDeep(utf8(nested(513)), 0)).to.equal(true);
    const objects = `${'{"p":'.repeat(512)}1${"}".repeat(512)}`;
    expect(nestsTooDeep(utf8(objects), 0)).to.equal(false);
    expect(nestsTooDeep(utf8(`{"p":${objects}}`), 0)).to.equal(true);
    expect(value(`{"p":${objects}}`)).to.deep.equal({ kind: "too_deep" });
  });

  it("does not count brackets inside strings as nesting", () => {
    const text = `{"p":"${"[{".repeat(2000)}","q":["${"[".repeat(2000)}"]}`;
    expect(scan(text).ok).to.equal(true);
    expect(nestsTooDeep(utf8(text), startOfValue(utf8(text)))).to.equal(false);
  });
});

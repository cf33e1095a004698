// Bodies are built as text where the text matters (escapes, repeated keys, blanks); JSON.parse is the
// oracle: whatever it accepts must give the shape of the parsed value, and nothing else may give one.

import { expect } from "chai";
import fc from "fast-check";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import {
  readShape,
  shapeOf,
  shapeReader,
  type LocatedShape,
  type RequestShape,
  type ShapeResult,
} from "../../../extproc/core/identity/shape.js";
import type { JsonRecord } from "../../../extproc/core/identity/json-values.js";
import { anyKey, damagedText, objectText, parsed } from "./json-texts.js";
import { utf8 } from "./support.js";

const ENDPOINTS: readonly Endpoint[] = [
  "chat",
  "completions",
  "responses",
  "messages",
  "embeddings",
  "rerank",
  "score",
  "generate",
];
const TOKEN_ENDPOINTS: readonly Endpoint[] = [
  "chat",
  "completions",
  "responses",
  "messages",
  "generate",
];

/** Reads a body, which must give what the parsed value gives: the shape, or the refusal's message. */
function read(endpoint: Endpoint, body: unknown): RequestShape | string {
  const bytes = utf8(typeof body === "string" ? body : JSON.stringify(body));
  const result = readBytes(endpoint, bytes);
  const value = parsed(bytes);
  if (isObject(value)) expect(result).to.deep.equal(plain(shapeOf(endpoint, value)));
  return outcome(result);
}

function readBytes(endpoint: Endpoint, bytes: Uint8Array): ShapeResult {
  return plain(readShape(endpoint, shapeReader(bytes)));
}

/** Without the places of the values. */
function plain(result: ShapeResult | LocatedShape): ShapeResult {
  return result.ok ? { ok: true, shape: result.shape } : result;
}

function isObject(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function outcome(result: ShapeResult): RequestShape | string {
  if (result.ok) return result.shape;
  expect(result.rejection).to.deep.include({ code: "invalid_request", status: 400 });
  return result.rejection.message;
}

function shape(endpoint: Endpoint, fields: Record<string, unknown>): RequestShape {
  const result = read(endpoint, { model: "demo", ...fields });
  if (typeof result === "string") throw new Error(result);
  return result;
}

describe("identity/shape", () => {
  it("reads a body that says nothing but its model", () => {
    for (const endpoint of ENDPOINTS) {
      expect(shape(endpoint, {})).to.deep.equal({
        model: "demo",
        stream: false,
        multiplicity: 1,
        outputLimitTokens: undefined,
        tools: false,
        structured: false,
        reasoning: false,
      });
    }
  });

  it("reads the limit of each dialect, times the number of answers", () => {
    const table: readonly (readonly [Endpoint, Record<string, unknown>, number, number])[] = [
      ["chat", { max_completion_tokens: 100, max_tokens: 7, n: 3 }, 3, 300],
      ["chat", { max_tokens: 7 }, 1, 7],
      ["chat", { max_completion_tokens: "100", max_tokens: 7 }, 1, 7],
      ["chat", { max_tokens: 7, best_of: 5 }, 1, 7],
      ["completions", { max_tokens: 10, n: 2 }, 2, 20],
      ["completions", { max_tokens: 10, n: 2, best_of: 5 }, 5, 50],
      ["completions", { max_tokens: 10, n: 5, best_of: 2 }, 5, 50],
      ["messages", { max_tokens: 10, n: 4 }, 1, 10],
      ["responses", { max_output_tokens: 10, max_tokens: 99, n: 4 }, 1, 10],
      ["generate", { sampling_params: { max_new_tokens: 10, n: 4 }, max_tokens: 9, n: 9 }, 4, 40],
    ];
    for (const [endpoint, fields, multiplicity, outputLimitTokens] of table) {
      expect(shape(endpoint, fields), JSON.stringify(fields)).to.deep.include({
        multiplicity,
        outputLimitTokens,
      });
    }
  });

  it("knows no limit and no multiplicity where no tokens are produced", () => {
    for (const endpoint of ["embeddings", "rerank", "score"] as const) {
      expect(shape(endpoint, { max_tokens: 5, n: 3, best_of: 3, stream: true })).to.deep.include({
        multiplicity: 1,
        outputLimitTokens: undefined,
        stream: false,
      });
    }
  });

  it("saturates limit times multiplicity at 2^32 - 1", () => {
    const limit = (max_tokens: number, n: number): number | undefined =>
      shape("chat", { max_tokens, n }).outputLimitTokens;
    expect(limit(4_294_967_295, 1)).to.equal(4_294_967_295);
    expect(limit(4_294_967_296, 1)).to.equal(4_294_967_295);
    expect(limit(2_147_483_648, 2)).to.equal(4_294_967_295);
    expect(limit(2_147_483_647, 2)).to.equal(4_294_967_294);
    expect(limit(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)).to.equal(4_294_967_295);
  });

  it("saturates the number of answers at 2^32 - 1", () => {
    expect(shape("chat", { n: 1e12 }).multiplicity).to.equal(4_294_967_295);
    expect(shape("chat", { n: 1e12, max_tokens: 0 }).outputLimitTokens).to.equal(0);
  });

  it("keeps a limit of 0 (echo and scoring requests) and takes n of 0 as 1", () => {
    expect(shape("completions", { max_tokens: 0 }).outputLimitTokens).to.equal(0);
    expect(shape("chat", { max_tokens: 5, n: 0 })).to.deep.include({
      multiplicity: 1,
      outputLimitTokens: 5,
    });
    expect(read("completions", '{"model":"m","max_tokens":-0}')).to.deep.include({
      outputLimitTokens: 0,
    });
  });

  it("reads wrongly typed optional fields as absent: the engine answers those", () => {
    for (const wrong of ["2", -1, 1.5, true, null, [2], { a: 2 }]) {
      expect(
        shape("chat", { n: wrong, max_tokens: wrong, max_completion_tokens: wrong }),
      ).to.include({
        multiplicity: 1,
        outputLimitTokens: undefined,
      });
    }
    for (const wrong of [1, "true", null, [true], {}]) {
      expect(shape("chat", { stream: wrong }).stream).to.equal(false);
    }
    for (const wrong of [null, 1, "x", [{ max_new_tokens: 5 }]]) {
      expect(shape("generate", { sampling_params: wrong })).to.include({
        multiplicity: 1,
        outputLimitTokens: undefined,
      });
    }
    expect(read("chat", '{"model":"m","n":1e400,"max_tokens":2e1}')).to.deep.include({
      multiplicity: 1,
      outputLimitTokens: 20,
    });
  });

  it("streams only on true, at every endpoint that produces tokens", () => {
    for (const endpoint of TOKEN_ENDPOINTS) {
      expect(shape(endpoint, { stream: true }).stream).to.equal(true);
      expect(shape(endpoint, { stream: false }).stream).to.equal(false);
    }
  });

  it("sees tools, structured output and reasoning in every dialect", () => {
    const flags = (endpoint: Endpoint, fields: Record<string, unknown>): string => {
      const { tools, structured, reasoning } = shape(endpoint, fields);
      return [tools ? "tools" : "", structured ? "structured" : "", reasoning ? "reasoning" : ""]
        .filter((flag) => flag !== "")
        .join(" ");
    };
    const table: readonly (readonly [Endpoint, Record<string, unknown>, string])[] = [
      ["chat", { tools: [{ type: "function" }] }, "tools"],
      ["chat", { tools: [] }, ""],
      ["chat", { tools: { a: 1 } }, ""],
      ["chat", { tools: "x" }, ""],
      ["chat", { response_format: { type: "json_schema", json_schema: {} } }, "structured"],
      ["chat", { response_format: { type: "text" } }, ""],
      ["chat", { response_format: "json" }, ""],
      ["chat", { guided_json: { type: "object" } }, "structured"],
      ["chat", { guided_choice: [] }, ""],
      ["chat", { guided_regex: null }, ""],
      ["responses", { text: { format: { type: "json_object" } } }, "structured"],
      ["responses", { text: { format: { type: "text" } } }, ""],
      ["messages", { output_config: { format: { type: "json_schema" } } }, "structured"],
      ["generate", { sampling_params: { regex: "a+" } }, "structured"],
      ["generate", { sampling_params: { json_schema: null } }, ""],
      ["chat", { reasoning_effort: "high" }, "reasoning"],
      ["chat", { reasoning_effort: "none" }, ""],
      ["chat", { reasoning_effort: 1 }, ""],
      ["responses", { reasoning: { effort: "low" } }, "reasoning"],
      ["responses", { reasoning: {} }, "reasoning"],
      ["responses", { reasoning: { effort: "none" } }, ""],
      ["responses", { reasoning: null }, ""],
      ["messages", { thinking: { type: "enabled", budget_tokens: 5 } }, "reasoning"],
      ["messages", { thinking: { type: "disabled" } }, ""],
      ["chat", { tools: [1], ebnf: "x", reasoning_effort: "low" }, "tools structured reasoning"],
    ];
    for (const [endpoint, fields, expected] of table) {
      expect(flags(endpoint, fields), JSON.stringify(fields)).to.equal(expected);
    }
  });

  it("takes the last of several model fields, as the engine does", () => {
    expect(read("chat", '{"model":"a","mod\\u0065l":"b"}')).to.deep.include({ model: "b" });
    expect(read("chat", '{"model":"a","model":7}')).to.equal(
      'field "model" must be a non-empty string: found 7',
    );
  });

  it("names the field when the model is missing, empty or of another type", () => {
    const missing = 'field "model" must be a non-empty string: it is missing';
    for (const endpoint of ENDPOINTS.filter((one) => one !== "generate")) {
      expect(read(endpoint, {})).to.equal(missing);
      expect(read(endpoint, { Model: "demo", metadata: { model: "demo" } })).to.equal(missing);
    }
    const found: readonly (readonly [unknown, string])[] = [
      ["", "an empty string"],
      [null, "null"],
      [5, "5"],
      [true, "true"],
      [["demo"], "an array"],
      [{ name: "demo" }, "an object"],
    ];
    for (const [model, what] of found) {
      const message = `field "model" must be a non-empty string: found ${what}`;
      expect(read("chat", { model })).to.equal(message);
    }
  });

  it("leaves the model of /generate open when it is absent or null, not when it is wrong", () => {
    expect(read("generate", { text: "hello" })).to.deep.include({ model: undefined });
    expect(read("generate", { model: null })).to.deep.include({ model: undefined });
    expect(read("generate", { model: "demo" })).to.deep.include({ model: "demo" });
    for (const model of ["", 5, {}]) expect(read("generate", { model })).to.be.a("string");
  });

  it("takes a model name of 512 characters and refuses 513", () => {
    const tooLong = 'field "model" is too long: at most 512 characters are allowed';
    expect(read("chat", { model: "m".repeat(512) })).to.be.an("object");
    expect(read("chat", { model: "m".repeat(513) })).to.equal(tooLong);
    // As long as 512 characters can be written, and longer than any.
    const escaped = (count: number): string => `{"model":"${"\\ud83d".repeat(count)}"}`;
    expect(read("chat", escaped(512))).to.deep.include({ model: "\ud83d".repeat(512) });
    expect(read("chat", escaped(513))).to.equal(tooLong);
    expect(read("chat", { model: "é".repeat(1 << 20) })).to.equal(tooLong);
  });

  it("looks at no more of a long string or number than it needs", () => {
    const long = "x".repeat(1 << 20);
    expect(shape("chat", { response_format: { type: long } }).structured).to.equal(true);
    expect(shape("chat", { reasoning_effort: long, stream: long }).reasoning).to.equal(true);
    const number = (digits: number): string => `{"model":"m","max_tokens":0.${"0".repeat(digits)}}`;
    expect(read("chat", number(65_534))).to.deep.include({ outputLimitTokens: 0 });
    expect(outcome(readBytes("chat", utf8(number(65_535))))).to.deep.include({
      outputLimitTokens: undefined,
    });
    expect(read("chat", `{"model":"m","n":${"1".repeat(300)}}`)).to.deep.include({
      multiplicity: 4_294_967_295,
    });
  });

  it("refuses a body that is empty or no JSON object, and says what it is", () => {
    expect(read("chat", "")).to.equal("the request body is empty: a JSON object is needed");
    expect(read("chat", "  ")).to.equal("the request body must be a JSON object: found nothing");
    expect(read("chat", "[]")).to.equal("the request body must be a JSON object: found an array");
    expect(read("chat", "<a>")).to.equal(
      "the request body must be a JSON object: found something that is not JSON",
    );
    for (const body of ['"x"', "1", "null", "true"]) {
      expect(read("chat", body)).to.match(/^the request body must be a JSON object/);
    }
  });

  it("refuses malformed JSON with its place, wherever that is", () => {
    const malformed = (at: number): string =>
      `the request body is not valid JSON: at byte ${at.toString()}`;
    expect(read("chat", '{"model":"demo",}')).to.equal(malformed(16));
    expect(read("chat", '{"model":"demo"}{}')).to.equal(malformed(16));
    expect(read("chat", '{"model":"demo","messages":[1,]}')).to.equal(malformed(30));
    expect(read("chat", '{"model":"demo"')).to.equal(
      "the request body is not valid JSON: it breaks off",
    );
  });

  it("tolerates one byte order mark", () => {
    expect(read("chat", '\ufeff{"model":"demo"}')).to.deep.include({ model: "demo" });
  });

  it("refuses invalid UTF-8 anywhere in a string, with its place", () => {
    for (const at of [11, 21]) {
      const bytes = utf8('{"model":"aXb","p":"cXd"}');
      bytes[at] = 0xc0;
      expect(outcome(readBytes("chat", bytes))).to.equal(
        `the request body is not valid UTF-8 at byte ${at.toString()}`,
      );
    }
  });

  it("takes 512 levels of nesting and refuses 513", () => {
    const nested = (levels: number): string =>
      `\ufeff {"model":"demo","p":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;
    expect(read("chat", nested(512))).to.deep.include({ model: "demo" });
    for (const levels of [513, 100_000]) {
      expect(outcome(readBytes("chat", utf8(nested(levels))))).to.equal(
        "the request body nests deeper than 512 levels",
      );
    }
  });

  it("reads bodies of all sizes alike, faults at their end too", () => {
    for (const length of [1_000, 65_536, 65_537, 262_144, 262_145, 5_000_000]) {
      const body = (end: string): RequestShape | string => {
        const frame = `{"p":"","n":2,"model":"demo"${end}`;
        const filler = "x".repeat(length - frame.length);
        return outcome(readBytes("chat", utf8(frame.replace('""', `"${filler}"`))));
      };
      expect(body("}")).to.deep.include({ model: "demo", multiplicity: 2 });
      expect(body(',"q":[1,]}')).to.equal(
        `the request body is not valid JSON: at byte ${(length - 2).toString()}`,
      );
      expect(body("")).to.equal("the request body is not valid JSON: it breaks off");
    }
  });

  it("takes an object of any number of keys", () => {
    const keys = Array.from({ length: 100_000 }, (_, index) => `"k${index.toString()}":1`).join();
    const body = `{"model":"a",${keys},"sampling_params":{${keys},"n":3},"model":"demo"}`;
    expect(read("generate", body)).to.deep.include({ model: "demo", multiplicity: 3 });
  });

  it("finds the model behind 20 MB of image, text with escapes, token ids and repeated keys", () => {
    const fillers = {
      image: `"p":"${"QUJD".repeat(5_000_000)}"`,
      escapes: `"p":"${'\\"a\\n'.repeat(4_000_000)}"`,
      ids: `"p":[${"12345,".repeat(3_500_000)}1]`,
      nested: `"p":[${'{"a":"b"},'.repeat(2_000_000)}1]`,
    };
    for (const [what, filler] of Object.entries(fillers)) {
      const body = utf8(`{"n":2,${filler},"model":"demo","max_tokens":5,"stream":true}`);
      expect(body.length, what).to.be.greaterThan(20_000_000);
      const result = readBytes("chat", body);
      expect(outcome(result), what).to.deep.include({
        model: "demo",
        stream: true,
        multiplicity: 2,
        outputLimitTokens: 10,
      });
    }
  }).timeout(20_000);

  it("gives the shape of the parsed value, for any JSON object", () => {
    fc.assert(
      fc.property(fc.constantFrom(...ENDPOINTS), objectText(), (endpoint, text) => {
        expect(isObject(parsed(utf8(text)))).to.equal(true);
        read(endpoint, text);
      }),
      { numRuns: 1000 },
    );
  });

  it("gives the same shape for any object of fast-check's own, and any way to write it", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...ENDPOINTS),
        fc.dictionary(anyKey(), fc.jsonValue()),
        (endpoint, object) => {
          for (const text of [JSON.stringify(object), JSON.stringify(object, null, 2)]) {
            read(endpoint, text);
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it("gives a shape for a damaged body exactly when it still is a JSON object", () => {
    fc.assert(
      fc.property(damagedText(), (bytes) => {
        const value = parsed(bytes);
        const result = readBytes("generate", bytes);
        if (isObject(value)) expect(result).to.deep.equal(plain(shapeOf("generate", value)));
        else expect(outcome(result)).to.match(/^the request body /);
      }),
      { numRuns: 1000 },
    );
  });
});

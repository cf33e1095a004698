// Bodies are built as text where the text matters (escapes, repeated keys, blanks); JSON.parse is the
// oracle of the property: whatever it accepts must give the same shape on both ways.

import { expect } from "chai";
import fc from "fast-check";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import {
  FULL_PARSE_MAX_BYTES,
  readShape,
  readShapeByParsing,
  readShapeByScanning,
  type RequestShape,
  type ShapeResult,
} from "../../../extproc/core/identity/shape.js";
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

/** Reads on both ways, which must agree, and gives the shape or the refusal's message. */
function read(endpoint: Endpoint, body: unknown): RequestShape | string {
  const bytes = utf8(typeof body === "string" ? body : JSON.stringify(body));
  const parsed = readShapeByParsing(endpoint, bytes);
  expect(readShapeByScanning(endpoint, bytes)).to.deep.equal(parsed);
  return outcome(parsed);
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
    expect(read("chat", { model: "m".repeat(512) })).to.be.an("object");
    expect(read("chat", { model: "m".repeat(513) })).to.equal(
      'field "model" has 513 characters: at most 512 are allowed',
    );
  });

  it("refuses a body that is empty or no JSON object, and says what it is", () => {
    expect(read("chat", "")).to.equal("the request body is empty: a JSON object is needed");
    expect(read("chat", "  ")).to.equal("the request body must be a JSON object: found nothing");
    expect(read("chat", "[]")).to.equal("the request body must be a JSON object: found an array");
    expect(read("chat", "<a>")).to.equal(
      "the request body must be a JSON object: found something that is not JSON",
    );
    for (const body of ['"x"', "1", "null", "true"]) {
      for (const way of [readShapeByParsing, readShapeByScanning]) {
        expect(outcome(way("chat", utf8(body)))).to.match(
          /^the request body must be a JSON object/,
        );
      }
    }
  });

  it("refuses malformed JSON with its place", () => {
    expect(read("chat", '{"model":"demo",}')).to.equal(
      "the request body is not valid JSON at byte 16",
    );
    expect(read("chat", '{"model":"demo"')).to.equal(
      "the request body is not valid JSON at byte 15",
    );
    expect(read("chat", '{"model":"demo"}{}')).to.equal(
      "the request body is not valid JSON at byte 16",
    );
  });

  it("refuses what only a full parse sees, without a place", () => {
    const body = utf8('{"model":"demo","messages":[1,]}');
    expect(outcome(readShapeByParsing("chat", body))).to.equal(
      "the request body is not valid JSON",
    );
    expect(readShapeByScanning("chat", body).ok).to.equal(true);
  });

  it("tolerates one byte order mark", () => {
    expect(read("chat", '\ufeff{"model":"demo"}')).to.deep.include({ model: "demo" });
  });

  it("refuses invalid UTF-8: anywhere in a small body, in what is read of a large one", () => {
    const inModel = utf8('{"model":"aXb","p":"cXd"}');
    inModel[11] = 0xc0;
    for (const way of [readShapeByParsing, readShapeByScanning]) {
      expect(outcome(way("chat", inModel))).to.equal("the request body is not valid UTF-8");
    }
    const inPrompt = utf8('{"model":"aXb","p":"cXd"}');
    inPrompt[21] = 0xff;
    expect(outcome(readShapeByParsing("chat", inPrompt))).to.equal(
      "the request body is not valid UTF-8",
    );
    expect(readShapeByScanning("chat", inPrompt).ok).to.equal(true);
  });

  it("takes 512 levels of nesting and refuses 513, on both ways", () => {
    const nested = (levels: number): string =>
      `\ufeff {"model":"demo","p":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;
    expect(read("chat", nested(512))).to.deep.include({ model: "demo" });
    expect(read("chat", nested(513))).to.equal("the request body nests deeper than 512 levels");
    expect(read("chat", nested(100_000))).to.equal("the request body nests deeper than 512 levels");
  });

  it("parses 262144 bytes whole and scans one more", () => {
    // The fault inside a skipped value tells the two ways apart.
    const body = (length: number): Uint8Array => {
      const frame = '{"model":"demo","p":["",]}';
      return utf8(frame.replace('""', `"${"x".repeat(length - frame.length)}"`));
    };
    expect(body(FULL_PARSE_MAX_BYTES).length).to.equal(262_144);
    expect(readShape("chat", body(262_144)).ok).to.equal(false);
    expect(readShape("chat", body(262_145)).ok).to.equal(true);
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
      const result = readShape("chat", body);
      expect(outcome(result), what).to.deep.include({
        model: "demo",
        stream: true,
        multiplicity: 2,
        outputLimitTokens: 10,
      });
    }
  }).timeout(20_000);

  it("gives the same shape by parsing and by scanning, for any JSON object", () => {
    fc.assert(
      fc.property(fc.constantFrom(...ENDPOINTS), objectText(), (endpoint, text) => {
        const bytes = utf8(text);
        expect(() => JSON.parse(text) as unknown).to.not.throw();
        expect(readShapeByScanning(endpoint, bytes)).to.deep.equal(
          readShapeByParsing(endpoint, bytes),
        );
      }),
      { numRuns: 1000 },
    );
  });

  it("gives the same shape for any object of fast-check's own, and any way to write it", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...ENDPOINTS),
        fc.dictionary(anyKey(), fc.jsonValue()),
        (e, o) => {
          for (const text of [JSON.stringify(o), JSON.stringify(o, null, 2)]) {
            const bytes = utf8(text);
            expect(readShapeByScanning(e, bytes)).to.deep.equal(readShapeByParsing(e, bytes));
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it("never accepts by parsing what the scan refuses, and never throws, for damaged bodies", () => {
    const damaged = fc.tuple(objectText(), fc.nat(), fc.nat({ max: 255 }), fc.boolean());
    fc.assert(
      fc.property(damaged, ([text, place, byte, cut]) => {
        const bytes = utf8(text);
        const at = place % bytes.length;
        const broken = cut ? bytes.slice(0, at) : bytes;
        if (!cut) broken[at] = byte;
        const parsed = readShapeByParsing("chat", broken);
        const scanned = readShapeByScanning("chat", broken);
        if (parsed.ok) expect(scanned).to.deep.equal(parsed);
      }),
      { numRuns: 1000 },
    );
  });
});

const KEYS = [
  "model",
  "stream",
  "n",
  "best_of",
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "max_new_tokens",
  "sampling_params",
  "tools",
  "text",
  "format",
  "type",
  "response_format",
  "reasoning",
  "reasoning_effort",
  "effort",
  "thinking",
  "guided_json",
  "regex",
  "json_schema",
  "__proto__",
  "messages",
  "",
];

function anyKey(): fc.Arbitrary<string> {
  return fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...KEYS) },
    fc.string({ unit: "binary" }),
  );
}

/** JSON text of an object: random blanks, escapes, repeated keys, nesting, numbers of any form. */
function objectText(): fc.Arbitrary<string> {
  const blank = fc.constantFrom("", "", "", " ", "\n", "\t\r\n ");
  const escaped = (text: string, how: readonly boolean[]): string => {
    const char = (one: string, at: number): string =>
      how[at % how.length] === true ? unicode(one) : JSON.stringify(one).slice(1, -1);
    return `"${Array.from(text, char).join("")}"`;
  };
  const how = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 });
  const plain = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.constantFrom(
      'a"b',
      "\\",
      '\\"',
      "text",
      "none",
      "json_schema",
      "{[",
      "\u{1f600}",
      "x".repeat(80),
    ),
  );
  const string = fc.tuple(plain, how).map(([text, flags]) => escaped(text, flags));
  const number = fc.oneof(
    fc.constantFrom("0", "-0", "1", "2", "1.0", "2e1", "1E+2", "1e400", "-1", "0.5", "4294967296"),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  );
  const { object } = fc.letrec<{ value: string; object: string; array: string }>((tie) => ({
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constantFrom("true", "false", "null"),
      number,
      string,
      tie("object"),
      tie("array"),
    ),
    array: fc
      .tuple(fc.array(tie("value"), { maxLength: 3 }), blank)
      .map(([values, gap]) => `[${gap}${values.join(`${gap},`)}${gap}]`),
    object: fc
      .tuple(fc.array(fc.tuple(anyKey(), how, tie("value")), { maxLength: 8 }), blank, blank)
      .map(([entries, before, after]) => {
        const members = entries.map(
          ([name, flags, value]) => `${before}${escaped(name, flags)}${after}:${before}${value}`,
        );
        return `${before}{${members.join(`${after},`)}${after}}${before}`;
      }),
  }));
  return object;
}

function unicode(char: string): string {
  return [...Array(char.length).keys()]
    .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, "0")}`)
    .join("");
}

import { expect } from "chai";
import fc from "fast-check";
import {
  readExposition,
  SAMPLES_MAX,
  type Sample,
} from "../../../extproc/edge/engines/exposition.js";

const WANTED = new Set(["up", "vllm:num_requests_waiting"]);

function samples(text: string): readonly Sample[] {
  const read = readExposition(text, WANTED);
  if (read.kind === "malformed") throw new Error(read.detail);
  return [...read.samples.values()].flat();
}

function detail(text: string): string {
  const read = readExposition(text, WANTED);
  return read.kind === "malformed" ? read.detail : "it was read";
}

describe("readExposition", () => {
  it("never takes a longer name for a wanted one: num_requests_waiting_by_reason is another metric", () => {
    const text =
      `vllm:num_requests_waiting_by_reason{reason="capacity"} 9\n` +
      `vllm:num_requests_waiting 4\nnot_vllm:num_requests_waiting 5\nupper 1\n`;
    expect(samples(text)).to.deep.equal([{ labels: new Map(), value: 4 }]);
  });

  it("reads labels with escapes, blanks, commas and braces in their values", () => {
    const line = `up { a = "x,}\\"\\\\\\n" , b="", } 1.5e3 1395066363000`;
    expect(samples(`${line}\n`)).to.deep.equal([
      {
        labels: new Map([
          ["a", 'x,}"\\\n'],
          ["b", ""],
        ]),
        value: 1500,
      },
    ]);
  });

  for (const [text, value] of [
    ["0", 0],
    ["-0.5", -0.5],
    ["+12.", 12],
    [".25", 0.25],
    ["8.128902e+06", 8_128_902],
    ["NaN", Number.NaN],
    ["+Inf", Number.POSITIVE_INFINITY],
    ["-Inf", Number.NEGATIVE_INFINITY],
  ] as const) {
    it(`reads the value ${text}`, () => {
      expect(samples(`up ${text}\n`)[0]?.value).to.deep.equal(value);
    });
  }

  it("passes over comments, empty lines, carriage returns and metrics that nobody asked for", () => {
    const text = `# HELP up {\r\n\r\n  \n#\nother{broken 1\nup 1\r\n# EOF\n`;
    expect(samples(text)).to.deep.equal([{ labels: new Map(), value: 1 }]);
  });

  for (const [symptom, text, where] of [
    ["an HTML page", "<html>\n<body>up 1\n", "line 1: it does not begin with a metric name"],
    ["a name that begins with a digit", "1up 1\n", "line 1: it does not begin with a metric name"],
    ["a name with a dash", "vllm-up 1\n", "line 1: it does not begin with a metric name"],
    ["JSON", `{"loads": []}\n`, "line 1: it does not begin with a metric name"],
    ["a text cut in a line", "up 1\nup{a=", "line 2: the text ends within a line"],
    ["a value that is no number", "up 0x10\n", "line 1: up: the value is no number"],
    ["a value that is missing", "up\n", "line 1: up: the value is no number"],
    ["a timestamp that is no number", "up 1 now\n", "line 1: up: the timestamp is no number"],
    ["a third number", "up 1 2 3\n", "line 1: up: there is more after the timestamp"],
    ["labels that do not end", `up{a="1" 1\n`, "line 1: up: the labels do not end"],
    ["a label without quotes", "up{a=1} 1\n", "line 1: up: the value of label a is not quoted"],
    ["a label without a value", "up{a} 1\n", "line 1: up: label a has no value"],
    ["a label that does not end", `up{a="1} 1\n`, "line 1: up: the value of label a does not end"],
    ["a label twice", `up{a="1",a="2"} 1\n`, "line 1: up: label a stands twice"],
    [
      "an unknown escape",
      `up{a="\\t"} 1\n`,
      "line 1: up: the value of label a has an unknown escape",
    ],
    ["a series twice", `up{a="1",b=""} 1\nup{a="1"} 2\n`, "line 2: up: the same series twice"],
  ] as const) {
    it(`is malformed by ${symptom}`, () => {
      expect(detail(text)).to.equal(where);
    });
  }

  it("reads up to SAMPLES_MAX samples and not one more", () => {
    const lines = Array.from({ length: SAMPLES_MAX }, (_, index) => `up{a="${String(index)}"} 1\n`);
    expect(samples(lines.join(""))).to.have.length(16_384);
    expect(detail([...lines, "up 1\n"].join(""))).to.equal("line 16385: more than 16384 samples");
  });

  it("never throws, whatever the text", () => {
    const piece = fc.constantFrom("up", "{", "}", '"', "\\", "=", ",", " ", "\n", "1", "NaN", "a");
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
        expect(readExposition(pieces.join(""), WANTED).kind).to.be.oneOf(["samples", "malformed"]);
      }),
    );
  });

  it("reads back whatever label value and number were written", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.double(), (label, value) => {
        const escaped = label.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n");
        const number = Number.isFinite(value) ? String(value) : String(value).replace("inity", "");
        const [read] = samples(`up{a="${escaped}"} ${number}\n`);
        expect(read?.labels.get("a")).to.equal(label);
        // A text has no -0.
        expect(Object.is(read?.value, value === 0 ? 0 : value)).to.equal(true);
      }),
    );
  });
});

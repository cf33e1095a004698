// How much of a body is read for its prompt, and what is known of one that would take too much work:
// the text gathered till then, and a length that is estimated from the bytes. Work is seen here by
// what was not read, never by the clock.

import { expect } from "chai";
import fc from "fast-check";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import {
  LENGTH_ONLY_SHARE,
  readPrompt,
  type PromptContent,
} from "../../../extproc/core/identity/prompt.js";
import { PROMPT_STEPS_MAX } from "../../../extproc/core/identity/prompt-scan.js";
import { readShape, shapeReader } from "../../../extproc/core/identity/shape.js";
import { utf8 } from "./support.js";

const MESSAGE = "\u0081";
const VALUE = "\u0082";
const LIMITS = { maxChars: 65_536, maxTokens: 4_096 };
const LENGTH_ONLY = { maxChars: 1, maxTokens: 1 };
/** A step is 256 bytes. */
const LOOK_BYTES = PROMPT_STEPS_MAX * 256;

function read(endpoint: Endpoint, body: string, limits = LIMITS): PromptContent | undefined {
  return readPrompt(endpoint, utf8(body), limits);
}

function textOf(prompt: PromptContent | undefined): string | undefined {
  return prompt?.kind === "text" ? prompt.text : undefined;
}

function many(unit: string, bytes: number): string {
  return unit.repeat(Math.floor(bytes / unit.length));
}

describe("identity/prompt: work", () => {
  const blanks = " ".repeat(LOOK_BYTES + 1);
  const last = '{"role":"user","content":"last"}';

  /** Bodies whose last message is out of reach, at the place that takes the work. */
  const hostile: Readonly<Record<string, string>> = {
    "blanks in tools": `"tools":[${blanks}1],"messages":[${last}]`,
    "blanks in a state": `"cache_salt":[${blanks}1],"messages":[${last}]`,
    "blanks before a message": `"messages":[${blanks}${last}]`,
    "blanks behind a message": `"messages":[{"role":"u","content":""}${blanks},${last}]`,
    "blanks in a message": `"messages":[{"role":"u",${blanks}"content":""},${last}]`,
    "blanks before a value": `"messages":[{"role":${blanks}"u"},${last}]`,
    "blanks in a part": `"messages":[{"content":[{"type":"image_url","image_url":[${blanks}]}]},${last}]`,
    "blanks in arguments": `"messages":[{"tool_calls":[{"function":{"arguments":[${blanks}]}}]},${last}]`,
    "a long number": `"messages":[{"content":${"1".repeat(LOOK_BYTES)}},${last}]`,
    "empty tool calls": `"messages":[{"tool_calls":[${many("{},", LOOK_BYTES)}{}]},${last}]`,
    "empty arrays": `"messages":[{"content":[${many("[],", LOOK_BYTES)}1]},${last}]`,
    nests: `"messages":[${many(`${"[".repeat(500)}${"]".repeat(500)},`, LOOK_BYTES)}${last}]`,
    "short strings": `"messages":[{"content":[${many(`"${"a".repeat(4_000)}",`, LOOK_BYTES)}""]},${last}]`,
  };
  for (const [name, inside] of Object.entries(hostile)) {
    it(`stops reading at ${name}, and estimates the length`, () => {
      const body = `{"model":"m",${inside}}`;
      const prompt = read("chat", body, { ...LIMITS, maxChars: Number.MAX_SAFE_INTEGER });
      expect(textOf(prompt)).to.be.a("string").that.does.not.contain("last");
      expect(prompt?.inputTokens).to.be.within(LOOK_BYTES / 5, LOOK_BYTES / 3);
    });
  }

  it("passes blanks as far as the steps reach, and not one more", () => {
    // Beside the blanks: two elements and two keys each, and 32 bytes of either message.
    const message = (content: string): string => `{"role":"user","content":"${content}"}`;
    const rest = 6 * 256 + message("a").length + message("b").length;
    const body = (count: number): string =>
      `{"messages":[${message("a")},${" ".repeat(count)}${message("b")}]}`;
    const both = `${MESSAGE}user${VALUE}a${MESSAGE}user${VALUE}b`;
    expect(textOf(read("chat", body(LOOK_BYTES - rest)))).to.equal(both);
    expect(textOf(read("chat", body(LOOK_BYTES - rest + 1)))).to.equal(both.slice(0, 7));
  });

  it("takes no steps for long strings, so pictures of any size stand in reach", () => {
    const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,${"A".repeat(LOOK_BYTES)}"}}`;
    const body = `{"messages":[{"role":"user","content":[${image},${image},"x"]}]}`;
    expect(textOf(read("chat", body))?.endsWith("x")).to.equal(true);
    expect(read("chat", body)?.inputTokens).to.equal(1);
  });

  it("does half of the work where only the length is wanted", () => {
    expect(LENGTH_ONLY_SHARE).to.equal(1 / 2);
    // Four steps and 256 bytes are five steps: of a message, one element and two keys are three.
    const message = `{"role":"user","content":"${"a b ".repeat(64).slice(0, 228)}"}`;
    expect(message.length).to.equal(256);
    const body = (count: number): string =>
      `{"messages":[${Array.from({ length: count }, () => message).join(",")}]}`;
    const fitting = PROMPT_STEPS_MAX / 2 / 4;
    expect(read("chat", body(fitting), LENGTH_ONLY)?.inputTokens).to.equal(
      Math.ceil((fitting * 228) / 4),
    );
    // The one that is not looked at and the closing bracket count as they stand.
    expect(read("chat", body(fitting + 1), LENGTH_ONLY)?.inputTokens).to.equal(
      Math.ceil((fitting * 228 + 257) / 4),
    );
    expect(read("chat", body(fitting + 1), { ...LIMITS, maxChars: 2 })?.inputTokens).to.equal(
      Math.ceil(((fitting + 1) * 228) / 4),
    );
  });

  it("reads half of the tokens where only the length is wanted", () => {
    const ids = (count: number): string => `{"prompt":[${many("123456,", 7 * count)}"x"]}`;
    expect(read("completions", ids(65_535), LENGTH_ONLY)).to.equal(undefined);
    expect(read("completions", ids(65_536), LENGTH_ONLY)?.inputTokens).to.equal(65_536);
    expect(read("completions", ids(65_536))).to.equal(undefined);
  });

  it("knows the length of a message that is too large to be read", () => {
    const one = `{"type":"text","text":"${"word ".repeat(700)}"},`;
    const body = `{"messages":[{"role":"user","content":[${many(one, 9 << 20)}""]}]}`;
    for (const limits of [LIMITS, LENGTH_ONLY]) {
      const prompt = read("chat", body, limits);
      expect(prompt?.kind).to.equal("text");
      expect(prompt?.inputTokens).to.be.within(2_300_000, 2_400_000);
    }
  });

  it("knows the length of many prompts that begin with an empty one", () => {
    const body = `{"prompt":["",${many('"word",', 1 << 20)}""]}`;
    const prompt = read("completions", body);
    expect(textOf(prompt)).to.equal("");
    expect(prompt?.inputTokens).to.be.within(1 << 17, 1 << 18);
    expect(read("completions", '{"prompt":["","12345678"]}')?.inputTokens).to.equal(2);
  });

  it("leaves pictures out of the length of what is not read, and no long text", () => {
    const tail = (content: string): number => {
      const body = `{"messages":[${many("{},", LOOK_BYTES)}{"role":"user","content":"${content}"}]}`;
      return read("chat", body)?.inputTokens ?? 0;
    };
    const short = tail("");
    expect(tail("A".repeat(400_000)) - short).to.equal(0);
    expect(tail(`data:image/png;base64,${"A".repeat(400_000)}`) - short).to.equal(0);
    expect(tail("word ".repeat(80_000)) - short).to.equal(100_000);
    expect(tail("字".repeat(100_000)) - short).to.equal(75_000);
  });

  it("gives the same prompt from what the shape's reader has located", () => {
    const value = fc.constantFrom('"a"', '[{"role":"user","content":"b"}]', "[1,2]", "null", "{}");
    const key = fc.constantFrom("messages", "tools", "prompt", "text", "input", "cache_salt");
    fc.assert(
      fc.property(
        fc.array(fc.tuple(key, value), { maxLength: 6 }),
        fc.constantFrom<Endpoint>("chat", "responses", "completions", "generate"),
        (pairs, endpoint) => {
          const keys = [["model", '"m"'] as const, ...pairs];
          const body = utf8(`{${keys.map(([k, v]) => `"${k}":${v}`).join(",")}}`);
          const shape = readShape(endpoint, shapeReader(body));
          const root = shape.ok ? shape.root : expect.fail("no shape");
          expect(readPrompt(endpoint, body, LIMITS, root)).to.deep.equal(
            readPrompt(endpoint, body, LIMITS),
          );
        },
      ),
      { numRuns: 200 },
    );
  });
});

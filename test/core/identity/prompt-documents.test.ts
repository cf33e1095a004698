// Documents, search results and files in messages: text in them is text, whole and counted, wherever
// it stands; only what looks like data is known by samples.

import { expect } from "chai";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import { readPrompt, type PromptContent } from "../../../extproc/core/identity/prompt.js";
import { utf8 } from "./support.js";

const MESSAGE = "\u0081";
const VALUE = "\u0082";
const FIELD = "\u0083";
const PART = "\u0084";
const OPEN = "\u0085";
const CLOSE = "\u0086";
const REFERENCE = "\u0087";

function read(endpoint: Endpoint, body: unknown): PromptContent | undefined {
  const limits = { maxChars: 65_536, maxTokens: 4_096 };
  return readPrompt(endpoint, utf8(JSON.stringify(body)), limits);
}

function ofParts(...content: readonly unknown[]): PromptContent | undefined {
  return read("messages", { messages: [{ role: "user", content }] });
}

function textOf(prompt: PromptContent | undefined): string | undefined {
  return prompt?.kind === "text" ? prompt.text : undefined;
}

const field = (name: string, content: string): string => `${FIELD}${name}${VALUE}${content}`;
const part = (kind: string, content: string): string => `${OPEN}${kind}${VALUE}${content}${CLOSE}`;
const inUser = (content: string): string => `${MESSAGE}user${VALUE}${content}`;

/** 3.6 kB that differ from one another in five digits. */
function invoice(number: number): string {
  const terms = "Terms and conditions apply as agreed. ".repeat(30);
  return `${terms}Customer number ${String(number)}. ${"Further remarks: none. ".repeat(100)}`;
}

describe("identity/prompt: documents", () => {
  const source = (data: string): unknown => ({ type: "text", media_type: "text/plain", data });
  const result = (content: unknown): unknown => ({
    type: "search_result",
    source: "https://example.com",
    title: "t",
    content,
  });

  const wrappers: Readonly<Record<string, (text: string) => unknown>> = {
    "a text document": (text) => ({ type: "document", source: source(text) }),
    "a document of parts": (text) => ({
      type: "document",
      source: { type: "content", content: [{ type: "text", text }] },
    }),
    "a document of one string": (text) => ({
      type: "document",
      source: { type: "content", content: text },
    }),
    "a text file in base64": (text) => ({
      type: "document",
      source: { type: "base64", media_type: "text/plain", data: btoa(text) },
    }),
    "a search result": (text) => result([{ type: "text", text }]),
    "a search result in a tool's result": (text) => ({
      type: "tool_result",
      content: [result([{ type: "text", text }])],
    }),
    "a document in a tool's result": (text) => ({
      type: "tool_result",
      content: [{ type: "document", source: source(text) }],
    }),
    "a result of a remote tool": (text) => ({
      type: "mcp_tool_result",
      content: [{ type: "text", text }],
    }),
    "a file with a data URI of text": (text) => ({
      type: "input_file",
      filename: "a.txt",
      file_data: `data:text/plain;base64,${btoa(text)}`,
    }),
    "a nested file": (text) => ({ type: "file", file: { filename: "a.txt", file_data: text } }),
    "a part of an unknown kind": (text) => ({ type: "hologram", image: "a", caption: text }),
  };
  for (const [name, wrap] of Object.entries(wrappers)) {
    it(`tells a hundred invoices apart in ${name}, and counts their text`, () => {
      const prompts = Array.from({ length: 100 }, (_, index) =>
        ofParts(wrap(invoice(10_001 + index)), { type: "text", text: "sum up" }),
      );
      expect(new Set(prompts.map(textOf)).size).to.equal(100);
      const bytes = invoice(10_001).length;
      expect(prompts[0]?.inputTokens).to.be.within(bytes / 4, bytes / 2);
    });
  }

  it("tells items of responses of an unknown kind apart by their text", () => {
    const item = (output: string): string | undefined =>
      textOf(read("responses", { input: [{ type: "mcp_call", name: "f", output }] }));
    expect(item(invoice(10_001))).to.not.equal(item(invoice(10_002)));
  });

  it("renders all that a model sees of a document and of a search result", () => {
    const shown = textOf(
      ofParts(
        {
          type: "document",
          source: source("abc"),
          context: "c",
          title: "t",
          cache_control: { type: "ephemeral" },
        },
        { ...(result([{ type: "text", text: "found" }]) as object), citations: { enabled: true } },
      ),
    );
    const inside = `${OPEN}${field("media_type", "text/plain")}${field("data", "abc")}${CLOSE}`;
    const document = `${field("title", "t")}${field("context", "c")}${field("source", inside)}`;
    const search = `found${field("title", "t")}${field("source", "https://example.com")}`;
    expect(shown).to.equal(
      inUser(
        part("document", document) +
          PART +
          part("search_result", `${search}${field("citations", '{"enabled":true}')}`),
      ),
    );
  });

  it("keeps binary files and pictures by reference and out of the count", () => {
    const data = "JVBERi0xLjQK".repeat(1_000);
    const parts: readonly unknown[] = [
      { type: "document", source: { type: "base64", media_type: "application/pdf", data } },
      { type: "input_file", file_data: `data:application/pdf;base64,${data}` },
      { type: "image", source: { type: "base64", media_type: "image/png", data } },
      { type: "document", source: { type: "content", content: [{ type: "image", source: data }] } },
      { type: "hologram", light: data },
    ];
    for (const [index, one] of parts.entries()) {
      const prompt = ofParts(one);
      expect(textOf(prompt), String(index)).to.contain(REFERENCE);
      expect(textOf(prompt)?.length, String(index)).to.be.below(250);
      expect(prompt?.inputTokens, String(index)).to.be.below(30);
    }
  });

  it("writes a long link of a file whole, as it would a short one", () => {
    const url = `https://example.com/a.pdf?signature=${"%2F".repeat(300)}`;
    expect(textOf(ofParts({ type: "input_file", file_url: url }))).to.equal(
      inUser(part("input_file", field("file_url", `"${url}"`))),
    );
  });

  it("gives one text for all orders of keys in a document and its source", () => {
    const one = { type: "document", title: "t", source: { type: "text", data: "abc" } };
    const other = { source: { data: "abc", type: "text" }, title: "t", type: "document" };
    expect(textOf(ofParts(one))).to.equal(textOf(ofParts(other)));
  });
});

// What an engine keys its cache by beside the conversation: prompts that differ there are told apart,
// and prompts without any of it begin as they always did.

import { expect } from "chai";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import { readPrompt, type PromptContent } from "../../../extproc/core/identity/prompt.js";
import { utf8 } from "./support.js";

const MESSAGE = "\u0081";
const VALUE = "\u0082";
const FIELD = "\u0083";
const OPEN = "\u0085";
const CLOSE = "\u0086";
const LIMITS = { maxChars: 65_536, maxTokens: 4_096 };

const BODIES: ReadonlyMap<Endpoint, object> = new Map<Endpoint, object>([
  ["chat", { messages: [{ role: "user", content: "x" }] }],
  ["messages", { messages: [{ role: "user", content: "x" }] }],
  ["responses", { input: "x" }],
  ["completions", { prompt: "x" }],
  ["generate", { text: "x" }],
]);

function read(endpoint: Endpoint, more: object): PromptContent | undefined {
  const body = { model: "m", ...BODIES.get(endpoint), ...more };
  return readPrompt(endpoint, utf8(JSON.stringify(body)), LIMITS);
}

function textOf(endpoint: Endpoint, more: object): string | undefined {
  const prompt = read(endpoint, more);
  return prompt?.kind === "text" ? prompt.text : undefined;
}

describe("identity/prompt: state", () => {
  const values: Readonly<Record<string, readonly unknown[]>> = {
    cache_salt: ["a", "b"],
    extra_key: ["a", "b"],
    lora_path: ["a", "b", ["a"]],
    lora_request: [{ lora_name: "a" }, { lora_name: "b" }],
    lora: [[{ id: 0, scale: 1 }], [{ id: 1, scale: 1 }]],
    chat_template: ["{{ a }}", "{{ b }}"],
    chat_template_kwargs: [{ enable_thinking: true }, { enable_thinking: false }],
    mm_processor_kwargs: [{ max_pixels: 1 }, { max_pixels: 2 }],
    add_special_tokens: [true, false],
    truncate_prompt_tokens: [10, 11],
    reasoning_effort: ["low", "high"],
    reasoning: [{ effort: "low" }, { effort: "high", summary: "auto" }],
    thinking: [{ type: "enabled", budget_tokens: 5 }, { type: "disabled" }],
    documents: [[{ text: "a" }], [{ text: "b" }]],
    functions: [[{ name: "a" }], [{ name: "b" }]],
  };

  for (const [key, choices] of Object.entries(values)) {
    it(`tells prompts apart that differ in ${key}, at every endpoint`, () => {
      for (const endpoint of BODIES.keys()) {
        const texts = [{}, ...choices.map((value) => ({ [key]: value }))].map((more) =>
          textOf(endpoint, more),
        );
        expect(new Set(texts).size, endpoint).to.equal(choices.length + 1);
        expect(textOf(endpoint, { [key]: null }), endpoint).to.equal(texts[0]);
      }
    });
  }

  it("writes it first, in a fixed order, each value once and whole", () => {
    const kept = "k".repeat(2_000);
    expect(textOf("chat", { tools: [1], lora_path: "l", cache_salt: kept })).to.equal(
      `${OPEN}cache_salt${VALUE}"${kept}"${CLOSE}${OPEN}lora_path${VALUE}"l"${CLOSE}` +
        `${OPEN}tools${VALUE}[1]${CLOSE}${MESSAGE}user${VALUE}x`,
    );
    expect(textOf("responses", { reasoning: { summary: "auto", effort: "low" } })).to.equal(
      `${OPEN}reasoning${VALUE}"low"${CLOSE}${MESSAGE}user${VALUE}x`,
    );
  });

  it("takes empty containers for absent values", () => {
    const none = { documents: [], functions: [], chat_template_kwargs: {}, reasoning: {} };
    expect(textOf("chat", none)).to.equal(`${MESSAGE}user${VALUE}x`);
  });

  it("shows a choice of no tool, in both spellings, and no other choice", () => {
    const tools = [{ name: "f" }];
    const plain = textOf("chat", { tools });
    expect(textOf("chat", { tools, tool_choice: "none" })).to.not.equal(plain);
    expect(textOf("messages", { tools, tool_choice: { type: "none" } })).to.not.equal(plain);
    for (const choice of ["auto", "required", { type: "function", function: { name: "none" } }]) {
      expect(textOf("chat", { tools, tool_choice: choice })).to.equal(plain);
    }
  });

  it("counts documents and functions as text, and no salt or template", () => {
    // [{"t":"1234567"}] has 17 bytes, and one for the message.
    expect(read("chat", { documents: [{ t: "1234567" }] })?.inputTokens).to.equal(5);
    expect(read("chat", { functions: [{ t: "1234567" }] })?.inputTokens).to.equal(5);
    expect(read("chat", { cache_salt: "1234567", chat_template: "1234567" })?.inputTokens).to.equal(
      1,
    );
  });

  it("sets what only goes on with a conversation behind the shared tools and instructions", () => {
    const shared = { tools: [1], instructions: "s" };
    const begin = `${OPEN}tools${VALUE}[1]${CLOSE}`;
    const system = `${MESSAGE}system${VALUE}s`;
    const user = `${MESSAGE}user${VALUE}x`;
    const aside = (key: string, value: string): string => `${OPEN}${key}${VALUE}${value}${CLOSE}`;
    expect(textOf("responses", { ...shared, conversation: "c1" })).to.equal(
      begin + system + aside("conversation", '"c1"') + user,
    );
    expect(textOf("responses", { ...shared, previous_response_id: "r1" })).to.equal(
      begin + system + aside("previous_response_id", '"r1"') + user,
    );
    expect(textOf("responses", { ...shared, prompt: { id: "p1" } })).to.equal(
      begin + aside("prompt", '{"id":"p1"}') + system + user,
    );
  });

  it("takes token ids behind a state for text, because equal ids are another prompt there", () => {
    const ids = { prompt: [[1, 23], [4]] };
    expect(read("completions", ids)?.kind).to.equal("tokens");
    expect(read("completions", { ...ids, cache_salt: "a" })).to.deep.equal({
      kind: "text",
      text: `${OPEN}cache_salt${VALUE}"a"${CLOSE}${OPEN}tokens${VALUE}1,23`,
      inputTokens: 3,
      prompts: 2,
    });
    expect(read("completions", { prompt: [1, -1], cache_salt: "a" })).to.equal(undefined);
  });

  it("tells reasoning items apart by what is encrypted in them", () => {
    const item = (encrypted_content: unknown): string | undefined =>
      textOf("responses", { input: [{ type: "reasoning", summary: [], encrypted_content }] });
    const begin = `${MESSAGE}${FIELD}reasoning${VALUE}${FIELD}summary${VALUE}`;
    expect(item("AB")).to.equal(`${begin}${FIELD}encrypted_content${VALUE}"AB"`);
    expect(item("A".repeat(800))).to.not.equal(item("B".repeat(800)));
    expect(item(null)).to.equal(begin);
  });
});

// The canonical text by hand: what each dialect's body says, in the order in which chat templates show
// it. Framing characters are spelled here once more, so that a change of them is seen.

import { expect } from "chai";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import { readPrompt, type PromptContent } from "../../../extproc/core/identity/prompt.js";
import { MEDIA_WHOLE_MAX_BYTES } from "../../../extproc/core/identity/prompt-json.js";
import { PART_DEPTH_MAX } from "../../../extproc/core/identity/prompt-fields.js";
import { PROMPT_STEPS_MAX } from "../../../extproc/core/identity/prompt-scan.js";
import { utf8 } from "./support.js";

const ESCAPE = "\u0080";
const MESSAGE = "\u0081";
const VALUE = "\u0082";
const FIELD = "\u0083";
const PART = "\u0084";
const OPEN = "\u0085";
const CLOSE = "\u0086";
const REFERENCE = "\u0087";

function read(
  endpoint: Endpoint,
  body: unknown,
  maxChars = Number.MAX_SAFE_INTEGER,
): PromptContent | undefined {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return readPrompt(endpoint, utf8(text), { maxChars, maxTokens: 1_000_000 });
}

function textOf(endpoint: Endpoint, body: unknown, maxChars?: number): string | undefined {
  const prompt = read(endpoint, body, maxChars);
  return prompt?.kind === "text" ? prompt.text : undefined;
}

const message = (role: string, content: string): string => MESSAGE + role + VALUE + content;
const chat = (...messages: unknown[]): unknown => ({ model: "m", messages });
const user = (content: unknown): unknown => ({ role: "user", content });
const userText = (content: unknown): string | undefined => textOf("chat", chat(user(content)));

describe("identity/prompt", () => {
  describe("dialects", () => {
    const tools = [{ type: "function", function: { name: "f", description: 'a "b"' } }];
    const toolText = `${OPEN}tools${VALUE}[{"type":"function","function":{"name":"f","description":"a \\"b\\""}}]${CLOSE}`;

    it("renders a chat: tools first, then the messages in order, wherever the keys stand", () => {
      const messages = [{ role: "system", content: "Be kind." }, user("Hi")];
      const expected = toolText + message("system", "Be kind.") + message("user", "Hi");
      expect(textOf("chat", { model: "m", messages, tools })).to.equal(expected);
      expect(textOf("chat", { tools, messages, model: "m" })).to.equal(expected);
      expect(textOf("chat", { messages, tools: [] })).to.equal(expected.slice(toolText.length));
      expect(textOf("chat", { messages, tools: null })).to.equal(expected.slice(toolText.length));
    });

    it("renders messages and responses like the chat that they amount to", () => {
      const expected = toolText + message("system", "Be kind.") + message("user", "Hi");
      const messages = [user("Hi")];
      expect(textOf("messages", { messages, system: "Be kind.", tools })).to.equal(expected);
      const system = [{ type: "text", text: "Be kind.", cache_control: { type: "ephemeral" } }];
      expect(textOf("messages", { messages, system, tools })).to.equal(expected);
      const instructions = "Be kind.";
      expect(textOf("responses", { input: "Hi", instructions, tools })).to.equal(expected);
      const input = [
        { type: "message", role: "user", content: [{ type: "input_text", text: "Hi" }] },
      ];
      expect(textOf("responses", { input, instructions, tools })).to.equal(expected);
    });

    it("renders what a response builds on", () => {
      const expected = `${OPEN}previous_response_id${VALUE}"resp_1"${CLOSE}${message("user", "Go on")}`;
      const body = { input: "Go on", previous_response_id: "resp_1" };
      expect(textOf("responses", body)).to.equal(expected);
      const none = { input: "Go on", previous_response_id: null };
      expect(textOf("responses", none)).to.equal(message("user", "Go on"));
    });

    it("takes the prompt of completions and generate as it is, the first one of several", () => {
      for (const [endpoint, key] of [
        ["completions", "prompt"],
        ["generate", "text"],
      ] as const) {
        expect(read(endpoint, { [key]: "Once upon" })).to.deep.equal({
          kind: "text",
          text: "Once upon",
          inputTokens: 3,
          prompts: 1,
        });
        expect(read(endpoint, { [key]: ["Once upon", "a time"] })).to.deep.equal({
          kind: "text",
          text: "Once upon",
          inputTokens: 4,
          prompts: 2,
        });
        expect(read(endpoint, { [key]: "" })).to.deep.equal({
          kind: "text",
          text: "",
          inputTokens: 1,
          prompts: 1,
        });
      }
    });

    it("counts the prompts of a body, and says nothing of a number that takes too much to find", () => {
      const prompts = (endpoint: Endpoint, body: unknown): number | undefined =>
        read(endpoint, body)?.prompts;
      expect(prompts("chat", chat(user("a"), user("b")))).to.equal(1);
      expect(prompts("completions", { prompt: ["a"] })).to.equal(1);
      expect(prompts("completions", { prompt: ["a", "b", "c"] })).to.equal(3);
      expect(prompts("completions", { prompt: [[1]] })).to.equal(1);
      expect(prompts("generate", { input_ids: [[1], [2]] })).to.equal(2);
      const texts = Array.from({ length: PROMPT_STEPS_MAX + 1 }, () => "a");
      expect(prompts("completions", { prompt: texts })).to.equal(undefined);
    });

    it("takes token ids", () => {
      const prompt = read("completions", { prompt: [1, 2, 4294967295] });
      expect(prompt).to.deep.equal({
        kind: "tokens",
        tokens: Uint32Array.of(1, 2, 4294967295),
        inputTokens: 3,
        prompts: 1,
      });
      expect(read("generate", { input_ids: [[1, 2], [3]] })).to.deep.equal({
        kind: "tokens",
        tokens: Uint32Array.of(1, 2),
        inputTokens: 3,
        prompts: 2,
      });
    });

    it("puts the media of generate before the text, and takes token ids beside media for text", () => {
      const link = "https://example.com/a.png";
      const media = `${OPEN}image_data${VALUE}"${link}"${CLOSE}`;
      expect(textOf("generate", { text: "see", image_data: link })).to.equal(`${media}see`);
      expect(textOf("generate", { text: "see", image_data: null })).to.equal("see");
      expect(read("generate", { input_ids: [1, 23], image_data: link })).to.deep.equal({
        kind: "text",
        text: `${media}${OPEN}tokens${VALUE}1,23`,
        inputTokens: 2,
        prompts: 1,
      });
      expect(read("generate", { input_ids: [1], image_data: [] })?.kind).to.equal("tokens");
      expect(read("generate", { input_ids: [1], image_data: null })?.kind).to.equal("tokens");
    });

    it("gives nothing for endpoints that generate nothing, and for bodies without a prompt", () => {
      const body = { messages: [user("Hi")], prompt: "x", input: "x", text: "x" };
      for (const endpoint of ["embeddings", "rerank", "score"] as const) {
        expect(read(endpoint, body), endpoint).to.equal(undefined);
      }
      for (const [endpoint, other] of [
        ["chat", { prompt: "x" }],
        ["chat", { messages: null, tools: [{}] }],
        ["chat", { messages: { role: "user", content: "x" } }],
        ["responses", { input: 7 }],
        ["completions", { prompt: null }],
        ["completions", { prompt: [] }],
        ["completions", { prompt: [null, "x"] }],
        ["completions", { prompt: [-1] }],
        ["completions", { prompt: [1, "x"] }],
        ["generate", { input_embeds: [[0.5]] }],
        ["chat", []],
        ["chat", "text"],
        ["chat", ""],
      ] as const) {
        expect(read(endpoint, other), JSON.stringify(other)).to.equal(undefined);
      }
    });
  });

  describe("content", () => {
    it("joins text parts, and takes a single one for the plain string", () => {
      expect(userText("a")).to.equal(message("user", "a"));
      expect(userText([{ type: "text", text: "a" }])).to.equal(message("user", "a"));
      expect(userText(["a"])).to.equal(message("user", "a"));
      const parts = ["input_text", "output_text", "text"].map((type) => ({ type, text: type }));
      expect(userText([...parts, { type: "refusal", refusal: "no" }])).to.equal(
        message("user", ["input_text", "output_text", "text", "no"].join(PART)),
      );
      expect(userText([])).to.equal(message("user", ""));
      expect(userText(null)).to.equal(message("user", ""));
    });

    it("renders tool calls, their results and reasoning, without ids", () => {
      const call = { id: "c1", type: "function", function: { arguments: '{"a":1}', name: "f" } };
      const text = textOf(
        "chat",
        chat(
          { role: "assistant", content: null, tool_calls: [call], reasoning_content: "hm" },
          { role: "tool", tool_call_id: "c1", content: "42", name: "f" },
        ),
      );
      const written = `${OPEN}${FIELD}function${VALUE}${OPEN}${FIELD}name${VALUE}f${FIELD}arguments${VALUE}{"a":1}${CLOSE}${CLOSE}`;
      expect(text).to.equal(
        message("assistant", `${FIELD}reasoning_content${VALUE}hm`) +
          `${FIELD}tool_calls${VALUE}${written}` +
          message("tool", `42${FIELD}name${VALUE}f`),
      );
    });

    it("renders tool parts of messages, and the images in their results", () => {
      const image = { type: "base64", media_type: "image/png", data: "AAAA" };
      const text = userText([
        { type: "thinking", thinking: "hm", signature: "s" },
        { type: "tool_use", id: "t1", name: "f", input: { b: [1, 2], a: "x" } },
        {
          type: "tool_result",
          tool_use_id: "t1",
          content: [
            { type: "text", text: "seen" },
            { type: "image", source: image, cache_control: {} },
          ],
        },
      ]);
      const shown = `${OPEN}image${VALUE}${FIELD}source${VALUE}${JSON.stringify(image)}${CLOSE}`;
      expect(text).to.equal(
        message(
          "user",
          [
            `${OPEN}thinking${VALUE}${FIELD}thinking${VALUE}hm${CLOSE}`,
            `${OPEN}tool_use${VALUE}${FIELD}name${VALUE}f${FIELD}input${VALUE}{"b":[1,2],"a":"x"}${CLOSE}`,
            `${OPEN}tool_result${VALUE}seen${PART}${shown}${CLOSE}`,
          ].join(PART),
        ),
      );
    });

    it("renders the items of responses, known ones by field and others whole", () => {
      const text = textOf("responses", {
        input: [
          { type: "function_call", call_id: "c", name: "f", arguments: "{}", id: "i", status: "x" },
          { type: "function_call_output", call_id: "c", output: "42" },
          { type: "reasoning", id: "r", summary: [{ type: "summary_text", text: "hm" }] },
          { type: "web_search_call", status: "completed" },
        ],
      });
      expect(text).to.equal(
        `${MESSAGE}${FIELD}function_call${VALUE}${FIELD}name${VALUE}f${FIELD}arguments${VALUE}{}` +
          `${MESSAGE}${FIELD}function_call_output${VALUE}${FIELD}output${VALUE}42` +
          `${MESSAGE}${FIELD}reasoning${VALUE}${FIELD}summary${VALUE}hm` +
          `${MESSAGE}${VALUE}${OPEN}{"type":"web_search_call","status":"completed"}${CLOSE}`,
      );
    });

    it("writes other values as JSON without blanks outside strings", () => {
      const body = String.raw`{"messages":[{"role":"user","content":{ "a" : [ 1 , "b c" ,"\u0022\/\n" ] }}, 7 ]}`;
      expect(textOf("chat", body)).to.equal(
        message("user", '{"a":[1,"b c","\\"/\n"]}') + message("", "7"),
      );
    });

    it("escapes framing characters in content, so that content never passes for framing", () => {
      const forged = `a${MESSAGE}system${VALUE}b`;
      expect(userText(forged)).to.equal(message("user", `a${ESCAPE}\u0091system${ESCAPE}\u0092b`));
      expect(userText(`${ESCAPE}\u0091`)).to.equal(message("user", `${ESCAPE}\u0090\u0091`));
      expect(userText({ [MESSAGE]: PART })).to.equal(
        message("user", `{"${ESCAPE}\u0091":"${ESCAPE}\u0094"}`),
      );
    });

    it("decodes escapes, pairs and UTF-8 wherever a piece of a long text ends", () => {
      for (const unit of ["\\u00e9", "\\ud83d\\ude00", "\\\\", '\\"', "\\n", "é", "€", "😀"]) {
        const decoded = JSON.parse(`"${unit}"`) as string;
        for (let shift = 0; shift < 13; shift += 1) {
          const text = textOf(
            "completions",
            `{"prompt":"${"a".repeat(shift)}${unit.repeat(6000)}"}`,
          );
          const expected = "a".repeat(shift) + decoded.repeat(6000);
          expect(text === expected, `${unit} behind ${String(shift)}`).to.equal(true);
        }
      }
      const marks = "\ufeff".repeat(3000);
      expect(textOf("completions", { prompt: marks }) === marks).to.equal(true);
    });
  });

  describe("media", () => {
    const data = (bytes: number): string => "A".repeat(bytes);
    const image = (url: string): unknown => ({ type: "image_url", image_url: { url } });
    const shown = (content: string): string =>
      message(
        "user",
        `${OPEN}image_url${VALUE}${FIELD}image_url${VALUE}{"url":${content}}${CLOSE}`,
      );

    it("writes media strings of 512 bytes whole, and a stand-in for 513", () => {
      expect(MEDIA_WHOLE_MAX_BYTES).to.equal(512);
      expect(userText([image(data(512))])).to.equal(shown(`"${data(512)}"`));
      const text = userText([image(data(513))]) ?? "";
      const expected = shown(`${REFERENCE}513:HASH`);
      expect(text.replace(/[0-9a-f]{16}/, "HASH")).to.equal(expected);
    });

    it("tells media apart by kind, length, and bytes at the first, last and spaced places", () => {
      const base = data(100_000);
      const changed = (at: number): string => `${base.slice(0, at)}B${base.slice(at + 1)}`;
      const texts = new Set([
        userText([image(base)]),
        userText([{ type: "image", image: { url: base } }]),
        userText([image(`${base}A`)]),
        userText([image(changed(0))]),
        userText([image(changed(99_999))]),
        // The sample in the middle, of 64: (100000 - 8) * 32 / 63 = 50789.6.
        userText([image(changed(50_789))]),
      ]);
      expect(texts.size).to.equal(6);
      expect(userText([image(changed(3_000))])).to.equal(userText([image(base)]));
    });

    it("keeps media without a known field, and items of unknown types, by reference too", () => {
      const text = userText([{ type: "hologram", light: data(100_000) }]) ?? "";
      expect(text.replace(/[0-9a-f]{16}/, "HASH")).to.equal(
        message(
          "user",
          `${OPEN}hologram${VALUE}{"type":"hologram","light":${REFERENCE}100000:HASH}${CLOSE}`,
        ),
      );
      const input = [{ type: "image_generation_call", result: data(100_000) }];
      expect((textOf("responses", { input }) ?? "").length).to.be.below(100);
    });

    it("takes a data URI in plain text for text", () => {
      const uri = `data:image/png;base64,${data(2_000)}`;
      expect(userText(uri)).to.equal(message("user", uri));
    });

    it("41 keeps a data URI of 20 MB out of the text and out of the token count", () => {
      const uri = `data:image/png;base64,${data(20_000_000)}`;
      const prompt = read("chat", chat(user([image(uri), { type: "text", text: "what is it?" }])));
      expect(prompt?.kind === "text" && prompt.text.length < 200).to.equal(true);
      expect(prompt?.kind === "text" && prompt.text.endsWith(`${PART}what is it?`)).to.equal(true);
      // Eleven bytes of text.
      expect(prompt?.inputTokens).to.equal(3);
    });
  });

  describe("limits", () => {
    it("cuts at maxChars and counts the text behind the cut all the same", () => {
      const body = chat(user("a".repeat(1000)), user("b".repeat(1001)));
      const whole = textOf("chat", body) ?? "";
      expect(whole.length).to.equal(2 * "\u0081user\u0082".length + 2001);
      for (const cut of [0, 1, 7, 1005, 1006, 1007, whole.length - 1, whole.length]) {
        const prompt = read("chat", body, cut);
        // 2001 bytes are 501 tokens.
        expect(prompt).to.deep.equal({
          kind: "text",
          text: whole.slice(0, cut),
          inputTokens: 501,
          prompts: 1,
        });
      }
    });

    it("counts text, tools and arguments, not media, keys or roles", () => {
      const tools = [{ type: "function" }];
      const bytes = (body: unknown): number | undefined => read("chat", body)?.inputTokens;
      expect(bytes(chat(user("12345678")))).to.equal(2);
      expect(bytes(chat(user([{ type: "text", text: "12345678" }])))).to.equal(2);
      // [{"type":"function"}] has 21 bytes, and 21 + 8 = 29.
      expect(bytes({ messages: [user("12345678")], tools })).to.equal(8);
      const call = { function: { name: "name", arguments: '{"a":"bcdef"}' } };
      // As the body spells them, with four backslashes: 4 + 17.
      expect(bytes(chat({ role: "assistant", tool_calls: [call] }))).to.equal(6);
      const link = { url: "https://example.com/picture.png" };
      expect(bytes(chat(user([{ type: "image_url", image_url: link }])))).to.equal(1);
    });

    it("looks at as many steps as the limit, and takes the rest for text as it stands", () => {
      expect(PROMPT_STEPS_MAX).to.equal(4_096);
      // An element and two keys are three steps; 31 bytes are 31/256 of one.
      const one = '{"role":"user","content":"abc"}';
      const stepsOfOne = 3 + one.length / 256;
      const fitting = Math.floor(PROMPT_STEPS_MAX / stepsOfOne);
      const body = (count: number): string =>
        `{"messages":[${Array.from({ length: count }, () => one).join(",")}]}`;
      const atLimit = read("chat", body(fitting));
      expect(atLimit).to.deep.equal({
        kind: "text",
        text: message("user", "abc").repeat(fitting),
        inputTokens: Math.ceil((fitting * 3) / 4),
        prompts: 1,
      });
      const past = read("chat", body(fitting + 1));
      expect(past?.kind === "text" && past.text).to.equal(message("user", "abc").repeat(fitting));
      // The message that is not looked at and the closing bracket: 32 bytes of text.
      expect(past?.inputTokens).to.equal(Math.ceil((fitting * 3 + one.length + 1) / 4));
    });

    it("ends its work on a million messages, a hundred thousand parts, deep and wide values", () => {
      const many = (count: number, item: string): string =>
        Array.from({ length: count }, () => item).join(",");
      const deep = `${"[".repeat(500)}${"]".repeat(500)}`;
      for (const [name, content] of Object.entries({
        messages: many(1_000_000, "{}"),
        parts: `{"role":"user","content":[${many(100_000, '{"type":"text","text":"hi"}')}]}`,
        deep: many(3_000, `{"role":"user","content":[${deep}]}`),
        wide: many(300, `{${many(1_000, '"key":1')},"role":"user","content":"x"}`),
      })) {
        const text = `{"messages":[${content}],"tools":[{"name":"f"}]}`;
        const prompt = read("chat", text, 65_536);
        expect(prompt?.kind, name).to.equal("text");
        expect(prompt?.inputTokens, name).to.be.within(1, text.length);
        expect(textOf("chat", text, 10)?.startsWith(`${OPEN}tools`), name).to.equal(true);
      }
    });

    it("renders three levels of parts field by field, and writes deeper ones whole", () => {
      expect(PART_DEPTH_MAX).to.equal(3);
      let content: unknown = "x".repeat(1_000);
      for (let depth = 0; depth < 200; depth += 1) content = [{ type: "tool_result", content }];
      const text = userText(content) ?? "";
      expect(text.replace(/[0-9a-f]{16}/, "HASH")).to.contain(`${REFERENCE}1000:HASH`);
      expect(text.split(`${OPEN}tool_result`).length - 1).to.equal(4);
      expect(text.split("{").length - 1).to.equal(197);
    });

    it("finds no prompt in a body that is damaged anywhere", () => {
      const start = '{"messages":[{"role":"user","content":"good"}';
      for (const end of [
        ',{"content":"bad\\x"}]}',
        ',{"role" "user"}]}',
        ',["a" "b"]]}',
        "",
        "]",
      ]) {
        expect(read("chat", start + end, 65_536), end).to.equal(undefined);
      }
      expect(textOf("chat", `${start}]}`)).to.equal(message("user", "good"));
    });
  });
});

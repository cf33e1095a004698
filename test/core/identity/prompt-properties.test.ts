// Laws of the canonical text, for random conversations. The text is compared with a slow reference
// that parses the whole body and renders its value; each conversation is written in a random
// spelling: blanks, escapes, order of keys, keys that come twice. Media payloads and free JSON
// keep their order of keys, and media strings their spelling, because there both count.

import { expect } from "chai";
import fc from "fast-check";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import { readPrompt, type PromptContent } from "../../../extproc/core/identity/prompt.js";
import { utf8 } from "./support.js";

type Json = null | boolean | number | string | readonly Json[] | JsonObject;
/** The keys that the reference asks for by name, and any others. */
interface JsonObject {
  readonly type?: Json;
  readonly text?: Json;
  readonly refusal?: Json;
  readonly content?: Json;
  readonly function?: Json;
  readonly role?: Json;
  readonly input?: Json;
  readonly instructions?: Json;
  readonly [key: string]: Json | undefined;
}

const ENDPOINTS = ["chat", "messages", "responses", "completions", "generate"] as const;
const WHOLE = { maxChars: Number.MAX_SAFE_INTEGER, maxTokens: 1_000 };

// ---- the reference -----------------------------------------------------------------------------

const MESSAGE_FIELDS = [
  ...["content", "name", "reasoning_content", "reasoning", "summary", "refusal", "tool_calls"],
  ...["function_call", "arguments", "input", "output"],
];
const TEXT_KINDS = ["text", "input_text", "output_text", "summary_text", "reasoning_text"];
const PAYLOADS = ["image_url", "image", "input_audio", "file_data", "file_id", "source"];

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function escaped(text: string): string {
  return text.replace(
    /[\u0080-\u0087]/g,
    (character) => `\u0080${String.fromCharCode(character.charCodeAt(0) + 16)}`,
  );
}

function compact(value: Json, byReference: boolean): string {
  if (typeof value === "string") {
    if (byReference && utf8(value).length > 512) return standIn(utf8(value));
    return `"${escaped(value.replace(/["\\]/g, "\\$&"))}"`;
  }
  if (Array.isArray(value)) {
    return `[${(value as readonly Json[]).map((item) => compact(item, byReference)).join(",")}]`;
  }
  if (!isObject(value)) return JSON.stringify(value);
  const pairs = Object.entries(value).map(
    ([key, item]) => `${compact(key, byReference)}:${compact(item ?? null, byReference)}`,
  );
  return `{${pairs.join(",")}}`;
}

function standIn(bytes: Uint8Array): string {
  let low = 0x811c9dc5;
  let high = 0x01000193;
  for (let sample = 0; sample < 64; sample += 1) {
    const from = Math.floor(((bytes.length - 8) * sample) / 63);
    for (const byte of bytes.slice(from, from + 8)) {
      low = Math.imul(low ^ byte, 0x01000193);
      high = Math.imul(high ^ byte ^ (low >>> 16), 0x85ebca6b);
    }
  }
  const hash = [high, low].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  return `\u0087${String(bytes.length)}:${hash}`;
}

function word(value: Json | undefined, absent: string): string {
  return typeof value === "string" ? value : absent;
}

function textOrJson(value: Json): string {
  return typeof value === "string" ? escaped(value) : compact(value, false);
}

function named(
  value: JsonObject,
  names: readonly string[],
  render: (item: Json) => string,
): string {
  return names
    .filter((name) => value[name] !== undefined && value[name] !== null)
    .map((name) => `\u0083${name}\u0082${render(value[name] ?? null)}`)
    .join("");
}

function parts(content: Json, depth: number): string {
  if (!Array.isArray(content)) return textOrJson(content);
  return (content as readonly Json[]).map((item) => part(item, depth)).join("\u0084");
}

function part(value: Json, depth: number): string {
  if (!isObject(value)) return textOrJson(value);
  const kind = word(value.type, "text");
  const text = kind === "refusal" ? value.refusal : value.text;
  if ((kind === "refusal" || TEXT_KINDS.includes(kind)) && typeof text === "string") {
    return escaped(text);
  }
  const inside = (): string => {
    if (kind === "thinking") return named(value, ["thinking"], textOrJson);
    if (kind === "tool_use") return named(value, ["name", "input"], textOrJson);
    if (kind === "tool_result") return parts(value.content ?? "", depth + 1);
    if (kind === "document") {
      const titles = named(value, ["title", "context"], textOrJson);
      return titles + named(value, ["source"], (item) => source(item, depth + 1));
    }
    if (kind === "search_result") {
      const found = parts(value.content ?? "", depth + 1);
      return found + named(value, ["title", "source"], textOrJson);
    }
    return PAYLOADS.some((name) => name in value)
      ? named(value, PAYLOADS, (item) => compact(item, true))
      : compact(value, true);
  };
  return `\u0085${escaped(word(value.type, ""))}\u0082${inside()}\u0086`;
}

function source(value: Json, depth: number): string {
  if (!isObject(value)) return textOrJson(value);
  const content = value.content === undefined ? "" : parts(value.content, depth);
  return `\u0085${content}${named(value, ["media_type", "data"], textOrJson)}\u0086`;
}

function call(value: Json): string {
  if (!isObject(value)) return textOrJson(value);
  const inner = value.function;
  const flat = (item: JsonObject): string => named(item, ["name", "arguments"], textOrJson);
  const nested = isObject(inner) ? `\u0083function\u0082\u0085${flat(inner)}\u0086` : "";
  return `\u0085${nested}${flat(value)}\u0086`;
}

function message(value: Json): string {
  if (!isObject(value)) return `\u0081\u0082${textOrJson(value)}`;
  const kind = word(value.type, "message");
  const { role } = value;
  let head = "";
  if (typeof role === "string") head = escaped(role);
  else if (kind === "hologram") return `\u0081\u0082\u0085${compact(value, true)}\u0086`;
  else if (kind !== "message") head = `\u0083${kind}`;
  const body = MESSAGE_FIELDS.map((name) => {
    const field = value[name];
    if (field === undefined || field === null) return "";
    if (name === "content") return parts(field, 0);
    if (name === "summary" || name === "output") return `\u0083${name}\u0082${parts(field, 0)}`;
    if (name === "tool_calls" && Array.isArray(field)) {
      return `\u0083${name}\u0082${(field as readonly Json[]).map(call).join("")}`;
    }
    return `\u0083${name}\u0082${textOrJson(field)}`;
  });
  return `\u0081${head}\u0082${body.join("")}`;
}

function reference(body: JsonObject): string {
  const { tools, system, messages, prompt, text } = body;
  const state = ["cache_salt", "documents"]
    .filter((key) => key in body)
    .map((key) => `\u0085${key}\u0082${compact(body[key] ?? null, false)}\u0086`)
    .join("");
  if (prompt !== undefined || text !== undefined) return state + escaped(word(prompt ?? text, ""));
  const list = messages ?? body.input ?? [];
  const head = Array.isArray(tools) && tools.length > 0 ? compact(tools as Json, false) : "";
  const instructions = system ?? body.instructions ?? null;
  return [
    state,
    head === "" ? "" : `\u0085tools\u0082${head}\u0086`,
    instructions === null ? "" : `\u0081system\u0082${parts(instructions, 0)}`,
    ...(Array.isArray(list) ? (list as readonly Json[]) : [{ role: "user", content: list }]).map(
      message,
    ),
  ].join("");
}

// ---- random conversations ------------------------------------------------------------------------

const piece = fc.constantFrom(
  ...["a", "word ", '"', "\\", "\n", "/", "é", "€", "😀", "\ud83d", "\ufeff", "\u0000"],
  ...["\u0080", "\u0081", "\u0082", "\u0084", "\u0090", "[{", "}]", "\\u0041"],
);
const shortText = fc.oneof(
  fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join("")),
  fc.string({ unit: "binary", maxLength: 12 }),
);
const longText = fc
  .tuple(shortText, fc.integer({ min: 1, max: 900 }))
  .map(([unit, count]) => unit.repeat(count));
const anyText = fc.oneof({ weight: 6, arbitrary: shortText }, { weight: 1, arbitrary: longText });
const base64 = fc
  .tuple(fc.constantFrom("iVBORw0KGgo", "AAAA", "QUJD+/"), fc.integer({ min: 1, max: 400 }))
  .map(([unit, count]) => unit.repeat(count));
const freeJson = fc
  .jsonValue({ maxDepth: 3 })
  // As JSON.parse gives it back: numbers in their own spelling, no -0, no keys that move.
  .map((value) => JSON.parse(JSON.stringify(value).replace(/"__proto__"/g, '"p"')) as Json);
const freeObject = freeJson.map((value): Json => ({ schema: value, title: "t" }));

const textPart = fc.record({
  type: fc.constantFrom(...TEXT_KINDS),
  text: anyText,
});
const mediaPart = fc.oneof(
  base64.map((url): Json => ({ type: "image_url", image_url: { url, detail: "low" } })),
  base64.map((data): Json => ({ type: "image", source: { type: "base64", data } })),
  base64.map((url): Json => ({ type: "input_image", image_url: url, detail: "auto" })),
  base64.map((light): Json => ({ type: "hologram", light, n: 1 })),
);
const simplePart: fc.Arbitrary<Json> = fc.oneof(
  textPart as fc.Arbitrary<Json>,
  mediaPart,
  shortText.map((refusal): Json => ({ type: "refusal", refusal })),
  shortText,
);
const documentPart: fc.Arbitrary<Json> = fc.oneof(
  fc.tuple(shortText, longText).map(([title, data]): Json => ({
    ...{ type: "document", title, context: "c", cache_control: { type: "ephemeral" } },
    source: { type: "text", media_type: "text/plain", data },
  })),
  fc.array(simplePart, { minLength: 1, maxLength: 2 }).map((content): Json => ({
    ...{ type: "document", source: { type: "content", content: [...content, ""] } },
  })),
  fc.tuple(anyText, fc.array(simplePart, { maxLength: 2 })).map(([source, content]): Json => ({
    ...{ type: "search_result", title: "t", source, content },
  })),
);
const toolPart: fc.Arbitrary<Json> = fc.oneof(
  fc.tuple(shortText, freeObject).map(([name, input]): Json => ({ type: "tool_use", name, input })),
  fc
    .array(fc.oneof(simplePart, documentPart), { minLength: 1, maxLength: 3 })
    .map((content): Json => ({ type: "tool_result", tool_use_id: "t", content: [...content, ""] })),
  shortText.map((thinking): Json => ({ type: "thinking", thinking, signature: "s" })),
);
const content: fc.Arbitrary<Json> = fc.oneof(
  anyText,
  fc.array(fc.oneof(simplePart, toolPart, documentPart), { maxLength: 4 }),
  fc.constant(null),
);
const toolCall = fc.tuple(shortText, shortText).map(([name, args]): Json => ({
  id: "c",
  type: "function",
  function: { name, arguments: args },
}));
const chatMessage: fc.Arbitrary<Json> = fc.record(
  {
    role: fc.constantFrom("user", "assistant", "tool", "\u0081", 'a"b'),
    content,
    name: shortText,
    reasoning_content: anyText,
    tool_calls: fc.array(toolCall, { maxLength: 2 }),
    tool_call_id: shortText,
  },
  { requiredKeys: ["role"] },
);
const item: fc.Arbitrary<Json> = fc.oneof(
  chatMessage,
  fc
    .tuple(shortText, shortText)
    .map(([name, args]): Json => ({ type: "function_call", name, arguments: args })),
  content.map((output): Json => ({ type: "function_call_output", call_id: "c", output })),
  base64.map((result): Json => ({ type: "hologram", result })),
);
const tools = fc.array(freeObject, { maxLength: 2 });
const state = fc.record(
  { cache_salt: anyText, documents: fc.array(freeObject, { minLength: 1, maxLength: 2 }) },
  { requiredKeys: [] },
);
const plainConversation = fc.oneof(
  fc.record({ tools, messages: fc.array(chatMessage, { maxLength: 5 }) }).map(bodyOf("chat")),
  fc
    .record({ tools, system: content, messages: fc.array(chatMessage, { maxLength: 5 }) })
    .map(bodyOf("messages")),
  fc
    .record({
      tools,
      instructions: anyText,
      input: fc.oneof(anyText, fc.array(item, { maxLength: 5 })),
    })
    .map(bodyOf("responses")),
  anyText.map((prompt) => bodyOf("completions")({ prompt })),
  anyText.map((text) => bodyOf("generate")({ text })),
);

const conversation = fc
  .tuple(plainConversation, state)
  .map(([{ endpoint, body }, more]): Case => ({ endpoint, body: { ...body, ...more } }));

interface Case {
  readonly endpoint: Endpoint;
  readonly body: JsonObject;
}

function bodyOf(endpoint: Endpoint): (body: object) => Case {
  return (body) => ({ endpoint, body: { model: "m", ...(body as JsonObject) } });
}

// ---- random spellings ----------------------------------------------------------------------------

/** Keys whose values keep the order of their keys. */
const FROZEN = new Set(["tools", "documents", "source", "image_url"]);

/** Writes a value as JSON in one of its many spellings; the seed picks which. */
function spell(value: Json, seed: number): string {
  let state = seed >>> 0;
  const below = (limit: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
  const plainOnly = below(4) === 0;
  const blanks = (): string => (below(3) === 0 ? ([" ", "\n", "\t\r", "  "][below(4)] ?? "") : "");
  const unicode = (code: number): string => {
    const digits = code.toString(16).padStart(4, "0");
    return `\\u${below(2) === 0 ? digits : digits.toUpperCase()}`;
  };
  const text = (raw: string): string => {
    const isMedia = raw.length > 64 && /^[A-Za-z0-9+/]*$/.test(raw);
    let out = "";
    for (let at = 0; at < raw.length; at += 1) {
      const code = raw.charCodeAt(at);
      const character = raw.charAt(at);
      const lone = code >= 0xd800 && code <= 0xdfff;
      if (code < 0x20 || character === '"' || character === "\\") {
        out += below(2) === 0 ? unicode(code) : JSON.stringify(character).slice(1, -1);
      } else if (lone) {
        const pair = raw.slice(at, at + 2);
        const isPair =
          code < 0xdc00 && pair.length === 2 && /^[\udc00-\udfff]$/.test(pair.charAt(1));
        if (isPair && below(2) === 0) {
          out += pair;
          at += 1;
        } else out += unicode(code);
      } else if (isMedia || plainOnly || below(8) > 0) out += character;
      else out += character === "/" && below(2) === 0 ? "\\/" : unicode(code);
    }
    return `"${out}"`;
  };
  const write = (node: Json, ordered: boolean): string => {
    const inner = (): string => {
      if (typeof node === "string") return text(node);
      if (Array.isArray(node)) {
        return `[${(node as readonly Json[]).map((child) => write(child, ordered)).join(",") || blanks()}]`;
      }
      if (!isObject(node)) return JSON.stringify(node);
      const entries = Object.entries(node);
      const keep = ordered || node.type === "hologram";
      for (let last = entries.length - 1; last > 0 && !keep; last -= 1) {
        const other = below(last + 1);
        const [a, b] = [entries[last], entries[other]];
        if (a && b) [entries[last], entries[other]] = [b, a];
      }
      const pairs = entries.map(([key, child]) => {
        const frozen = ordered || FROZEN.has(key) || (key === "input" && isObject(child));
        return `${blanks()}${text(key)}${blanks()}:${write(child ?? null, frozen)}`;
      });
      // The last of equal keys counts.
      if ("role" in node && !ordered && below(4) === 0) pairs.unshift('"role":"decoy"');
      return `{${pairs.join(",")}${blanks()}}`;
    };
    return `${blanks()}${inner()}${blanks()}`;
  };
  return write(value, false);
}

function textOf(prompt: PromptContent | undefined): string | undefined {
  return prompt?.kind === "text" ? prompt.text : undefined;
}

describe("identity/prompt: laws", () => {
  it("gives the beginning of the reference's text, however the body is spelled and cut", () => {
    fc.assert(
      fc.property(conversation, fc.nat(), fc.nat(5_000), ({ endpoint, body }, seed, maxChars) => {
        const bytes = utf8(spell(body, seed));
        const expected = reference(body);
        const whole = readPrompt(endpoint, bytes, WHOLE);
        expect(textOf(whole)).to.equal(expected);
        const cut = readPrompt(endpoint, bytes, { ...WHOLE, maxChars });
        expect(textOf(cut)).to.equal(expected.slice(0, maxChars));
        expect(cut?.inputTokens).to.equal(whole?.inputTokens);
      }),
      { numRuns: 600 },
    );
  });

  it("gives the same beginning for bodies with a long string anywhere among the messages", () => {
    const filler = "x".repeat(262_144);
    const fillers: readonly Json[] = [
      { role: "user", content: filler },
      { role: "user", content: [{ type: "image_url", image_url: { url: filler } }] },
    ];
    const chats = fc.record({ tools, messages: fc.array(chatMessage, { maxLength: 4 }) });
    fc.assert(
      fc.property(
        chats,
        fc.constantFrom(...fillers),
        fc.nat(4),
        fc.nat(),
        fc.nat(2_000),
        (body, big, place, seed, maxChars) => {
          const messages = [...body.messages.slice(0, place), big, ...body.messages.slice(place)];
          const value: JsonObject = { model: "m", tools: body.tools, messages };
          const bytes = utf8(spell(value, seed));
          const expected = reference(value);
          const prompt = readPrompt("chat", bytes, { ...WHOLE, maxChars });
          expect(textOf(prompt)).to.equal(expected.slice(0, maxChars));
        },
      ),
      { numRuns: 40 },
    );
  });

  it("keeps a conversation's text as the beginning of every continuation", () => {
    fc.assert(
      fc.property(
        fc.array(item, { maxLength: 6 }),
        fc.nat(6),
        fc.nat(),
        fc.nat(),
        (input, count, seed, otherSeed) => {
          const read = (items: readonly Json[], how: number): string =>
            textOf(readPrompt("responses", utf8(spell({ input: items }, how)), WHOLE)) ?? "";
          const before = read(input.slice(0, count), seed);
          expect(read(input, otherSeed).slice(0, before.length)).to.equal(before);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("never writes two different conversations alike, whatever their content forges", () => {
    const forged = fc
      .array(fc.constantFrom("a", "user", "\u0080", "\u0081", "\u0082", "\u0084", "\u0091"), {
        maxLength: 4,
      })
      .map((pieces) => pieces.join(""));
    const list = fc.array(
      fc.record({ role: forged, content: fc.array(forged, { minLength: 1, maxLength: 2 }) }),
      { maxLength: 3 },
    );
    fc.assert(
      fc.property(list, list, (one, other) => {
        const read = (messages: unknown): string | undefined =>
          textOf(readPrompt("chat", utf8(JSON.stringify({ messages })), WHOLE));
        const same = JSON.stringify(one) === JSON.stringify(other);
        expect(read(one) === read(other)).to.equal(same);
      }),
      { numRuns: 2_000 },
    );
  });

  it("never throws, and keeps its limits, for damaged bodies", () => {
    fc.assert(
      fc.property(
        conversation,
        fc.nat(),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        fc.constantFrom(...ENDPOINTS),
        fc.nat(300),
        ({ body }, seed, damages, endpoint, maxChars) => {
          const bytes = utf8(spell(body, seed));
          for (const [at, byte] of damages) bytes[at % bytes.length] = byte;
          const limits = { maxChars, maxTokens: 2 };
          for (const damaged of [bytes, bytes.subarray(0, (damages[0]?.[0] ?? 0) % bytes.length)]) {
            const prompt = readPrompt(endpoint, damaged, limits);
            if (prompt === undefined) continue;
            expect(prompt.inputTokens).to.be.within(1, damaged.length + 1);
            expect(prompt.kind === "text" ? prompt.text.length : 0).to.be.at.most(maxChars);
            expect(prompt.kind === "tokens" ? prompt.tokens.length : 0).to.be.at.most(2);
          }
        },
      ),
      { numRuns: 1_500 },
    );
  });
});

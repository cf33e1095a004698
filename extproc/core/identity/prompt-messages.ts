// Renders a conversation as canonical prompt text: each message as its role and its content, then
// what else an engine's chat template shows the model (names, reasoning, tool calls). Fields come in
// a fixed order, whatever their order in the body; fields that no template shows, such as ids, status
// and cache markers, are left out, so that replaying the same conversation gives the same text. A
// message has no end mark: a conversation's text begins with the text of each of its beginnings.
// Ids of tool calls are left out too: most templates drop them, and a template that shows them costs
// one hint that was wrong.
//
// Plain text parts are text, tool parts are rendered field by field, and every other part counts as
// media, known to Weir or not: a kind Weir has never heard of is most likely a picture.

import { namesByLength, type Span } from "./json-scan.js";
import { OPEN_BRACE, OPEN_BRACKET, QUOTE } from "./json-skip.js";
import { writeJson, writeMedia } from "./prompt-json.js";
import type { PromptScan } from "./prompt-scan.js";
import { CLOSE, FIELD, MESSAGE, OPEN, PART, VALUE, type PromptWriter } from "./prompt-writer.js";

/**
 * How a field is written: `text` = a string as text, another value as JSON; `parts` = a string or
 * an array of parts; `calls` = an array of tool calls; `media` = JSON with long strings by reference;
 * a table = an object, field by field.
 */
type How = "text" | "parts" | "calls" | "media" | Fields;
interface Field {
  readonly name: string;
  readonly how: How;
}
type Fields = readonly Field[];

function fields(table: Readonly<Record<string, How>>): Fields {
  return Object.entries(table).map(([name, how]) => ({ name, how }));
}

function namesOf(table: Fields): readonly string[] {
  return table.map(({ name }) => name);
}

const FUNCTION = fields({ name: "text", arguments: "text", input: "text" });
const CALL: Fields = [...fields({ function: FUNCTION, custom: FUNCTION }), ...FUNCTION];
/** Of a message, and of an item of the responses endpoint, in the order of the text. */
const MESSAGE_FIELDS = fields({
  content: "parts",
  name: "text",
  reasoning_content: "text",
  reasoning: "text",
  summary: "parts",
  refusal: "text",
  tool_calls: "calls",
  function_call: CALL,
  arguments: "text",
  input: "text",
  output: "parts",
});
/** Items without a role whose fields are known; another one is media as a whole. */
const ITEM_TYPES = namesByLength([
  "message",
  "reasoning",
  "function_call",
  "function_call_output",
  "custom_tool_call",
  "custom_tool_call_output",
]);
/** Parts that are text and nothing else, with the field that holds it. */
const TEXT_PARTS: ReadonlyMap<string, string> = new Map([
  ["text", "text"],
  ["input_text", "text"],
  ["output_text", "text"],
  ["summary_text", "text"],
  ["reasoning_text", "text"],
  ["refusal", "refusal"],
]);
const STRUCTURED_PARTS: ReadonlyMap<string, Fields> = new Map<string, Fields>([
  ["thinking", fields({ thinking: "text" })],
  ["tool_use", fields({ name: "text", input: "text" })],
  ["tool_result", fields({ content: "parts" })],
]);
/** What identifies a media part; markers beside it do not. */
const MEDIA_FIELDS = fields({
  image_url: "media",
  image: "media",
  input_audio: "media",
  audio_url: "media",
  audio: "media",
  video_url: "media",
  video: "media",
  file: "media",
  file_data: "media",
  file_url: "media",
  file_id: "media",
  source: "media",
  uuid: "media",
});

const MESSAGE_NAMES = namesByLength(["role", "type", ...namesOf(MESSAGE_FIELDS)]);
const PART_NAMES = namesByLength([
  ...["type", "text", "refusal", "thinking", "name", "input", "content"],
  ...namesOf(MEDIA_FIELDS),
]);
const PART_TYPES = namesByLength([...TEXT_PARTS.keys(), ...STRUCTURED_PARTS.keys()]);
const CALL_NAMES = namesByLength(namesOf(CALL));
const LETTER_N = 0x6e;

export class MessageRenderer {
  readonly #scan: PromptScan;
  readonly #writer: PromptWriter;

  constructor(scan: PromptScan, writer: PromptWriter) {
    this.#scan = scan;
    this.#writer = writer;
  }

  /** Tools, the first thing that templates show. */
  tools(tools: Span): void {
    this.#writer.mark(`${OPEN}tools${VALUE}`);
    writeJson(this.#scan, this.#writer, tools);
    this.#writer.mark(CLOSE);
  }

  /** One message that consists of its content: a string or an array of parts. */
  message(role: string, content: Span): void {
    this.#writer.mark(MESSAGE + role + VALUE);
    this.#value(content, "parts", false);
  }

  /** The messages, or items, of an array. */
  messages(array: Span): void {
    this.#scan.each(array, (start) => this.#message(start));
  }

  /** A string as text. */
  text(value: Span): void {
    this.#writer.count(value.end - value.start - 2);
    this.#uncounted(value);
  }

  #message(start: number): number {
    const scan = this.#scan;
    const writer = this.#writer;
    if (scan.bytes[start] !== OPEN_BRACE) {
      const value = scan.valueAt(start);
      this.message("", value);
      return value.end;
    }
    const { values, end } = scan.object(start, MESSAGE_NAMES);
    if (scan.stoppedAt !== undefined) return end;
    const role = values.get("role");
    const type = values.get("type");
    const kind = type === undefined ? "message" : scan.word(type, ITEM_TYPES);
    writer.mark(MESSAGE);
    if (role !== undefined && scan.startsWith(role, QUOTE)) {
      this.#uncounted(role);
    } else if (kind === undefined) {
      writer.mark(VALUE + OPEN);
      writeMedia(scan, writer, { start, end });
      writer.mark(CLOSE);
      return end;
    } else if (kind !== "message") {
      writer.mark(FIELD + kind);
    }
    writer.mark(VALUE);
    this.#fields(values, MESSAGE_FIELDS, false);
    return end;
  }

  #fields(values: ReadonlyMap<string, Span>, table: Fields, nested: boolean): void {
    for (const { name, how } of table) {
      const value = values.get(name);
      // Null stands for an absent field.
      if (value === undefined || this.#scan.startsWith(value, LETTER_N)) continue;
      if (name !== "content") this.#writer.mark(FIELD + name + VALUE);
      this.#value(value, how, nested);
    }
  }

  #value(value: Span, how: How, nested: boolean): void {
    const scan = this.#scan;
    if (scan.stoppedAt !== undefined) return;
    if (how === "media") {
      writeMedia(scan, this.#writer, value);
    } else if (scan.startsWith(value, QUOTE)) {
      this.text(value);
    } else if (how === "parts" && scan.startsWith(value, OPEN_BRACKET)) {
      scan.each(value, (start, index) => this.#part(start, index, nested));
    } else if (how === "calls" && scan.startsWith(value, OPEN_BRACKET)) {
      scan.each(value, (start) => this.#call(start));
    } else if (Array.isArray(how) && scan.startsWith(value, OPEN_BRACE)) {
      const { values } = scan.object(value.start, CALL_NAMES);
      this.#writer.mark(OPEN);
      this.#fields(values, how, nested);
      this.#writer.mark(CLOSE);
    } else {
      writeJson(scan, this.#writer, value);
    }
  }

  #call(start: number): number {
    const value = this.#scan.valueAt(start);
    this.#value(value, CALL, false);
    return value.end;
  }

  #part(start: number, index: number, nested: boolean): number {
    const scan = this.#scan;
    const writer = this.#writer;
    // A single text part and a plain string are the same prompt, so the first part has no mark.
    if (index > 0) writer.mark(PART);
    if (scan.bytes[start] !== OPEN_BRACE) {
      const value = scan.valueAt(start);
      this.#value(value, "text", nested);
      return value.end;
    }
    const { values, end } = scan.object(start, PART_NAMES);
    if (scan.stoppedAt !== undefined) return end;
    const type = values.get("type");
    const kind = type === undefined ? "text" : (scan.word(type, PART_TYPES) ?? "");
    const text = values.get(TEXT_PARTS.get(kind) ?? "");
    if (text !== undefined && scan.startsWith(text, QUOTE)) {
      this.text(text);
      return end;
    }
    writer.mark(OPEN);
    if (type !== undefined && scan.startsWith(type, QUOTE)) this.#uncounted(type);
    writer.mark(VALUE);
    const structured = STRUCTURED_PARTS.get(kind);
    // Results hold media, but no further results; deeper ones are taken like media.
    if (structured !== undefined && !nested) this.#fields(values, structured, true);
    else this.#media(values, { start, end });
    writer.mark(CLOSE);
    return end;
  }

  #media(values: ReadonlyMap<string, Span>, part: Span): void {
    const known = MEDIA_FIELDS.some(({ name }) => values.has(name));
    if (known) this.#fields(values, MEDIA_FIELDS, true);
    else writeMedia(this.#scan, this.#writer, part);
  }

  #uncounted(value: Span): void {
    const read = this.#writer.string(this.#scan.bytes, value.start + 1, value.end - 1);
    if (!read) this.#scan.stop(value.start);
  }
}

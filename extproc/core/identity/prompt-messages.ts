// Renders a conversation as canonical prompt text: each message as its role and its content, then
// what else an engine's chat template shows the model (names, reasoning, tool calls). Fields come in
// a fixed order, whatever their order in the body; fields that no template shows, such as ids, status
// and cache markers, are left out, so that replaying the same conversation gives the same text. A
// message has no end mark: a conversation's text begins with the text of each of its beginnings.
// Ids of tool calls are left out too: most templates drop them, and a template that shows them costs
// one hint that was wrong.
//
// Plain text parts are text; tool parts, documents and search results are rendered field by field, with
// all that a model sees of them; of pictures, sounds and films only what identifies them. A part of a
// kind that Weir has never heard of is written whole: text in it is text, data are sampled.

import { OPEN_BRACE, OPEN_BRACKET, QUOTE, type Span } from "./json-skip.js";
import {
  CALL,
  CALL_NAMES,
  ITEM_TYPES,
  MEDIA_FIELDS,
  MEDIA_PARTS,
  MESSAGE_FIELDS,
  MESSAGE_NAMES,
  PART_DEPTH_MAX,
  PART_NAMES,
  PART_TYPES,
  SOURCE_FIELDS,
  SOURCE_NAMES,
  STRUCTURED_PARTS,
  TEXT_PARTS,
  TEXT_SOURCES,
  type Fields,
  type How,
} from "./prompt-fields.js";
import { beginsWith, writeJson, writeMedia, writeMixed } from "./prompt-json.js";
import type { PromptScan } from "./prompt-scan.js";
import { CLOSE, FIELD, MESSAGE, OPEN, PART, VALUE, type PromptWriter } from "./prompt-writer.js";

/** What a media type of text begins with. */
const TEXT_TYPE = "text";
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
    this.#value(content, "parts", 0);
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
      writeMixed(scan, writer, { start, end });
      writer.mark(CLOSE);
      return end;
    } else if (kind !== "message") {
      writer.mark(FIELD + kind);
    }
    writer.mark(VALUE);
    this.#fields(values, MESSAGE_FIELDS, 0);
    return end;
  }

  #fields(values: ReadonlyMap<string, Span>, table: Fields, depth: number): void {
    for (const { name, how } of table) {
      const value = values.get(name);
      // Null stands for an absent field.
      if (value === undefined || this.#scan.startsWith(value, LETTER_N)) continue;
      if (name !== "content") this.#writer.mark(FIELD + name + VALUE);
      this.#value(value, how, depth);
    }
  }

  #value(value: Span, how: How, depth: number): void {
    const scan = this.#scan;
    if (scan.stoppedAt !== undefined) return;
    if (how === "media") {
      writeMedia(scan, this.#writer, value);
    } else if (how === "mixed") {
      writeMixed(scan, this.#writer, value);
    } else if (how === "source" && scan.startsWith(value, OPEN_BRACE)) {
      this.#source(value, depth);
    } else if (scan.startsWith(value, QUOTE)) {
      this.text(value);
    } else if (how === "parts" && scan.startsWith(value, OPEN_BRACKET)) {
      scan.each(value, (start, index) => this.#part(start, index, depth));
    } else if (how === "calls" && scan.startsWith(value, OPEN_BRACKET)) {
      scan.each(value, (start) => this.#call(start));
    } else if (Array.isArray(how) && scan.startsWith(value, OPEN_BRACE)) {
      const { values } = scan.object(value.start, CALL_NAMES);
      this.#writer.mark(OPEN);
      this.#fields(values, how, depth);
      this.#writer.mark(CLOSE);
    } else {
      writeJson(scan, this.#writer, value);
    }
  }

  #call(start: number): number {
    const value = this.#scan.valueAt(start);
    this.#value(value, CALL, 0);
    return value.end;
  }

  #part(start: number, index: number, depth: number): number {
    const scan = this.#scan;
    const writer = this.#writer;
    // A single text part and a plain string are the same prompt, so the first part has no mark.
    if (index > 0) writer.mark(PART);
    if (scan.bytes[start] !== OPEN_BRACE) {
      const value = scan.valueAt(start);
      this.#value(value, "text", depth);
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
    const structured = depth < PART_DEPTH_MAX ? STRUCTURED_PARTS.get(kind) : undefined;
    const media = type === undefined ? MEDIA_FIELDS : MEDIA_PARTS.get(kind);
    if (structured !== undefined) this.#fields(values, structured, depth + 1);
    else if (media?.some(({ name }) => values.has(name))) this.#fields(values, media, depth);
    else writeMixed(scan, writer, { start, end });
    writer.mark(CLOSE);
    return end;
  }

  /** The source of a document: text as text, a file by reference. */
  #source(value: Span, depth: number): void {
    const scan = this.#scan;
    const { values } = scan.object(value.start, SOURCE_NAMES);
    if (scan.stoppedAt !== undefined) return;
    const mediaType = values.get("media_type");
    const isText =
      scan.word(values.get("type"), TEXT_SOURCES) !== undefined ||
      (mediaType !== undefined && beginsWith(scan.bytes, mediaType.start + 1, TEXT_TYPE));
    if (!isText) {
      writeMixed(scan, this.#writer, value);
      return;
    }
    this.#writer.mark(OPEN);
    this.#fields(values, SOURCE_FIELDS, depth);
    this.#writer.mark(CLOSE);
  }

  #uncounted(value: Span): void {
    this.#writer.string(this.#scan.bytes, value.start + 1, value.end - 1);
  }
}

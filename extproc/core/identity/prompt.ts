// The beginning of one request's prompt, by which its prefix is known: as text in a canonical form,
// or as token ids where the client sends them. The body is scanned, never built, and one way for
// every size: the top-level keys are found, then tools, system text and messages are rendered until
// the limit is reached. Of the rest only the length of its text is taken, for an estimate of input
// tokens. So a giant body costs hardly more than finding its end, and a prompt is the same whatever
// stands behind it. What cannot be read ends the prompt: the engine gets the same bytes and answers
// that better.

import { assertNever } from "../model/invariant.js";
import { namesByLength, type Span } from "./json-scan.js";
import {
  CLOSE_BRACKET,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipBlanks,
  startOfValue,
} from "./json-skip.js";
import type { Endpoint } from "./paths.js";
import { writeMedia } from "./prompt-json.js";
import { MessageRenderer } from "./prompt-messages.js";
import { PromptScan } from "./prompt-scan.js";
import { readTokens } from "./prompt-tokens.js";
import { CLOSE, OPEN, PromptWriter, VALUE } from "./prompt-writer.js";

export type PromptContent =
  | {
      readonly kind: "text";
      /** Canonical text, cut at `maxChars`. */
      readonly text: string;
      /** A quarter of the bytes of all text, rounded up, at least 1. */
      readonly inputTokens: number;
    }
  | {
      readonly kind: "tokens";
      /** Cut at `maxTokens`. */
      readonly tokens: Uint32Array;
      /** Of all prompts in the body, at least 1. */
      readonly inputTokens: number;
    };

export interface PromptLimits {
  /** UTF-16 characters of a text prompt. */
  readonly maxChars: number;
  /** Tokens of a token prompt. */
  readonly maxTokens: number;
}

/** A common rule of thumb; it only weighs requests against each other. */
const BYTES_PER_TOKEN = 4;

/**
 * How a top-level value enters the prompt: `tools`; `system` and `user` = a message of that role;
 * `state` = an identifier of what the engine has kept; `media` = beside the text, taken as before it;
 * `messages` = a conversation; `prompt` = plain text or token ids.
 */
type Section = "tools" | "system" | "state" | "media" | "messages" | "prompt";
type Sections = readonly (readonly [name: string, section: Section])[];

/** What makes up a prompt, in the order of its text, which ends with `messages` or `prompt`. */
const SECTIONS: ReadonlyMap<Endpoint, Sections> = new Map<Endpoint, Sections>([
  [
    "chat",
    [
      ["tools", "tools"],
      ["messages", "messages"],
    ],
  ],
  [
    "messages",
    [
      ["tools", "tools"],
      ["system", "system"],
      ["messages", "messages"],
    ],
  ],
  [
    "responses",
    [
      ["tools", "tools"],
      ["instructions", "system"],
      ["previous_response_id", "state"],
      ["input", "messages"],
    ],
  ],
  ["completions", [["prompt", "prompt"]]],
  [
    "generate",
    [
      ["image_data", "media"],
      ["video_data", "media"],
      ["audio_data", "media"],
      ["text", "prompt"],
      ["input_ids", "prompt"],
    ],
  ],
]);
const NAMES = namesByLength([
  ...new Set([...SECTIONS.values()].flatMap((sections) => sections.map(([name]) => name))),
]);
const LETTER_N = 0x6e;

/**
 * Reads the prompt of a body that `readShape` has accepted. Undefined when the endpoint generates no
 * tokens, and when the body has no prompt that can be read.
 */
export function readPrompt(
  endpoint: Endpoint,
  body: Uint8Array,
  limits: PromptLimits,
): PromptContent | undefined {
  const sections = SECTIONS.get(endpoint);
  const start = startOfValue(body);
  if (sections === undefined || body[start] !== OPEN_BRACE) return undefined;
  const scan = new PromptScan(body);
  const { values } = scan.root(start, NAMES);
  if (scan.stoppedAt !== undefined) return undefined;
  const reader = new PromptReader(scan, limits.maxChars);
  for (const [name, section] of sections) {
    const value = values.get(name);
    if (value === undefined || scan.startsWith(value, LETTER_N)) continue;
    if (section === "prompt" && isTokens(body, value)) {
      // Equal ids with other media are another prompt, and ids cannot tell.
      return reader.empty ? tokenPrompt(body, value, limits.maxTokens) : undefined;
    }
    const complete = reader.read(section, name, value);
    reader.countUnread(value);
    if (complete) return reader.content();
  }
  return undefined;
}

class PromptReader {
  readonly #scan: PromptScan;
  readonly #writer: PromptWriter;
  readonly #renderer: MessageRenderer;
  #empty = true;

  constructor(scan: PromptScan, maxChars: number) {
    this.#scan = scan;
    this.#writer = new PromptWriter(maxChars);
    this.#renderer = new MessageRenderer(scan, this.#writer);
  }

  /** Nothing has been read yet. */
  get empty(): boolean {
    return this.#empty;
  }

  /** Reads one section; whether the prompt ends with it. */
  read(section: Section, name: string, value: Span): boolean {
    const isString = this.#scan.startsWith(value, QUOTE);
    const isArray = this.#scan.startsWith(value, OPEN_BRACKET);
    this.#empty = false;
    switch (section) {
      case "tools":
        if (isArray && !isEmptyArray(this.#scan.bytes, value)) this.#renderer.tools(value);
        return false;
      case "system":
        if (isString || isArray) this.#renderer.message("system", value);
        return false;
      case "state":
      case "media":
        this.#aside(name, value);
        return false;
      case "messages":
        if (isString) this.#renderer.message("user", value);
        else if (isArray) this.#renderer.messages(value);
        return isString || isArray;
      case "prompt":
        if (isString) this.#renderer.text(value);
        return isString || (isArray && this.#batch(value));
      default:
        return assertNever(section, "section");
    }
  }

  /** Takes what the scan left of a section for text, when it gave up: roughly, and rather too much. */
  countUnread(value: Span): void {
    const { stoppedAt } = this.#scan;
    if (stoppedAt === undefined) return;
    const isInside = stoppedAt >= value.start && stoppedAt < value.end;
    this.#writer.count(value.end - (isInside ? stoppedAt : value.start));
  }

  content(): PromptContent | undefined {
    const { text, textBytes } = this.#writer;
    if (text === "" && this.#scan.stoppedAt !== undefined) return undefined;
    return { kind: "text", text, inputTokens: Math.max(1, Math.ceil(textBytes / BYTES_PER_TOKEN)) };
  }

  /** Several prompts at once: the first is the prompt, all of them are text. */
  #batch(prompts: Span): boolean {
    const scan = this.#scan;
    let found = false;
    scan.each(prompts, (start, index) => {
      const value = scan.valueAt(start);
      if (!scan.startsWith(value, QUOTE)) return value.end;
      if (index === 0) this.#renderer.text(value);
      else this.#writer.count(value.end - value.start - 2);
      found ||= index === 0;
      return value.end;
    });
    return found;
  }

  #aside(name: string, value: Span): void {
    this.#writer.mark(OPEN + name + VALUE);
    writeMedia(this.#scan, this.#writer, value);
    this.#writer.mark(CLOSE);
  }
}

function tokenPrompt(bytes: Uint8Array, value: Span, maxTokens: number): PromptContent | undefined {
  const read = readTokens(bytes, value, maxTokens);
  return read && { kind: "tokens", tokens: read.tokens, inputTokens: Math.max(1, read.count) };
}

/** An array that begins with a number or an array. */
function isTokens(bytes: Uint8Array, value: Span): boolean {
  if (bytes[value.start] !== OPEN_BRACKET) return false;
  const first = bytes[skipBlanks(bytes, value.start + 1)] ?? 0;
  return first === OPEN_BRACKET || (first >= 0x30 && first <= 0x39);
}

function isEmptyArray(bytes: Uint8Array, value: Span): boolean {
  return bytes[skipBlanks(bytes, value.start + 1)] === CLOSE_BRACKET;
}

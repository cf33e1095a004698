// The beginning of one request's prompt, by which its prefix is known: as text in a canonical form,
// or as token ids where the client sends them. The body is scanned, never built, and one way for
// every size: the top-level values are found, then rendered section by section until the limit is
// reached. Of the rest only the length of its text is taken, for an estimate of input tokens; and
// where a body takes too much work, its bytes stand for that length. So a giant body costs no more
// than finding its end, and a prompt is the same whatever stands behind it. What cannot be read ends
// the prompt: the engine gets the same bytes and answers that better.

import { assertNever } from "../model/invariant.js";
import { wantedKeys, type LocatedRoot } from "./json-located.js";
import { JsonReader } from "./json-reader.js";
import { namesByLength } from "./json-scan.js";
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  type Span,
} from "./json-skip.js";
import type { Endpoint } from "./paths.js";
import { looksLikeData, writeJson, writeMedia, writeUncounted } from "./prompt-json.js";
import { MessageRenderer } from "./prompt-messages.js";
import { PROMPT_STEPS_MAX, PromptScan } from "./prompt-scan.js";
import { PROMPT_KEYS, SECTIONS, type Section, type SectionKind } from "./prompt-sections.js";
import { readTokens, TOKENS_READ_MAX, type TokenPrompt } from "./prompt-tokens.js";
import { CLOSE, OPEN, PromptWriter, VALUE } from "./prompt-writer.js";

export type PromptContent =
  | {
      readonly kind: "text";
      /** Canonical text, cut at `maxChars`; empty when only the length could be read. */
      readonly text: string;
      /** A quarter of the bytes of all text, rounded up, at least 1. */
      readonly inputTokens: number;
      readonly prompts: number | undefined;
    }
  | {
      readonly kind: "tokens";
      /** Cut at `maxTokens`. */
      readonly tokens: Uint32Array;
      /** Of all prompts in the body, at least 1. */
      readonly inputTokens: number;
      /** Prompts in the body, each of which gets an answer; undefined when it took too much to count. */
      readonly prompts: number | undefined;
    };

export interface PromptLimits {
  /** UTF-16 characters of a text prompt. Up to 1, only the length is wanted, and less work is done. */
  readonly maxChars: number;
  /** Tokens of a token prompt. */
  readonly maxTokens: number;
}

/** A common rule of thumb; it only weighs requests against each other. */
const BYTES_PER_TOKEN = 4;
/** Of the usual work, what is done where only a length is wanted: 400 messages are still counted. */
export const LENGTH_ONLY_SHARE = 1 / 2;

/** Long strings that are looked at for that; further ones count as text. */
const UNREAD_LOOKS_MAX = 1_024;
/** A body holds thousands of long strings, so four places of each have to do. */
const UNREAD_STRIDE = 16;

const PROMPT_WANTED = wantedKeys(PROMPT_KEYS);
const NONE = namesByLength(["none"]);
const LETTER_N = 0x6e;

/**
 * Reads the prompt of a body that `readShape` has accepted; `root` is what that has located, if it
 * has. Undefined when the endpoint generates no tokens, and when the body has no prompt of a known
 * form. A prompt that takes too much work has the text gathered till then, and an estimated length.
 */
export function readPrompt(
  endpoint: Endpoint,
  body: Uint8Array,
  limits: PromptLimits,
  root?: LocatedRoot,
): PromptContent | undefined {
  const sections = SECTIONS.get(endpoint);
  if (sections === undefined) return undefined;
  const located = root ?? new JsonReader(body, PROMPT_WANTED).finish();
  if (!located.ok) return undefined;
  const share = limits.maxChars <= 1 ? LENGTH_ONLY_SHARE : 1;
  const scan = new PromptScan(body, located.ends, PROMPT_STEPS_MAX * share);
  const reader = new PromptReader(scan, limits.maxChars);
  for (const section of sections) {
    const value = valueOf(scan, section, located.values);
    if (value === undefined || isAbsent(scan, section.kind, value)) continue;
    if (section.kind === "prompt" && isTokens(scan, value)) {
      const read = readTokens(body, value, limits.maxTokens, TOKENS_READ_MAX * share);
      return read && reader.tokens(read);
    }
    const complete = reader.read(section.kind, section.key, value);
    reader.countUnread(value);
    if (complete) return reader.content();
  }
  return undefined;
}

class PromptReader {
  readonly #scan: PromptScan;
  readonly #writer: PromptWriter;
  readonly #renderer: MessageRenderer;
  #hasState = false;
  #prompts: number | undefined = 1;

  constructor(scan: PromptScan, maxChars: number) {
    this.#scan = scan;
    this.#writer = new PromptWriter(maxChars);
    this.#renderer = new MessageRenderer(scan, this.#writer);
  }

  /** Reads one section; whether the prompt ends with it. */
  read(kind: SectionKind, key: string, value: Span): boolean {
    const isString = this.#scan.startsWith(value, QUOTE);
    const isArray = this.#scan.startsWith(value, OPEN_BRACKET);
    switch (kind) {
      case "choice":
        if (this.#isNone(value)) this.#aside(key, value, writeUncounted);
        return false;
      case "state":
        this.#aside(key, value, writeUncounted);
        return false;
      case "documents":
        this.#aside(key, value, writeJson);
        return false;
      case "media":
        this.#aside(key, value, writeMedia);
        return false;
      case "tools":
        if (isArray) this.#renderer.tools(value);
        return false;
      case "system":
        if (isString || isArray) this.#renderer.message("system", value);
        return false;
      case "messages":
        if (isString) this.#renderer.message("user", value);
        else if (isArray) this.#renderer.messages(value);
        return isString || isArray;
      case "prompt":
        if (isString) this.#renderer.text(value);
        return isString || (isArray && this.#batch(value));
      default:
        return assertNever(kind, "section");
    }
  }

  /**
   * Takes what the scan left of a section for text, when it gave up: roughly, and rather too much. Only
   * long strings that look like pictures or files are left out.
   */
  countUnread(value: Span): void {
    const { bytes, ends, stoppedAt } = this.#scan;
    if (stoppedAt === undefined) return;
    const isInside = stoppedAt >= value.start && stoppedAt < value.end;
    const from = isInside ? stoppedAt : value.start;
    this.#writer.count(value.end - from);
    let looked = 0;
    for (const { start, end } of ends.between(from, value.end)) {
      looked += 1;
      if (looked > UNREAD_LOOKS_MAX) return;
      if (looksLikeData(bytes, start + 1, end - 1, UNREAD_STRIDE)) this.#writer.count(start - end);
    }
  }

  content(): PromptContent {
    const { text, textBytes } = this.#writer;
    const inputTokens = Math.max(1, Math.ceil(textBytes / BYTES_PER_TOKEN));
    return { kind: "text", text, inputTokens, prompts: this.#prompts };
  }

  /** Token ids; as text behind a state or media, because equal ids are another prompt there. */
  tokens({ tokens, count, prompts }: TokenPrompt): PromptContent {
    const inputTokens = Math.max(1, count);
    if (!this.#hasState) return { kind: "tokens", tokens, inputTokens, prompts };
    this.#writer.mark(`${OPEN}tokens${VALUE}${tokens.join(",")}`);
    return { kind: "text", text: this.#writer.text, inputTokens, prompts };
  }

  /** Several prompts at once: the first is the prompt, all of them are text. */
  #batch(prompts: Span): boolean {
    const scan = this.#scan;
    const isText = scan.bytes[scan.blanks(prompts.start + 1)] === QUOTE;
    let count = 0;
    scan.each(prompts, (start, index) => {
      count = index + 1;
      const value = scan.valueAt(start);
      if (!scan.startsWith(value, QUOTE)) return value.end;
      if (index === 0) this.#renderer.text(value);
      else this.#writer.count(value.end - value.start - 2);
      return value.end;
    });
    this.#prompts = scan.stoppedAt === undefined ? count : undefined;
    return isText || scan.stoppedAt !== undefined;
  }

  #aside(key: string, value: Span, write: typeof writeJson): void {
    this.#hasState = true;
    this.#writer.mark(OPEN + key + VALUE);
    write(this.#scan, this.#writer, value);
    this.#writer.mark(CLOSE);
  }

  /** "none", or an object of that type. */
  #isNone(value: Span): boolean {
    const scan = this.#scan;
    const isObject = scan.startsWith(value, OPEN_BRACE);
    const type = isObject ? scan.object(value.start, TYPE).values.get("type") : value;
    return scan.word(type, NONE) !== undefined;
  }
}

const TYPE = namesByLength(["type"]);

function valueOf(
  scan: PromptScan,
  { key, inner }: Section,
  values: ReadonlyMap<string, Span>,
): Span | undefined {
  const value = values.get(key);
  if (inner === undefined || value === undefined) return value;
  if (!scan.startsWith(value, OPEN_BRACE)) return undefined;
  return scan.object(value.start, namesByLength([inner])).values.get(inner);
}

/** Null stands for an absent value; an empty container does where there is no difference. */
function isAbsent(scan: PromptScan, kind: SectionKind, value: Span): boolean {
  if (scan.startsWith(value, LETTER_N)) return true;
  if (kind === "system" || kind === "messages" || kind === "prompt") return false;
  const first = scan.bytes[value.start];
  if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return false;
  const next = scan.bytes[scan.blanks(value.start + 1)];
  return next === CLOSE_BRACE || next === CLOSE_BRACKET;
}

/** An array that begins with a number or an array. */
function isTokens(scan: PromptScan, value: Span): boolean {
  if (!scan.startsWith(value, OPEN_BRACKET)) return false;
  const first = scan.bytes[scan.blanks(value.start + 1)] ?? 0;
  return first === OPEN_BRACKET || (first >= 0x30 && first <= 0x39);
}

// Is an answer exactly what its endpoint answers with, whole and well? Asked where more hangs on an
// answer than its charge: a worker counts as the new owner of a prompt only if it has done the whole
// work. The bytes are collected up to a limit and parsed once at the end, so this is only for requests
// that are few. Owns the collected bytes; never changes the answer.

import type { Endpoint } from "../identity/paths.js";
import { parseJson, usageOf } from "./usage-fields.js";

/** What speaks against an answer. */
export type AnswerFlaw = "too_large" | "wrong_kind" | "unfinished" | "no_usage";

/** Most answers are smaller. */
const FIRST_BYTES = 16_384;
const NOTHING = new Uint8Array(0);

type JsonObject = Readonly<Record<string, unknown>>;

// Bytes that are not UTF-8 become replacement characters, which harms no key.
const decoder = new TextDecoder();

export class WholeAnswer {
  readonly #endpoint: Endpoint;
  readonly #maxBytes: number;
  /** Grows by doubling, so that many small chunks cost no more than their bytes. */
  #buffer: Uint8Array;
  #bytes = 0;

  /** @param maxBytes of the body, decoded; one byte more is too large */
  constructor(endpoint: Endpoint, maxBytes: number) {
    this.#endpoint = endpoint;
    this.#maxBytes = maxBytes;
    this.#buffer = new Uint8Array(Math.min(maxBytes, FIRST_BYTES));
  }

  /** Takes the next bytes of the body; they may be reused by the caller afterwards. */
  push(bytes: Uint8Array): void {
    const start = this.#bytes;
    this.#bytes += bytes.length;
    if (this.#bytes > this.#maxBytes) this.#buffer = NOTHING;
    else {
      this.#grow();
      this.#buffer.set(bytes, start);
    }
  }

  /** What speaks against the body that has come; undefined = nothing. To be called once, at its end. */
  finish(): AnswerFlaw | undefined {
    if (this.#bytes > this.#maxBytes) return "too_large";
    const body = asObject(parseJson(decoder.decode(this.#buffer.subarray(0, this.#bytes))));
    this.#buffer = NOTHING;
    if (body === undefined || isPresent(body["error"])) return "wrong_kind";
    const kind = KINDS[this.#endpoint];
    if (kind?.matches(body) !== true) return "wrong_kind";
    if (!kind.finished(body)) return "unfinished";
    return usageOf(body).output === undefined ? "no_usage" : undefined;
  }

  #grow(): void {
    if (this.#bytes <= this.#buffer.length) return;
    const room = Math.min(this.#maxBytes, Math.max(this.#bytes, 2 * this.#buffer.length));
    const larger = new Uint8Array(room);
    larger.set(this.#buffer);
    this.#buffer = larger;
  }
}

interface AnswerKind {
  readonly matches: (body: JsonObject) => boolean;
  /** The generation came to an end of its own: a stop, or a limit of tokens. */
  readonly finished: (body: JsonObject) => boolean;
}

/** Reasons with which an engine ends a generation that it gave up. */
const GIVEN_UP: ReadonlySet<string> = new Set(["abort", "error", "cancelled"]);

const choices = (object: string): AnswerKind => ({
  matches: (body) => body["object"] === object && listOf(body["choices"]).length > 0,
  finished: (body) => listOf(body["choices"]).every((each) => hasEnded(each["finish_reason"])),
});

/** Endpoints that generate; the others have no answer of this kind. */
const KINDS: Readonly<Partial<Record<Endpoint, AnswerKind>>> = {
  chat: choices("chat.completion"),
  completions: choices("text_completion"),
  responses: {
    matches: (body) => body["object"] === "response" && Array.isArray(body["output"]),
    finished: ({ status }) => status === "completed" || status === "incomplete",
  },
  messages: {
    matches: (body) => body["type"] === "message" && Array.isArray(body["content"]),
    finished: (body) => hasEnded(body["stop_reason"]),
  },
  generate: {
    matches: (body) =>
      asObject(body["meta_info"]) !== undefined &&
      (typeof body["text"] === "string" || Array.isArray(body["output_ids"])),
    finished: (body) => {
      const reason = asObject(body["meta_info"])?.["finish_reason"];
      return hasEnded(asObject(reason)?.["type"] ?? reason);
    },
  },
};

function hasEnded(reason: unknown): boolean {
  return typeof reason === "string" && reason !== "" && !GIVEN_UP.has(reason);
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function asObject(value: unknown): JsonObject | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return value as JsonObject;
}

/** The objects of a list; empty for anything else, and for a list with another member. */
function listOf(value: unknown): readonly JsonObject[] {
  if (!Array.isArray(value)) return [];
  const objects = value.map(asObject).filter((each) => each !== undefined);
  return objects.length === value.length ? objects : [];
}

// How many tokens did an answer cost, read from its bytes as they pass? One reader per answer; push
// is called per chunk with whatever cut the network made, finish once at the end, complete or not.
//
// The reader holds the last 64 KiB (tail-ring.ts) and parses them once, in finish: a JSON body whole
// when it fits, an event stream from its last event backwards, and either by the raw search when its
// frame cannot be read. While bytes pass, a stream only has its events counted. Because nothing else
// is kept, the reading depends on the bytes alone and never on how they were cut.

import { usageInBody } from "./json-usage.js";
import { usageInRawTail } from "./raw-tail.js";
import { SseEventCounter } from "./sse-events.js";
import { usageInEvents } from "./sse-usage.js";
import { TailRing } from "./tail-ring.js";

export type BodyFormat = "json" | "sse";

export interface UsageReading {
  /** Output tokens of the terminal usage; undefined = none in the tail. */
  readonly outputTokens: number | undefined;
  /** Last output count seen in the tail, also of an answer that broke off. */
  readonly lastSeenTokens: number | undefined;
  /** Events with output that passed (event streams only, else 0). */
  readonly contentEvents: number;
  /** Prompt tokens where the usage says so. Never charged. */
  readonly promptTokens: number | undefined;
  /** Prompt tokens that came from the engine's cache, where the usage says so. Never charged. */
  readonly cachedTokens: number | undefined;
}

export interface UsageReader {
  push(chunk: Uint8Array): void;
  /** Parses the tail. To be called once, after the last push. */
  finish(): UsageReading;
}

const NOTHING_READ: UsageReading = {
  outputTokens: undefined,
  lastSeenTokens: undefined,
  contentEvents: 0,
  promptTokens: undefined,
  cachedTokens: undefined,
};

// Bytes that are not UTF-8 become replacement characters, which harms no key and no number; a byte
// order mark at the start is dropped.
const decoder = new TextDecoder();

const OPEN_BRACKET = 0x5b;

/** The format of an answer by its content type; without one it is read as JSON. */
export function bodyFormat(contentType: string | undefined): BodyFormat {
  const [essence = ""] = (contentType ?? "").split(";", 1);
  return essence.trim().toLowerCase() === "text/event-stream" ? "sse" : "json";
}

/** A reader for one answer. The ring may be given to look at the memory it takes. */
export function createUsageReader(
  format: BodyFormat,
  ring: TailRing = new TailRing(),
): UsageReader {
  return format === "sse" ? new SseUsageReader(ring) : new JsonUsageReader(ring);
}

class SseUsageReader implements UsageReader {
  readonly #ring: TailRing;
  readonly #events = new SseEventCounter();

  constructor(ring: TailRing) {
    this.#ring = ring;
  }

  push(chunk: Uint8Array): void {
    this.#ring.push(chunk);
    this.#events.push(chunk);
  }

  finish(): UsageReading {
    if (this.#ring.size === 0) return NOTHING_READ;
    const text = decoder.decode(this.#ring.bytes());
    const contentEvents = this.#events.contentEvents;
    const inEvents = usageInEvents(text, !this.#ring.cut);
    if (inEvents !== undefined) {
      return {
        outputTokens: inEvents.output,
        lastSeenTokens: inEvents.lastSeen,
        contentEvents,
        promptTokens: inEvents.prompt,
        cachedTokens: inEvents.cached,
      };
    }
    return { ...rawReading(text), contentEvents };
  }
}

class JsonUsageReader implements UsageReader {
  readonly #ring: TailRing;
  // The first byte of the JSON text, past blanks and a byte order mark; it tells a batch from one
  // result when the head is gone.
  #firstByte: number | undefined;

  constructor(ring: TailRing) {
    this.#ring = ring;
  }

  push(chunk: Uint8Array): void {
    this.#firstByte ??= chunk.find((byte) => byte > 0x20 && byte < 0x7f);
    this.#ring.push(chunk);
  }

  finish(): UsageReading {
    if (this.#ring.size === 0) return NOTHING_READ;
    const text = decoder.decode(this.#ring.bytes());
    const counts = this.#ring.cut ? undefined : usageInBody(text);
    if (counts?.output === undefined) {
      // The raw search would show one result of a batch, and a part of the sum is not its usage.
      if (this.#firstByte === OPEN_BRACKET) return NOTHING_READ;
      const raw = rawReading(text);
      return { ...raw, promptTokens: raw.promptTokens ?? counts?.prompt };
    }
    return {
      outputTokens: counts.output,
      lastSeenTokens: counts.output,
      contentEvents: 0,
      promptTokens: counts.prompt,
      cachedTokens: counts.cached,
    };
  }
}

function rawReading(text: string): UsageReading {
  const counts = usageInRawTail(text);
  return {
    outputTokens: counts?.output,
    lastSeenTokens: counts?.output,
    contentEvents: 0,
    promptTokens: counts?.prompt,
    cachedTokens: counts?.cached,
  };
}

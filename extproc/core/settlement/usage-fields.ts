// Which numbers of a parsed JSON value are token counts: the field names of every API dialect in one
// place. Chat and completions write `usage.completion_tokens`, the Responses and Messages APIs write
// `usage.output_tokens`, streams nest the same object under `response` or `message`, and SGLang's
// /generate writes `meta_info`. Anything that is not a plain count is treated as absent: usage is
// read or missing, never guessed.

/** Largest accepted count (32 bits unsigned); a larger one is a broken engine, not an answer. */
export const MAX_TOKEN_COUNT = 4_294_967_295;

/** What one usage object says; undefined = it does not say. */
export interface UsageCounts {
  readonly output: number | undefined;
  readonly prompt: number | undefined;
  readonly cached: number | undefined;
}

/** The value as a token count: an integer in 0..MAX_TOKEN_COUNT, else undefined. */
export function tokenCount(value: unknown): number | undefined {
  if (typeof value !== "number" || !Number.isInteger(value)) return undefined;
  // Adding 0 turns the -0 that JSON can write into 0.
  return value >= 0 && value <= MAX_TOKEN_COUNT ? value + 0 : undefined;
}

/** The counts of one `usage` or `meta_info` object. */
export function countsOf(usage: unknown): UsageCounts {
  return {
    output:
      tokenCount(member(usage, "completion_tokens")) ?? tokenCount(member(usage, "output_tokens")),
    prompt: tokenCount(member(usage, "prompt_tokens")) ?? tokenCount(member(usage, "input_tokens")),
    cached:
      tokenCount(member(member(usage, "prompt_tokens_details"), "cached_tokens")) ??
      tokenCount(member(member(usage, "input_tokens_details"), "cached_tokens")) ??
      tokenCount(member(usage, "cache_read_input_tokens")) ??
      tokenCount(member(usage, "cached_tokens")),
  };
}

/** The counts of a whole body or of one event's data; the first place that yields a number wins. */
export function usageOf(body: unknown): UsageCounts {
  const places = [
    countsOf(member(body, "usage")),
    countsOf(member(member(body, "response"), "usage")),
    countsOf(member(member(body, "message"), "usage")),
    countsOf(member(body, "meta_info")),
  ];
  return {
    output: places.find((place) => place.output !== undefined)?.output,
    prompt: places.find((place) => place.prompt !== undefined)?.prompt,
    cached: places.find((place) => place.cached !== undefined)?.cached,
  };
}

/**
 * Which prompt of a batch an SGLang event belongs to: the `index` beside `meta_info`; undefined for
 * every other event.
 */
export function batchIndexOf(event: unknown): number | undefined {
  return member(event, "meta_info") === undefined ? undefined : tokenCount(member(event, "index"));
}

/** The sum of two counts, where an unknown one counts as nothing. */
export function sumOf(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined) return b;
  return b === undefined ? a : a + b;
}

/** The text as JSON; undefined when it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function member(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return (value as Readonly<Record<string, unknown>>)[key];
}

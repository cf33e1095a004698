// What do the OpenAI paths have in common? The error body, the usage object with its cached tokens,
// and the rule for usage in a stream: none unless stream_options asks; `include_usage` adds one last
// chunk without choices and null on the others; `continuous_usage_stats` puts the count so far on
// every chunk.
import { asObject, type JsonObject } from "../json.js";
import { refuse, sum, type Refusal, type Run } from "./dialect.js";

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: "BadRequestError",
  401: "Unauthorized",
  404: "NotFoundError",
  413: "RequestEntityTooLarge",
  429: "TooManyRequests",
  503: "ServiceUnavailableError",
};

/** The error body of OpenAI-compatible engines: `code` is the HTTP status. */
export function openaiError(status: number, message: string, param: string | null): JsonObject {
  const type = ERROR_TYPES[status] ?? "InternalServerError";
  return { error: { message, type, param, code: status } };
}

/** Usage of all choices together after `tokens` tokens of each. */
export function openaiUsage(run: Run, tokens: number): JsonObject {
  const prompt = sum(run.grant.promptTokens);
  return {
    prompt_tokens: prompt,
    completion_tokens: tokens,
    total_tokens: prompt + tokens,
    prompt_tokens_details: { cached_tokens: sum(run.grant.cachedTokens) },
  };
}

export interface StreamUsage {
  readonly kind: "stream_usage";
  readonly atEnd: boolean;
  readonly onEvery: boolean;
}

export function readStreamUsage(body: JsonObject): StreamUsage | Refusal {
  const options = asObject(body["stream_options"]);
  if (options === undefined) return { kind: "stream_usage", atEnd: false, onEvery: false };
  if (body["stream"] !== true) {
    return refuse("Stream options can only be defined when `stream=True`.", "stream_options");
  }
  const atEnd = options["include_usage"] === true;
  return { kind: "stream_usage", atEnd, onEvery: options["continuous_usage_stats"] === true };
}

/** The usage field of a chunk that carries choices. */
export function usageOnChunk(run: Run, wanted: StreamUsage, tokens: number): JsonObject {
  if (wanted.onEvery) return { usage: run.usage(openaiUsage(run, tokens)) };
  return wanted.atEnd ? { usage: null } : {};
}

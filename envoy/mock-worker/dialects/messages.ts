// POST /v1/messages: Anthropic messages with one text block. Usage comes twice in a stream: input and
// cache counts in `message_start`, the output count in `message_delta`. As in that API,
// `input_tokens` leaves out what was read from the cache. There is no `[DONE]`.
import { asList, asText, type Json, type JsonObject, type SseEvent } from "../json.js";
import { choiceText, readCount, refuse, sum } from "./dialect.js";
import type { AnswerShape, Dialect, Outcome, Reading, Refusal, Run } from "./dialect.js";
import { chatPrompt } from "./prompt-text.js";

export const messages: Dialect = { read, error: anthropicError };

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

function anthropicError(status: number, text: string): JsonObject {
  return { type: "error", error: { type: ERROR_TYPES[status] ?? "api_error", message: text } };
}

function read(body: JsonObject): Reading | Refusal {
  const list = asList(body["messages"]);
  if (list === undefined || list.length === 0) {
    return refuse("messages: at least one message is required", "messages");
  }
  const limit = readCount(body, "max_tokens", 1);
  if (limit.kind === "refusal") return limit;
  if (limit.count === undefined) return refuse("max_tokens: Field required", "max_tokens");
  const system: Json[] =
    body["system"] === undefined ? [] : [{ role: "system", content: body["system"] }];
  return {
    kind: "reading",
    model: asText(body["model"]),
    prompts: [chatPrompt(body["tools"], [...system, ...list])],
    choicesPerPrompt: 1,
    maxTokens: limit.count,
    ignoreEnd: body["ignore_eos"] === true,
    stream: body["stream"] === true,
    requestName: undefined,
    shape,
  };
}

function shape(run: Run): AnswerShape {
  const event = (type: string, fields: JsonObject): SseEvent => ({
    event: type,
    data: { type, ...fields },
  });
  return {
    json: (outcome) => ({
      ...message(run, [{ type: "text", text: choiceText(run, 0, outcome.tokensPerChoice) }]),
      stop_reason: stopReason(outcome),
      usage: run.usage({ ...inputUsage(run), output_tokens: outcome.tokensPerChoice }),
    }),
    opening: () => [
      event("message_start", {
        message: {
          ...message(run, []),
          stop_reason: null,
          usage: run.usage({ ...inputUsage(run), output_tokens: 0 }),
        },
      }),
      event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
      event("ping", {}),
    ],
    token: (index) => [
      event("content_block_delta", {
        index: 0,
        delta: { type: "text_delta", text: run.tokenText(0, index) },
      }),
    ],
    closing: (outcome) => [
      event("content_block_stop", { index: 0 }),
      event("message_delta", {
        delta: { stop_reason: stopReason(outcome), stop_sequence: null },
        usage: run.usage({ output_tokens: outcome.tokensPerChoice }),
      }),
      event("message_stop", {}),
    ],
    failure: (text) => [{ event: "error", data: anthropicError(500, text) }],
  };
}

function stopReason(outcome: Outcome): string {
  return outcome.finish === "length" ? "max_tokens" : "end_turn";
}

function message(run: Run, content: readonly Json[]): JsonObject {
  return {
    id: `msg_${run.id}`,
    type: "message",
    role: "assistant",
    model: run.model,
    content,
    stop_sequence: null,
  };
}

function inputUsage(run: Run): JsonObject {
  const cached = sum(run.grant.cachedTokens);
  return {
    input_tokens: sum(run.grant.promptTokens) - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
  };
}

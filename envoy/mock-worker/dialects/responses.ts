// POST /v1/responses: OpenAI responses with one text message as output. A stream is a fixed ladder of
// typed events with a running `sequence_number`; usage comes once, inside the response object of the
// last event, which is `response.completed` or, at the token limit, `response.incomplete`.
import { asList, asText, type Json, type JsonObject, type SseEvent } from "../json.js";
import { choiceText, readCount, refuse, sum } from "./dialect.js";
import type { AnswerShape, Dialect, Outcome, Reading, Refusal, Run } from "./dialect.js";
import { openaiError } from "./openai-common.js";
import { chatPrompt } from "./prompt-text.js";

export const responses: Dialect = { read, error: openaiError };

function read(body: JsonObject): Reading | Refusal {
  const text = asText(body["input"]);
  const items = text === undefined ? asList(body["input"]) : [{ role: "user", content: text }];
  if (items === undefined || items.length === 0) {
    return refuse("input must be a text or a list with at least one item.", "input");
  }
  const limit = readCount(body, "max_output_tokens", 1);
  if (limit.kind === "refusal") return limit;
  const instructions = asText(body["instructions"]);
  const system: Json[] =
    instructions === undefined ? [] : [{ role: "system", content: instructions }];
  return {
    kind: "reading",
    model: asText(body["model"]),
    prompts: [chatPrompt(body["tools"], [...system, ...items])],
    choicesPerPrompt: 1,
    maxTokens: limit.count,
    ignoreEnd: body["ignore_eos"] === true,
    stream: body["stream"] === true,
    requestName: asText(body["request_id"]),
    shape: (run) => shape(run, body),
  };
}

function shape(run: Run, body: JsonObject): AnswerShape {
  let sequence = 0;
  const event = (type: string, fields: JsonObject): SseEvent => ({
    event: type,
    data: { type, sequence_number: sequence++, ...fields },
  });
  const place = { item_id: `msg_${run.id}`, output_index: 0, content_index: 0 };
  return {
    json: (outcome) => finalResponse(run, body, outcome),
    opening: () => [
      event("response.created", { response: responseObject(run, body, "in_progress", [], null) }),
      event("response.in_progress", {
        response: responseObject(run, body, "in_progress", [], null),
      }),
      event("response.output_item.added", {
        output_index: 0,
        item: message(run, "in_progress", []),
      }),
      event("response.content_part.added", { ...place, part: textPart("") }),
    ],
    token: (index) => [
      event("response.output_text.delta", {
        ...place,
        delta: run.tokenText(0, index),
        logprobs: [],
      }),
    ],
    closing: (outcome) => {
      const text = choiceText(run, 0, outcome.tokensPerChoice);
      const status = statusOf(outcome);
      return [
        event("response.output_text.done", { ...place, text, logprobs: [] }),
        event("response.content_part.done", { ...place, part: textPart(text) }),
        event("response.output_item.done", {
          output_index: 0,
          item: message(run, status, [textPart(text)]),
        }),
        event(`response.${status}`, { response: finalResponse(run, body, outcome) }),
      ];
    },
    failure: (text) => [event("error", { code: "server_error", message: text, param: null })],
  };
}

function statusOf(outcome: Outcome): "completed" | "incomplete" {
  return outcome.finish === "stop" ? "completed" : "incomplete";
}

function finalResponse(run: Run, body: JsonObject, outcome: Outcome): JsonObject {
  const text = choiceText(run, 0, outcome.tokensPerChoice);
  const status = statusOf(outcome);
  const output = [message(run, status, [textPart(text)])];
  return responseObject(run, body, status, output, run.usage(usageOf(run, outcome)));
}

function responseObject(
  run: Run,
  body: JsonObject,
  status: string,
  output: readonly Json[],
  usage: JsonObject | null | undefined,
): JsonObject {
  return {
    id: `resp_${run.id}`,
    object: "response",
    created_at: run.createdSeconds,
    status,
    error: null,
    incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
    instructions: body["instructions"] ?? null,
    max_output_tokens: body["max_output_tokens"] ?? null,
    metadata: body["metadata"] ?? {},
    model: run.model,
    output,
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: false,
    temperature: 1,
    text: { format: { type: "text" } },
    tool_choice: "auto",
    tools: body["tools"] ?? [],
    top_p: 1,
    truncation: "disabled",
    usage,
    user: null,
  };
}

function usageOf(run: Run, outcome: Outcome): JsonObject {
  const input = sum(run.grant.promptTokens);
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: sum(run.grant.cachedTokens) },
    output_tokens: outcome.tokensPerChoice,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + outcome.tokensPerChoice,
  };
}

function message(run: Run, status: string, content: readonly Json[]): JsonObject {
  return { id: `msg_${run.id}`, type: "message", status, role: "assistant", content };
}

function textPart(text: string): JsonObject {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

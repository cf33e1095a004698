// POST /v1/chat/completions: OpenAI chat. JSON `chat.completion`; stream of `chat.completion.chunk`
// that opens each choice with its role, closes it with a finish reason, and ends with `[DONE]`.
import { asList, asText, type JsonObject, type SseEvent } from "../json.js";
import { choiceText, readCount, refuse, type AnswerShape, type Dialect } from "./dialect.js";
import type { Outcome, Reading, Refusal, Run } from "./dialect.js";
import { openaiError, openaiUsage, readStreamUsage, usageOnChunk } from "./openai-common.js";
import type { StreamUsage } from "./openai-common.js";
import { chatPrompt } from "./prompt-text.js";

export const chat: Dialect = { read, error: openaiError };

function read(body: JsonObject): Reading | Refusal {
  const messages = asList(body["messages"]);
  if (messages === undefined || messages.length === 0) {
    return refuse("messages must be a list with at least one message.", "messages");
  }
  const newer = readCount(body, "max_completion_tokens", 1);
  const older = readCount(body, "max_tokens", 1);
  const n = readCount(body, "n", 1);
  const usage = readStreamUsage(body);
  if (newer.kind === "refusal") return newer;
  if (older.kind === "refusal") return older;
  if (n.kind === "refusal") return n;
  if (usage.kind === "refusal") return usage;
  const choices = n.count ?? 1;
  return {
    kind: "reading",
    model: asText(body["model"]),
    prompts: [chatPrompt(body["tools"], messages)],
    choicesPerPrompt: choices,
    maxTokens: newer.count ?? older.count,
    ignoreEnd: body["ignore_eos"] === true,
    stream: body["stream"] === true,
    requestName: asText(body["request_id"]),
    shape: (run) => shape(run, choices, usage),
  };
}

function shape(run: Run, choices: number, wanted: StreamUsage): AnswerShape {
  const numbers = Array.from({ length: choices }, (_, i) => i);
  const id = `chatcmpl-${run.id}`;
  let tokens = 0;
  const chunk = (list: readonly JsonObject[], usage: JsonObject): SseEvent => ({
    data: {
      id,
      object: "chat.completion.chunk",
      created: run.createdSeconds,
      model: run.model,
      choices: list,
      ...usage,
    },
  });
  const each = (delta: (choice: number) => JsonObject, finish: string | null): SseEvent[] =>
    numbers.map((index) =>
      chunk(
        [{ index, delta: delta(index), logprobs: null, finish_reason: finish }],
        usageOnChunk(run, wanted, tokens),
      ),
    );
  return {
    json: (outcome) => json(run, id, numbers, outcome),
    opening: () => each(() => ({ role: "assistant", content: "" }), null),
    token: (index) => {
      tokens += choices;
      return each((choice) => ({ content: run.tokenText(choice, index) }), null);
    },
    closing: (outcome) => [
      ...each(() => ({}), outcome.finish),
      ...(wanted.atEnd ? [chunk([], { usage: run.usage(openaiUsage(run, tokens)) })] : []),
      { data: "[DONE]" },
    ],
    failure: (message) => [{ data: openaiError(500, message, null) }, { data: "[DONE]" }],
  };
}

function json(run: Run, id: string, numbers: readonly number[], outcome: Outcome): JsonObject {
  return {
    id,
    object: "chat.completion",
    created: run.createdSeconds,
    model: run.model,
    choices: numbers.map((index) => ({
      index,
      message: {
        role: "assistant",
        content: choiceText(run, index, outcome.tokensPerChoice),
        refusal: null,
      },
      logprobs: null,
      finish_reason: outcome.finish,
    })),
    usage: run.usage(openaiUsage(run, outcome.tokensPerChoice * numbers.length)),
  };
}

// POST /v1/completions: the older OpenAI text completion. A prompt is a text, a list of texts, a list
// of token ids, or a list of such lists; choices are numbered over all prompts. Stream chunks have
// the same shape as the whole answer and end with `[DONE]`.
import { asList, asText, type Json, type JsonObject, type SseEvent } from "../json.js";
import { choiceText, readCount, refuse, textOfTokenIds } from "./dialect.js";
import type { AnswerShape, Dialect, Reading, Refusal, Run } from "./dialect.js";
import { openaiError, openaiUsage, readStreamUsage, usageOnChunk } from "./openai-common.js";
import type { StreamUsage } from "./openai-common.js";

export const completions: Dialect = { read, error: openaiError };

function read(body: JsonObject): Reading | Refusal {
  const prompts = readPrompts(body["prompt"]);
  if (prompts === undefined) {
    return refuse("prompt must be a text, a list of texts or lists of token ids.", "prompt");
  }
  const limit = readCount(body, "max_tokens", 1);
  const n = readCount(body, "n", 1);
  const usage = readStreamUsage(body);
  if (limit.kind === "refusal") return limit;
  if (n.kind === "refusal") return n;
  if (usage.kind === "refusal") return usage;
  const choices = n.count ?? 1;
  return {
    kind: "reading",
    model: asText(body["model"]),
    prompts,
    choicesPerPrompt: choices,
    maxTokens: limit.count,
    ignoreEnd: body["ignore_eos"] === true,
    stream: body["stream"] === true,
    requestName: asText(body["request_id"]),
    shape: (run) => shape(run, prompts.length * choices, usage),
  };
}

/** Prompts of the `prompt` or `input` field; undefined when it is neither text nor token ids. */
export function readPrompts(value: Json | undefined): readonly string[] | undefined {
  const text = asText(value);
  if (text !== undefined) return [text];
  const list = asList(value);
  if (list === undefined || list.length === 0) return undefined;
  if (typeof list[0] === "number") {
    const ids = textOfTokenIds(list);
    return ids === undefined ? undefined : [ids];
  }
  const prompts: string[] = [];
  for (const item of list) {
    const prompt = asText(item) ?? textOfTokenIds(asList(item) ?? [null]);
    if (prompt === undefined) return undefined;
    prompts.push(prompt);
  }
  return prompts;
}

function shape(run: Run, choices: number, wanted: StreamUsage): AnswerShape {
  const numbers = Array.from({ length: choices }, (_, i) => i);
  let tokens = 0;
  const answer = (list: readonly JsonObject[], usage: JsonObject): JsonObject => ({
    id: `cmpl-${run.id}`,
    object: "text_completion",
    created: run.createdSeconds,
    model: run.model,
    choices: list,
    ...usage,
  });
  const each = (text: (choice: number) => string, finish: string | null): SseEvent[] =>
    numbers.map((index) => {
      const choice = { index, text: text(index), logprobs: null, finish_reason: finish };
      return { data: answer([choice], usageOnChunk(run, wanted, tokens)) };
    });
  return {
    json: (outcome) =>
      answer(
        numbers.map((index) => ({
          index,
          text: choiceText(run, index, outcome.tokensPerChoice),
          logprobs: null,
          finish_reason: outcome.finish,
        })),
        { usage: run.usage(openaiUsage(run, outcome.tokensPerChoice * choices)) },
      ),
    opening: () => [],
    token: (index) => {
      tokens += choices;
      return each((choice) => run.tokenText(choice, index), null);
    },
    closing: (outcome) => [
      ...each(() => "", outcome.finish),
      ...(wanted.atEnd
        ? [{ data: answer([], { usage: run.usage(openaiUsage(run, tokens)) }) }]
        : []),
      { data: "[DONE]" },
    ],
    failure: (message) => [{ data: openaiError(500, message, null) }, { data: "[DONE]" }],
  };
}

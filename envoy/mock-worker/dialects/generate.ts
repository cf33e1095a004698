// POST /generate: the native path of SGLang, single or batch. Text comes as `text` (one or a list) or
// `input_ids` (one list of ids or several). Each answer carries its counts in `meta_info`; in a
// stream every event repeats the whole text so far, and the last line is `[DONE]`. The body names no
// model. Without a limit SGLang stops at 128 tokens.
import { asList, asObject, asText, type Json, type JsonObject, type SseEvent } from "../json.js";
import { choiceText, readCount, refuse } from "./dialect.js";
import type { AnswerShape, Dialect, Outcome, Reading, Refusal, Run } from "./dialect.js";
import { readPrompts } from "./completions.js";

const DEFAULT_MAX_NEW_TOKENS = 128;

export const generate: Dialect = { read, error: sglangError };

function sglangError(status: number, message: string): JsonObject {
  return {
    error: { message, type: status < 500 ? "BadRequest" : "InternalServerError", code: status },
  };
}

function read(body: JsonObject): Reading | Refusal {
  const field = body["text"] === undefined ? "input_ids" : "text";
  const prompts = readPrompts(body[field]);
  if (prompts === undefined) {
    return refuse("Either text or input_ids must be given, each as one value or a list.", field);
  }
  const sampling = asObject(body["sampling_params"]) ?? {};
  const limit = readCount(sampling, "max_new_tokens", 0);
  const n = readCount(sampling, "n", 1);
  if (limit.kind === "refusal") return limit;
  if (n.kind === "refusal") return n;
  const choices = n.count ?? 1;
  const isBatch = isBatchInput(body[field]) || choices > 1;
  return {
    kind: "reading",
    model: undefined,
    prompts,
    choicesPerPrompt: choices,
    maxTokens: limit.count ?? DEFAULT_MAX_NEW_TOKENS,
    ignoreEnd: sampling["ignore_eos"] === true,
    stream: body["stream"] === true,
    requestName: asText(body["rid"]),
    shape: (run) => shape(run, { choices, prompts: prompts.length, isBatch, name: body["rid"] }),
  };
}

function isBatchInput(value: Json | undefined): boolean {
  const list = asList(value);
  return list !== undefined && typeof list[0] !== "number";
}

interface Batch {
  readonly choices: number;
  readonly prompts: number;
  readonly isBatch: boolean;
  /** The client's own name of the request. */
  readonly name: Json | undefined;
}

function shape(run: Run, batch: Batch): AnswerShape {
  const numbers = Array.from({ length: batch.prompts * batch.choices }, (_, i) => i);
  const texts = numbers.map(() => "");
  const event = (choice: number, tokens: number, outcome: Outcome | undefined): SseEvent => ({
    data: {
      text: texts[choice],
      meta_info: metaInfo(run, batch, { choice, tokens, outcome }),
      ...(batch.isBatch ? { index: choice } : {}),
    },
  });
  return {
    json: (outcome) => {
      const tokens = outcome.tokensPerChoice;
      const all = numbers.map((choice) => ({
        text: choiceText(run, choice, tokens),
        meta_info: metaInfo(run, batch, { choice, tokens, outcome }),
      }));
      return batch.isBatch ? all : (all[0] ?? null);
    },
    opening: () => [],
    token: (index) =>
      numbers.map((choice) => {
        texts[choice] = `${texts[choice] ?? ""}${run.tokenText(choice, index)}`;
        return event(choice, index + 1, undefined);
      }),
    closing: (outcome) => [
      ...numbers.map((choice) => event(choice, outcome.tokensPerChoice, outcome)),
      { data: "[DONE]" },
    ],
    failure: (message) => [{ data: sglangError(500, message) }, { data: "[DONE]" }],
  };
}

function metaInfo(
  run: Run,
  batch: Batch,
  at: {
    readonly choice: number;
    readonly tokens: number;
    readonly outcome: Outcome | undefined;
  },
): JsonObject | null {
  const prompt = Math.floor(at.choice / batch.choices);
  const counts = run.usage({
    prompt_tokens: run.grant.promptTokens[prompt] ?? 0,
    completion_tokens: at.tokens,
    cached_tokens: run.grant.cachedTokens[prompt] ?? 0,
  });
  if (counts === null) return null;
  const id = asText(batch.name) ?? run.id;
  return {
    id: batch.isBatch ? `${id}-${String(at.choice)}` : id,
    finish_reason: at.outcome === undefined ? null : finishReason(at.outcome),
    weight_version: "default",
    ...counts,
  };
}

function finishReason(outcome: Outcome): JsonObject {
  switch (outcome.finish) {
    case "stop":
      return { type: "stop", matched: 2 };
    case "length":
      return { type: "length", length: outcome.tokensPerChoice };
    case "abort":
      return { type: "abort", message: "Aborted" };
  }
}

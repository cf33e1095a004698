// POST /v1/embeddings: vectors of eight numbers made from a hash of each input, as numbers or as the
// base64 of 32-bit floats that the official client asks for. Nothing is generated: usage names
// prompt tokens only, and a stream is not offered.
import { createHash } from "node:crypto";
import { asText, type JsonObject } from "../json.js";
import { refuse, sum, type AnswerShape, type Dialect, type Reading } from "./dialect.js";
import type { Refusal, Run } from "./dialect.js";
import { readPrompts } from "./completions.js";
import { openaiError } from "./openai-common.js";

const DIMENSIONS = 8;

export const embeddings: Dialect = { read, error: openaiError };

function read(body: JsonObject): Reading | Refusal {
  const prompts = readPrompts(body["input"]);
  if (prompts === undefined) {
    return refuse("input must be a text, a list of texts or lists of token ids.", "input");
  }
  const asBase64 = body["encoding_format"] === "base64";
  return promptOnly(body, prompts, (run) => ({
    object: "list",
    data: prompts.map((prompt, index) => ({
      object: "embedding",
      index,
      embedding: asBase64 ? base64Of(vectorOf(prompt)) : [...vectorOf(prompt)],
    })),
    model: run.model,
    usage: run.usage({
      prompt_tokens: sum(run.grant.promptTokens),
      total_tokens: sum(run.grant.promptTokens),
    }),
  }));
}

/** A reading of a request that computes its prompts and generates nothing. */
export function promptOnly(
  body: JsonObject,
  prompts: readonly string[],
  json: (run: Run) => JsonObject,
): Reading {
  const shape = (run: Run): AnswerShape => ({
    json: () => json(run),
    opening: () => [],
    token: () => [],
    closing: () => [],
    failure: () => [],
  });
  return {
    kind: "reading",
    model: asText(body["model"]),
    prompts,
    choicesPerPrompt: 1,
    maxTokens: 0,
    ignoreEnd: false,
    stream: false,
    requestName: asText(body["request_id"]),
    shape,
  };
}

function vectorOf(text: string): Float32Array {
  const bytes = createHash("sha256").update(text).digest();
  return Float32Array.from({ length: DIMENSIONS }, (_, i) => bytes.readInt16LE(i * 2) / 32_768);
}

function base64Of(vector: Float32Array): string {
  return Buffer.from(vector.buffer).toString("base64");
}

// POST /v1/rerank and /v1/score: how well do texts fit a query? Scores come from a hash, so they are
// the same in every run. Like embeddings these paths generate nothing and report prompt tokens only.
import { createHash } from "node:crypto";
import { asList, asText, type Json, type JsonObject } from "../json.js";
import { refuse, sum, type Dialect, type Reading, type Refusal } from "./dialect.js";
import { promptOnly } from "./embeddings.js";
import { openaiError } from "./openai-common.js";

export const rerank: Dialect = { read: readRerank, error: openaiError };
export const score: Dialect = { read: readScore, error: openaiError };

function readRerank(body: JsonObject): Reading | Refusal {
  const query = asText(body["query"]);
  const documents = textsOf(body["documents"]);
  if (query === undefined) return refuse("query must be a text.", "query");
  if (documents === undefined) return refuse("documents must be a list of texts.", "documents");
  const top = typeof body["top_n"] === "number" ? body["top_n"] : documents.length;
  const prompts = documents.map((text) => `${query}\n${text}`);
  return promptOnly(body, prompts, (run) => ({
    id: `rerank-${run.id}`,
    model: run.model,
    usage: run.usage({ total_tokens: sum(run.grant.promptTokens) }),
    results: documents
      .map((text, index) => ({
        index,
        document: { text },
        relevance_score: scoreOf(prompts[index] ?? ""),
      }))
      .sort((one, other) => other.relevance_score - one.relevance_score)
      .slice(0, top),
  }));
}

function readScore(body: JsonObject): Reading | Refusal {
  const left = textsOf(body["text_1"]);
  const right = textsOf(body["text_2"]);
  if (left?.length !== 1) return refuse("text_1 must be one text.", "text_1");
  if (right === undefined) return refuse("text_2 must be a text or a list of texts.", "text_2");
  const prompts = right.map((text) => `${left[0] ?? ""}\n${text}`);
  return promptOnly(body, prompts, (run) => ({
    id: `score-${run.id}`,
    object: "list",
    created: run.createdSeconds,
    model: run.model,
    data: prompts.map((prompt, index) => ({ index, object: "score", score: scoreOf(prompt) })),
    usage: run.usage({
      prompt_tokens: sum(run.grant.promptTokens),
      total_tokens: sum(run.grant.promptTokens),
    }),
  }));
}

function textsOf(value: Json | undefined): readonly string[] | undefined {
  const one = asText(value);
  if (one !== undefined) return [one];
  const list = asList(value);
  if (list === undefined || list.length === 0) return undefined;
  const texts = list.map(asText);
  return texts.every((text) => text !== undefined) ? texts : undefined;
}

/** A number from 0 to 1. */
function scoreOf(text: string): number {
  return createHash("sha256").update(text).digest().readUInt16LE(0) / 65_535;
}

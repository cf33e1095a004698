// What must an API dialect know? How to read its request body into one common form, and how to write
// an answer in its own shape: whole as JSON, or as events. A dialect holds no state beyond one
// answer and never touches sockets, slots or clocks. The two usage faults are applied here, at the
// one place that every dialect gets its usage object from.
import type { Grant } from "../engine.js";
import type { Json, JsonObject, SseEvent } from "../json.js";

/** A request body that cannot be served: an error of the client (HTTP 400). */
export interface Refusal {
  readonly kind: "refusal";
  readonly message: string;
  readonly param: string | null;
}

/** What a request asks for, in the words of no dialect. */
export interface Reading {
  readonly kind: "reading";
  readonly model: string | undefined;
  readonly prompts: readonly string[];
  readonly choicesPerPrompt: number;
  /** Most tokens of a choice; undefined = no limit; 0 = none are wanted. */
  readonly maxTokens: number | undefined;
  /** Go on to `maxTokens` instead of stopping where the answer would end by itself. */
  readonly ignoreEnd: boolean;
  readonly stream: boolean;
  readonly requestName: string | undefined;
  readonly shape: (run: Run) => AnswerShape;
}

/** One running answer, as far as its shape needs it. */
export interface Run {
  /** Without the dialect's own prefix. */
  readonly id: string;
  readonly createdSeconds: number;
  readonly model: string;
  readonly grant: Grant;
  /** Text of one token; the first one of a choice has no leading blank. */
  readonly tokenText: (choice: number, index: number) => string;
  /** What stands in a usage place: the object, something wrong, null, or nothing at all. */
  readonly usage: (usage: JsonObject) => JsonObject | null | undefined;
}

export interface Outcome {
  readonly finish: "stop" | "length" | "abort";
  readonly tokensPerChoice: number;
}

/** How one answer is written. Choices are numbered from 0 over all prompts. */
export interface AnswerShape {
  json(outcome: Outcome): Json;
  /** Events before the first token. */
  opening(): readonly SseEvent[];
  /** Events of token number `index` of every choice. */
  token(index: number): readonly SseEvent[];
  /** Events after the last token. */
  closing(outcome: Outcome): readonly SseEvent[];
  /** Events that end a stream by an error. */
  failure(message: string): readonly SseEvent[];
}

export interface Dialect {
  read(body: JsonObject): Reading | Refusal;
  error(status: number, message: string, param: string | null): JsonObject;
}

export type UsageFault = "none" | "null" | "wrong" | undefined;

/** The usage filter of a fault. `wrong` turns every count into a text, at every depth. */
export function usageFilter(fault: UsageFault): Run["usage"] {
  switch (fault) {
    case undefined:
      return (usage) => usage;
    case "none":
      return () => undefined;
    case "null":
      return () => null;
    case "wrong":
      return countsAsTexts;
  }
}

function countsAsTexts(usage: JsonObject): JsonObject {
  const wrong = Object.entries(usage).map(([key, value]) => {
    if (typeof value === "number") return [key, String(value)] as const;
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return [key, isObject ? countsAsTexts(value as JsonObject) : value] as const;
  });
  return Object.fromEntries(wrong);
}

export function refuse(message: string, param: string | null = null): Refusal {
  return { kind: "refusal", message, param };
}

/** The whole text of a choice. */
export function choiceText(run: Run, choice: number, tokens: number): string {
  let text = "";
  for (let index = 0; index < tokens; index += 1) text += run.tokenText(choice, index);
  return text;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** An optional whole number of at least `min`; anything else is a refusal. */
export function readCount(
  body: JsonObject,
  key: string,
  min: number,
): Refusal | { readonly kind: "count"; readonly count: number | undefined } {
  const value = body[key];
  if (value === undefined || value === null) return { kind: "count", count: undefined };
  if (typeof value === "number" && Number.isInteger(value) && value >= min) {
    return { kind: "count", count: value };
  }
  const got = JSON.stringify(value);
  return refuse(`${key} must be a whole number of at least ${String(min)}, got ${got}.`, key);
}

/** Token ids as a prompt text of exactly one token each, so that equal ids make equal blocks. */
export function textOfTokenIds(ids: readonly Json[]): string | undefined {
  let text = "";
  for (const id of ids) {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= 36 ** 4)
      return undefined;
    text += id.toString(36).padStart(4, "0");
  }
  return text;
}

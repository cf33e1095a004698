// What the body of an inference request asks for, as far as admission and settlement care: model,
// streaming, how many answers of which length, tools, structured output, reasoning. The body has to be
// one JSON object, which is checked to its last byte, and its model has to be a name; an optional field of
// a wrong type reads as absent, because the engine answers that better than a gateway can. Bodies of
// all sizes are read in one way, the large ones in steps. Token counts saturate at 2^32 - 1.

import { assertNever } from "../model/invariant.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { JsonFault, LocatedRoot } from "./json-located.js";
import { JsonReader, NESTING_MAX_DEPTH } from "./json-reader.js";
import {
  keysOf,
  readValues,
  STRING_MAX_CHARS,
  type JsonRecord,
  type Wanted,
} from "./json-values.js";
import { producesOutputTokens, type Endpoint } from "./paths.js";
import { PROMPT_KEYS } from "./prompt-sections.js";

/** Longest model name, in characters (UTF-16 units); hub names stay under 200. */
export const MODEL_NAME_MAX_CHARS = STRING_MAX_CHARS;
/** Token counts travel as unsigned 32-bit integers. */
const U32_MAX = 4_294_967_295;

export interface RequestShape {
  /** As the client wrote it, not yet canonical; undefined only for /generate, where it is optional. */
  readonly model: string | undefined;
  readonly stream: boolean;
  /** Answers per prompt, >= 1. */
  readonly multiplicity: number;
  /** Limit of one answer times multiplicity, in output tokens; undefined = no limit given. */
  readonly outputLimitTokens: number | undefined;
  readonly tools: boolean;
  readonly structured: boolean;
  readonly reasoning: boolean;
}

export type ShapeResult =
  | { readonly ok: true; readonly shape: RequestShape }
  | { readonly ok: false; readonly rejection: Rejection };

/** Every key a shape is made of, at any endpoint. */
const WANTED: Wanted = {
  model: "scalar",
  stream: "scalar",
  n: "scalar",
  best_of: "scalar",
  max_tokens: "scalar",
  max_completion_tokens: "scalar",
  max_output_tokens: "scalar",
  reasoning_effort: "scalar",
  tools: "presence",
  reasoning: { effort: "scalar" },
  thinking: { type: "scalar" },
  response_format: { type: "scalar" },
  text: { format: { type: "scalar" } },
  output_format: { type: "scalar" },
  output_config: { format: { type: "scalar" } },
  structured_outputs: "presence",
  guided_json: "presence",
  guided_regex: "presence",
  guided_choice: "presence",
  guided_grammar: "presence",
  regex: "presence",
  ebnf: "presence",
  sampling_params: {
    max_new_tokens: "scalar",
    n: "scalar",
    json_schema: "presence",
    regex: "presence",
    ebnf: "presence",
  },
};
const GRAMMAR_KEYS = [
  "structured_outputs",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
  "regex",
  "ebnf",
];

const NOTHING: JsonRecord = {};
/** What is located: the prompt, too, so that its reader need not pass over the body again. */
const LOCATED = keysOf(WANTED, PROMPT_KEYS);

/** A shape, and where the values of the body stand, for `readPrompt`. */
export type LocatedShape =
  | { readonly ok: true; readonly shape: RequestShape; readonly root: LocatedRoot }
  | { readonly ok: false; readonly rejection: Rejection };

/** A reader of one request body, at its start. */
export function shapeReader(body: Uint8Array): JsonReader {
  return new JsonReader(body, LOCATED);
}

/** Reads the shape of one request body, from where its reader stands; a refusal is 400 `invalid_request`. */
export function readShape(endpoint: Endpoint, reader: JsonReader): LocatedShape {
  if (reader.bytes.length === 0) {
    return refuse("the request body is empty: a JSON object is needed");
  }
  const root = reader.finish();
  if (!root.ok) return refuse(faultMessage(root.fault, reader.bytes.length));
  const read = shapeOf(endpoint, readValues(reader.bytes, root.values, WANTED));
  return read.ok ? { ok: true, shape: read.shape, root } : read;
}

/** The shape of a body, or of as much of it as is wanted. */
export function shapeOf(endpoint: Endpoint, record: JsonRecord): ShapeResult {
  const model = field(record, "model");
  const modelProblem = problemOfModel(endpoint, model);
  if (modelProblem !== undefined) return refuse(modelProblem);
  const multiplicity = readMultiplicity(endpoint, record);
  const limit = readLimit(endpoint, record);
  const shape: RequestShape = {
    model: typeof model === "string" ? model : undefined,
    stream: producesOutputTokens(endpoint) && field(record, "stream") === true,
    multiplicity,
    outputLimitTokens: limit === undefined ? undefined : Math.min(U32_MAX, limit * multiplicity),
    tools: isFilledArray(field(record, "tools")),
    structured: isStructured(record),
    reasoning: isReasoning(record),
  };
  return { ok: true, shape };
}

function problemOfModel(endpoint: Endpoint, model: unknown): string | undefined {
  if (endpoint === "generate" && (model === undefined || model === null)) return undefined;
  if (typeof model !== "string" || model === "") {
    const found = model === undefined ? "it is missing" : `found ${describe(model)}`;
    return `field "model" must be a non-empty string: ${found}`;
  }
  if (model.length <= MODEL_NAME_MAX_CHARS) return undefined;
  return `field "model" is too long: at most ${MODEL_NAME_MAX_CHARS.toString()} characters are allowed`;
}

function readMultiplicity(endpoint: Endpoint, record: JsonRecord): number {
  switch (endpoint) {
    case "chat":
      return count(record, "n", 1) ?? 1;
    case "completions":
      return Math.max(count(record, "best_of", 1) ?? 1, count(record, "n", 1) ?? 1);
    case "generate":
      return count(objectField(record, "sampling_params"), "n", 1) ?? 1;
    case "responses":
    case "messages":
    case "embeddings":
    case "rerank":
    case "score":
      return 1;
    default:
      return assertNever(endpoint, "endpoint");
  }
}

function readLimit(endpoint: Endpoint, record: JsonRecord): number | undefined {
  switch (endpoint) {
    case "chat":
      return count(record, "max_completion_tokens", 0) ?? count(record, "max_tokens", 0);
    case "completions":
    case "messages":
      return count(record, "max_tokens", 0);
    case "responses":
      return count(record, "max_output_tokens", 0);
    case "generate":
      return count(objectField(record, "sampling_params"), "max_new_tokens", 0);
    case "embeddings":
    case "rerank":
    case "score":
      return undefined;
    default:
      return assertNever(endpoint, "endpoint");
  }
}

/** An answer bound to a grammar or schema, in any dialect's spelling. */
function isStructured(record: JsonRecord): boolean {
  const sampling = objectField(record, "sampling_params");
  const formats = [
    objectField(record, "response_format"),
    objectField(objectField(record, "text"), "format"),
    objectField(record, "output_format"),
    objectField(objectField(record, "output_config"), "format"),
  ];
  return (
    formats.some((format) => {
      const type = field(format, "type");
      return typeof type === "string" && type !== "text";
    }) ||
    GRAMMAR_KEYS.some((key) => isPresent(field(record, key))) ||
    ["json_schema", "regex", "ebnf"].some((key) => isPresent(field(sampling, key)))
  );
}

function isReasoning(record: JsonRecord): boolean {
  const effort = field(record, "reasoning_effort");
  if (typeof effort === "string" && effort !== "none") return true;
  const reasoning = field(record, "reasoning");
  if (isObject(reasoning) && field(reasoning, "effort") !== "none") return true;
  const thinking = field(objectField(record, "thinking"), "type");
  return typeof thinking === "string" && thinking !== "disabled";
}

/** A whole number of at least `least`, saturated; anything else reads as absent. */
function count(record: JsonRecord, key: string, least: 0 | 1): number | undefined {
  const value = field(record, key);
  if (typeof value !== "number" || !Number.isInteger(value) || value < least) return undefined;
  // Adding zero turns -0 into 0.
  return Math.min(U32_MAX, value) + 0;
}

function field(record: JsonRecord, key: string): unknown {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}

function objectField(record: JsonRecord, key: string): JsonRecord {
  const value = field(record, key);
  return isObject(value) ? value : NOTHING;
}

function isObject(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isFilledArray(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0);
}

function describe(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (value === "") return "an empty string";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function faultMessage(fault: JsonFault, bytes: number): string {
  switch (fault.kind) {
    case "malformed": {
      const where = fault.at < bytes ? `at byte ${fault.at.toString()}` : "it breaks off";
      return `the request body is not valid JSON: ${where}`;
    }
    case "not_utf8":
      return `the request body is not valid UTF-8 at byte ${fault.at.toString()}`;
    case "too_deep":
      return `the request body nests deeper than ${NESTING_MAX_DEPTH.toString()} levels`;
    case "not_an_object":
      return `the request body must be a JSON object: found ${fault.found}`;
    default:
      return assertNever(fault, "fault");
  }
}

function refuse(message: string): { readonly ok: false; readonly rejection: Rejection } {
  return { ok: false, rejection: reject("invalid_request", message) };
}

// Which fields of a message, of an item and of a part make up a prompt, and in which order they stand
// in its text, whatever their order in the body. Tools, documents and search results have all that a
// model sees of them; pictures, sounds and films only what identifies them; a kind that is not listed
// is written whole by whoever reads these tables. Left out are ids, status and cache markers.

import { namesByLength } from "./json-scan.js";

/**
 * How a field is written: `text` = a string as text, another value as JSON; `parts` = a string or
 * an array of parts; `calls` = an array of tool calls; `media` = JSON with long strings by reference;
 * `mixed` = JSON with long data by reference; `source` = where a document's content comes from; a
 * table = an object, field by field.
 */
export type How = "text" | "parts" | "calls" | "media" | "mixed" | "source" | Fields;
interface Field {
  readonly name: string;
  readonly how: How;
}
export type Fields = readonly Field[];

/** `content` is always the first of a table: it has no mark. */
function fields(table: Readonly<Record<string, How>>): Fields {
  return Object.entries(table).map(([name, how]) => ({ name, how }));
}

function namesOf(table: Fields): readonly string[] {
  return table.map(({ name }) => name);
}

const FUNCTION = fields({ name: "text", arguments: "text", input: "text" });
export const CALL: Fields = [...fields({ function: FUNCTION, custom: FUNCTION }), ...FUNCTION];
/** Of a message, and of an item of the responses endpoint, in the order of the text. */
export const MESSAGE_FIELDS = fields({
  content: "parts",
  name: "text",
  reasoning_content: "text",
  reasoning: "text",
  summary: "parts",
  refusal: "text",
  tool_calls: "calls",
  function_call: CALL,
  arguments: "text",
  input: "text",
  output: "parts",
  encrypted_content: "media",
});
/** Items without a role whose fields are known; another one is written whole. */
export const ITEM_TYPES = namesByLength([
  "message",
  "reasoning",
  "function_call",
  "function_call_output",
  "custom_tool_call",
  "custom_tool_call_output",
]);
/** Parts that are text and nothing else, with the field that holds it. */
export const TEXT_PARTS: ReadonlyMap<string, string> = new Map([
  ["text", "text"],
  ["input_text", "text"],
  ["output_text", "text"],
  ["summary_text", "text"],
  ["reasoning_text", "text"],
  ["refusal", "refusal"],
]);
const TOOL_USE = fields({ server_name: "text", name: "text", input: "text" });
const TOOL_RESULT = fields({ content: "parts" });
/** Parts that are rendered field by field, without ids and cache markers. */
export const STRUCTURED_PARTS: ReadonlyMap<string, Fields> = new Map<string, Fields>([
  ["thinking", fields({ thinking: "text" })],
  ["tool_use", TOOL_USE],
  ["server_tool_use", TOOL_USE],
  ["mcp_tool_use", TOOL_USE],
  ["tool_result", TOOL_RESULT],
  ["mcp_tool_result", TOOL_RESULT],
  ["document", fields({ title: "text", context: "text", citations: "text", source: "source" })],
  ["search_result", fields({ content: "parts", title: "text", source: "text", citations: "text" })],
]);
/**
 * Deepest nesting of structured parts: a tool's result holds search results, which hold text. Deeper
 * ones are written whole, because each level means another look at the same bytes.
 */
export const PART_DEPTH_MAX = 3;
/** What identifies a picture, a sound or a film; markers beside it do not. */
export const MEDIA_FIELDS = fields({
  image_url: "media",
  image: "media",
  input_audio: "media",
  audio_url: "media",
  audio: "media",
  video_url: "media",
  video: "media",
  file: "media",
  file_data: "media",
  file_url: "media",
  file_id: "media",
  source: "media",
  uuid: "media",
});
/** A file may be text, and its name is shown to the model. */
const FILE_FIELDS = fields({
  filename: "text",
  file: "mixed",
  file_data: "mixed",
  file_url: "mixed",
  file_id: "mixed",
  uuid: "mixed",
});
export const MEDIA_PARTS: ReadonlyMap<string, Fields> = new Map<string, Fields>([
  ...[
    ...["image", "image_url", "input_image", "image_pil", "audio", "audio_url", "input_audio"],
    ...["video", "video_url", "input_video"],
  ].map((kind) => [kind, MEDIA_FIELDS] as const),
  ["file", FILE_FIELDS],
  ["input_file", FILE_FIELDS],
]);
/** Sources whose content is text, and how they are rendered. */
export const TEXT_SOURCES = namesByLength(["text", "content"]);
export const SOURCE_FIELDS = fields({ content: "parts", media_type: "text", data: "text" });

export const MESSAGE_NAMES = namesByLength(["role", "type", ...namesOf(MESSAGE_FIELDS)]);
export const PART_NAMES = namesByLength([
  ...new Set([
    ...["type", "text", "refusal"],
    ...[...STRUCTURED_PARTS.values(), MEDIA_FIELDS, FILE_FIELDS].flatMap(namesOf),
  ]),
]);
export const PART_TYPES = namesByLength([
  ...TEXT_PARTS.keys(),
  ...STRUCTURED_PARTS.keys(),
  ...MEDIA_PARTS.keys(),
]);
export const SOURCE_NAMES = namesByLength(["type", ...namesOf(SOURCE_FIELDS)]);
export const CALL_NAMES = namesByLength(namesOf(CALL));

// Which top-level values of a body make up its prompt, and in which order they enter its text. First
// comes what an engine keys its cache by, or renders the whole prompt with, beside the conversation: a
// salt, an adapter, another chat template and its arguments. Two requests that differ there share no
// cached block however alike their messages are. Absent values leave no trace, so ordinary prompts
// begin with their tools or messages. What only sets where a kept conversation goes on comes behind
// the tools and instructions, which several conversations share.

import type { Endpoint } from "./paths.js";

/**
 * How a top-level value enters the prompt: `state` = as it stands, beside the text; `choice` = so too,
 * but only when it is "none", because other choices show the model the same tools; `documents` = as
 * it stands, and text; `media` = by reference; `tools`; `system` = a message of that role; `messages`
 * = a conversation; `prompt` = plain text or token ids.
 */
export type SectionKind =
  "state" | "choice" | "documents" | "media" | "tools" | "system" | "messages" | "prompt";

export interface Section {
  readonly key: string;
  readonly kind: SectionKind;
  /** The value is the one of this key in the object at `key`. */
  readonly inner?: string;
}

function section(key: string, kind: SectionKind, inner?: string): Section {
  return inner === undefined ? { key, kind } : { key, kind, inner };
}

/** Common to all endpoints that generate: no engine knows all of these, and each keeps its own. */
const STATE: readonly Section[] = [
  section("cache_salt", "state"),
  section("extra_key", "state"),
  section("lora_path", "state"),
  section("lora_request", "state"),
  section("lora", "state"),
  section("chat_template", "state"),
  section("chat_template_kwargs", "state"),
  section("mm_processor_kwargs", "state"),
  section("add_special_tokens", "state"),
  section("truncate_prompt_tokens", "state"),
  section("reasoning_effort", "state"),
  section("reasoning", "state", "effort"),
  section("thinking", "state", "type"),
  section("tool_choice", "choice"),
  section("documents", "documents"),
  section("functions", "documents"),
];

/** What makes up a prompt, in the order of its text, which ends with `messages` or `prompt`. */
export const SECTIONS: ReadonlyMap<Endpoint, readonly Section[]> = new Map<
  Endpoint,
  readonly Section[]
>([
  ["chat", [...STATE, section("tools", "tools"), section("messages", "messages")]],
  [
    "messages",
    [
      ...STATE,
      section("tools", "tools"),
      section("system", "system"),
      section("messages", "messages"),
    ],
  ],
  [
    "responses",
    [
      ...STATE,
      section("tools", "tools"),
      section("prompt", "state"),
      section("instructions", "system"),
      section("conversation", "state"),
      section("previous_response_id", "state"),
      section("input", "messages"),
    ],
  ],
  ["completions", [...STATE, section("prompt", "prompt")]],
  [
    "generate",
    [
      ...STATE,
      section("image_data", "media"),
      section("video_data", "media"),
      section("audio_data", "media"),
      section("text", "prompt"),
      section("input_ids", "prompt"),
    ],
  ],
]);

/** The keys of all sections, each once. */
export const PROMPT_KEYS: readonly string[] = [
  ...new Set([...SECTIONS.values()].flatMap((sections) => sections.map(({ key }) => key))),
];

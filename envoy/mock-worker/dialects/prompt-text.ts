// What text does a chat request make of itself for the model? Tools first, as chat templates put
// them into the system part, then each message as role and content, in order, so that conversations
// with the same beginning share KV blocks. Media parts enter as kind, length and hash, never whole:
// their bytes are not text.
import { createHash } from "node:crypto";
import { asList, asObject, asText, type Json, type JsonObject } from "../json.js";

/** The prompt text of a list of messages. */
export function chatPrompt(tools: Json | undefined, messages: readonly Json[]): string {
  const head = asList(tools) === undefined ? "" : `tools\n${JSON.stringify(tools)}\n`;
  return head + messages.map(messageText).join("");
}

function messageText(message: Json): string {
  const fields = asObject(message);
  if (fields === undefined) return "";
  const role = asText(fields["role"]) ?? asText(fields["type"]) ?? "user";
  const calls = fields["tool_calls"] === undefined ? "" : JSON.stringify(fields["tool_calls"]);
  return `${role}\n${contentText(fields["content"])}${calls}\n`;
}

/** Text of a message's content: a text, or a list of parts. */
export function contentText(content: Json | undefined): string {
  const text = asText(content);
  if (text !== undefined) return text;
  return (asList(content) ?? []).map(partText).join("\n");
}

function partText(part: Json): string {
  const plain = asText(part);
  if (plain !== undefined) return plain;
  const fields: JsonObject = asObject(part) ?? {};
  const text = asText(fields["text"]);
  if (text !== undefined) return text;
  const whole = JSON.stringify(fields);
  const hash = createHash("sha1").update(whole).digest("hex");
  return `<${asText(fields["type"]) ?? "part"} ${String(whole.length)} ${hash}>`;
}

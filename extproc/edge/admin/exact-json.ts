// Reads a JSON object one of whose numbers may be larger than a JavaScript number holds exactly. A policy
// epoch is an unsigned 64-bit integer, and two of them that differ must not become equal on the way in.
// The text is parsed as always; the digits of that one member are then taken from the bytes themselves.

import { parseJson } from "../../core/identity/json-scan.js";
import {
  CLOSE_BRACE,
  COMMA,
  skipBlanks,
  skipString,
  skipValue,
  startOfValue,
} from "../../core/identity/json-skip.js";

export type ExactObject =
  | { readonly ok: true; readonly value: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly problem: string };

/** @param exact the member whose number becomes the text it was written as */
export function parseExactObject(bytes: Uint8Array, exact: string): ExactObject {
  const parsed = parseJson(bytes);
  if (!parsed.ok) return { ok: false, problem: "the body is no JSON text in UTF-8" };
  const { value } = parsed;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { ok: false, problem: "the body must be a JSON object" };
  }
  const members = value as Readonly<Record<string, unknown>>;
  if (!Object.hasOwn(members, exact) || typeof members[exact] !== "number") {
    return { ok: true, value: members };
  }
  const written = lastMember(bytes, exact);
  if (written === undefined) return { ok: false, problem: "the body is nested too deep" };
  return { ok: true, value: { ...members, [exact]: written } };
}

/** Text of a member of a well-formed object, the last of its name as JSON.parse has it. */
function lastMember(bytes: Uint8Array, name: string): string | undefined {
  const text = new TextDecoder();
  let found: string | undefined;
  let at = skipBlanks(bytes, startOfValue(bytes) + 1);
  while (bytes[at] !== CLOSE_BRACE) {
    const keyEnd = skipString(bytes, at);
    const key: unknown = JSON.parse(text.decode(bytes.subarray(at, keyEnd)));
    const start = skipBlanks(bytes, skipBlanks(bytes, keyEnd) + 1);
    const end = skipValue(bytes, start);
    if (end < 0) return undefined;
    if (key === name) found = text.decode(bytes.subarray(start, end));
    at = skipBlanks(bytes, end);
    if (bytes[at] === COMMA) at = skipBlanks(bytes, at + 1);
  }
  return found;
}

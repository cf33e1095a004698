// Reads a JSON object one of whose numbers may be larger than a JavaScript number holds exactly. A policy
// epoch is an unsigned 64-bit integer, and two of them that differ must not become equal on the way in.
// The text is parsed as always; the digits of that one member are then taken from the bytes themselves.

import { wantedKeys } from "../../core/identity/json-located.js";
import { JsonReader } from "../../core/identity/json-reader.js";

export type ExactObject =
  | { readonly ok: true; readonly value: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly problem: string };

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * @param exact the member whose number becomes the text it was written as; a name of lower-case
 *   letters, digits and underscores
 */
export function parseExactObject(bytes: Uint8Array, exact: string): ExactObject {
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(bytes));
  } catch {
    return { ok: false, problem: "the body is no JSON text in UTF-8" };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { ok: false, problem: "the body must be a JSON object" };
  }
  const members = value as Readonly<Record<string, unknown>>;
  if (!Object.hasOwn(members, exact) || typeof members[exact] !== "number") {
    return { ok: true, value: members };
  }
  const root = new JsonReader(bytes, wantedKeys([exact])).finish();
  const written = root.ok ? root.values.get(exact) : undefined;
  if (written === undefined) return { ok: false, problem: "the body is nested too deep" };
  const digits = utf8.decode(bytes.subarray(written.start, written.end));
  return { ok: true, value: { ...members, [exact]: digits } };
}

// Reads one control value out of a request's headers, or says exactly why not. A proxy that means
// one thing sends one line; two copies, a comma list, an empty, over-long or non-ASCII value are a
// client's addition or a broken proxy, so they are refused and reported, never read as "the first
// one". Own name and alias are one control: both present counts as two copies. Lengths are
// characters, and each byte of a header is one character here.

import type { HeaderSource } from "../model/headers.js";
import type { ControlRule } from "./control-headers.js";

/** Longest value of one trusted header or caller id, in characters: a URL or SPIFFE id fits. */
export const TRUSTED_VALUE_MAX_CHARS = 256;
/** Most URLs in one exclusion list; a fleet that excludes more should name a target instead. */
export const EXCLUDED_URLS_MAX_ENTRIES = 64;
/** Longest exclusion line, in characters: the full list with a comma and a blank after each URL. */
export const EXCLUDED_URLS_MAX_CHARS = EXCLUDED_URLS_MAX_ENTRIES * (TRUSTED_VALUE_MAX_CHARS + 2);

export type RefusedReason =
  "duplicate" | "list" | "empty" | "too_long" | "not_visible_ascii" | "invalid";

/** A value that was there and did not count. `header` is a header name or the name of its source. */
export interface RefusedValue {
  readonly header: string;
  readonly reason: RefusedReason;
}

export type HeaderReading =
  | { readonly kind: "absent" }
  | ({ readonly kind: "refused" } & RefusedValue)
  | { readonly kind: "value"; readonly header: string; readonly value: string };

export type ListReading =
  | { readonly kind: "absent" }
  | ({ readonly kind: "refused" } & RefusedValue)
  | { readonly kind: "list"; readonly header: string; readonly values: readonly string[] };

const ABSENT = { kind: "absent" } as const;
const NOT_VISIBLE_ASCII = /[^\x21-\x7e]/;

/** The single line of a header under any of `names`, untrimmed, or why there is none. */
export function readLine(headers: HeaderSource, names: readonly string[]): HeaderReading {
  let header: string | undefined;
  let value: string | undefined;
  for (const name of names) {
    for (const line of headers.all(name)) {
      if (header !== undefined) return { kind: "refused", header, reason: "duplicate" };
      header = name;
      value = line;
    }
  }
  if (header === undefined || value === undefined) return ABSENT;
  return { kind: "value", header, value };
}

/** One trimmed value under any of `names`. */
export function readHeader(headers: HeaderSource, names: readonly string[]): HeaderReading {
  const line = readLine(headers, names);
  if (line.kind !== "value") return line;
  const value = trimBlanks(line.value);
  const reason = refusal(value, { commas: false });
  return reason === undefined
    ? { kind: "value", header: line.header, value }
    : { kind: "refused", header: line.header, reason };
}

/** The value of a control, absent when its switch is off or the peer is no trusted proxy. */
export function readTrusted(
  rule: ControlRule,
  headers: HeaderSource,
  peerIsProxy: boolean,
): HeaderReading {
  return rule.trusted && peerIsProxy ? readHeader(headers, rule.names) : ABSENT;
}

/**
 * A comma list on one header line, under the same trust rule. Blanks around entries and empty
 * entries are skipped; one bad entry, or more than `EXCLUDED_URLS_MAX_ENTRIES`, refuses the whole.
 */
export function readTrustedList(
  rule: ControlRule,
  headers: HeaderSource,
  peerIsProxy: boolean,
): ListReading {
  if (!rule.trusted || !peerIsProxy) return ABSENT;
  const line = readLine(headers, rule.names);
  if (line.kind !== "value") return line;
  const { header, value } = line;
  if (value.length > EXCLUDED_URLS_MAX_CHARS)
    return { kind: "refused", header, reason: "too_long" };
  const values: string[] = [];
  for (const part of value.split(",")) {
    const entry = trimBlanks(part);
    if (entry === "") continue;
    const reason = refusal(entry, { commas: false });
    if (reason !== undefined) return { kind: "refused", header, reason };
    values.push(entry);
  }
  if (values.length === 0) return { kind: "refused", header, reason: "empty" };
  if (values.length > EXCLUDED_URLS_MAX_ENTRIES) {
    return { kind: "refused", header, reason: "too_long" };
  }
  return { kind: "list", header, values };
}

/** Why a trimmed value cannot stand for an id; undefined when it can. */
export function refusal(
  value: string,
  options: { readonly commas: boolean },
): RefusedReason | undefined {
  if (value === "") return "empty";
  if (value.length > TRUSTED_VALUE_MAX_CHARS) return "too_long";
  if (!options.commas && value.includes(",")) return "list";
  if (NOT_VISIBLE_ASCII.test(value)) return "not_visible_ascii";
  return undefined;
}

/** Without outer spaces and tabs, in linear time: a value may be 60 KB of blanks. */
function trimBlanks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

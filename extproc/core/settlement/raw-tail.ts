// Usage in a text whose frame cannot be parsed: a body that lost its head to the ring, an event
// longer than the ring, a dialect with the usage object in an unknown place. It looks for the quoted
// key and parses the one object behind it.
//
// The last occurrence counts most, because usage stands at the end. Earlier ones are tried when the
// last is no usage object: a client's own `"usage":"x"` that the engine echoes must not hide the
// real one. Generated text cannot forge the key, since a quote inside a JSON string is escaped.

import { countsOf, parseJson, type UsageCounts } from "./usage-fields.js";

/** Real usage objects have a few hundred bytes; a longer candidate is none and costs no more time. */
export const RAW_USAGE_OBJECT_BYTES = 8_192;
/**
 * Objects tried per key. A text may repeat the key thousands of times, nested, and every try scans
 * up to RAW_USAGE_OBJECT_BYTES, so the product of both bounds the work on one answer.
 */
export const RAW_USAGE_ATTEMPTS = 64;

const KEYS = ['"usage"', '"meta_info"'] as const;
// From the end of the key to the first character of an object.
const OBJECT_FOLLOWS = /[ \t\r\n]*:[ \t\r\n]*(?=\{)/y;

/** The counts of the last usage object in `text` that has an output count. */
export function usageInRawTail(text: string): UsageCounts | undefined {
  for (const key of KEYS) {
    const counts = lastUsageBehind(key, text);
    if (counts !== undefined) return counts;
  }
  return undefined;
}

function lastUsageBehind(key: string, text: string): UsageCounts | undefined {
  let attempts = 0;
  let at = text.lastIndexOf(key);
  while (at >= 0 && attempts < RAW_USAGE_ATTEMPTS) {
    OBJECT_FOLLOWS.lastIndex = at + key.length;
    if (OBJECT_FOLLOWS.test(text)) {
      attempts += 1;
      const counts = countsOf(objectAt(text, OBJECT_FOLLOWS.lastIndex));
      if (counts.output !== undefined) return counts;
    }
    // lastIndexOf reads a negative start as 0 and would find the first occurrence for ever.
    at = at === 0 ? -1 : text.lastIndexOf(key, at - 1);
  }
  return undefined;
}

/** The JSON object that begins at `from`, found by its matching brace; undefined when cut or broken. */
function objectAt(text: string, from: number): unknown {
  const limit = Math.min(text.length, from + RAW_USAGE_OBJECT_BYTES);
  let depth = 0;
  let inString = false;
  for (let at = from; at < limit; at += 1) {
    const character = text[at];
    if (inString) {
      if (character === "\\") at += 1;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === "{") depth += 1;
    else if (character === "}") {
      depth -= 1;
      if (depth === 0) return parseJson(text.slice(from, at + 1));
    }
  }
  return undefined;
}

// Texts for the tests of whoever reads JSON: objects written in every way that JSON allows, and texts
// that were damaged somewhere. JSON.parse after a strict decoding says what each of them means.

import fc from "fast-check";

export const KEYS = [
  "model",
  "stream",
  "n",
  "best_of",
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "max_new_tokens",
  "sampling_params",
  "tools",
  "text",
  "format",
  "type",
  "response_format",
  "reasoning",
  "reasoning_effort",
  "effort",
  "thinking",
  "guided_json",
  "regex",
  "json_schema",
  "__proto__",
  "messages",
  "",
];

export function anyKey(): fc.Arbitrary<string> {
  return fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...KEYS) },
    fc.string({ unit: "binary" }),
  );
}

/** What JSON.parse makes of the bytes; undefined when they are no JSON in UTF-8. */
export function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as unknown;
  } catch {
    return undefined;
  }
}

/** JSON text of an object: random blanks, escapes, repeated keys, nesting, numbers of any form. */
export function objectText(): fc.Arbitrary<string> {
  const blank = fc.constantFrom("", "", "", " ", "\n", "\t\r\n ");
  const escaped = (text: string, how: readonly boolean[]): string => {
    const char = (one: string, at: number): string =>
      how[at % how.length] === true ? unicode(one) : JSON.stringify(one).slice(1, -1);
    return `"${Array.from(text, char).join("")}"`;
  };
  const how = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 });
  const plain = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.constantFrom(
      'a"b',
      "\\",
      '\\"',
      "text",
      "none",
      "json_schema",
      "{[",
      "\u{1f600}",
      "x".repeat(80),
      `${"plain text, ".repeat(9)}\u00e9`,
      `${"y".repeat(61)}"${"z".repeat(70)}\\`,
    ),
  );
  const string = fc.tuple(plain, how).map(([text, flags]) => escaped(text, flags));
  const number = fc.oneof(
    fc.constantFrom("0", "-0", "1", "2", "1.0", "2e1", "1E+2", "1e400", "-1", "0.5", "4294967296"),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  );
  const { object } = fc.letrec<{ value: string; object: string; array: string }>((tie) => ({
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constantFrom("true", "false", "null"),
      number,
      string,
      tie("object"),
      tie("array"),
    ),
    array: fc
      .tuple(fc.array(tie("value"), { maxLength: 3 }), blank)
      .map(([values, gap]) => `[${gap}${values.join(`${gap},`)}${gap}]`),
    object: fc
      .tuple(fc.array(fc.tuple(anyKey(), how, tie("value")), { maxLength: 8 }), blank, blank)
      .map(([entries, before, after]) => {
        const members = entries.map(
          ([name, flags, value]) => `${before}${escaped(name, flags)}${after}:${before}${value}`,
        );
        return `${before}{${members.join(`${after},`)}${after}}${before}`;
      }),
  }));
  return object;
}

function unicode(char: string): string {
  return [...Array(char.length).keys()]
    .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, "0")}`)
    .join("");
}

/** Bytes of such a text, cut, or with some bytes put in place of others. */
export function damagedText(): fc.Arbitrary<Uint8Array> {
  const wrong = fc.oneof(
    fc.nat({ max: 255 }),
    fc.constantFrom(...Array.from('"\\{}[]:,0-+.eEtfn \t\n', (one) => one.charCodeAt(0))),
  );
  return fc
    .tuple(objectText(), fc.nat(), fc.array(wrong, { maxLength: 3 }), fc.boolean())
    .map(([text, place, bytes, cut]) => {
      const whole = new TextEncoder().encode(text);
      const at = place % whole.length;
      if (cut) return whole.slice(0, at);
      whole.set(bytes.slice(0, whole.length - at), at);
      return whole;
    });
}

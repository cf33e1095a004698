// What the gateways are asked: chat requests of a given size, sixteen different ones, whose first half
// is the same in all (a system prompt) and whose second half is not, so that prefixes are worth
// looking up. A file of them, one per line, is what both load generators read.

import { createRng } from "../../extproc/core/model/rng.js";

const BODIES = 16;
const WORDS = "the quick brown fox jumps over a lazy dog while seven wise owls look on".split(" ");

/** Sixteen JSON bodies of `bytes` bytes each, ASCII only and without line breaks. */
export function chatBodies(bytes: number, over: object): readonly string[] {
  const rng = createRng(1);
  const words = (length: number): string => {
    let text = "";
    while (text.length < length) text += `${WORDS[rng.below(WORDS.length)] ?? ""} `;
    return text.slice(0, length);
  };
  const body = (system: string, user: string): string =>
    JSON.stringify({
      model: "demo",
      max_tokens: 64,
      ...over,
      messages: [
        { role: "system", content: system },
        { role: "user", content: user },
      ],
    });
  const room = Math.max(0, bytes - body("", "").length);
  const system = words(Math.floor(room / 2));
  return Array.from({ length: BODIES }, () => body(system, words(room - system.length)));
}

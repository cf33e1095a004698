// Which words does a mock answer consist of? A fixed list walked from a place that the prompt
// decides, so that equal prompts give equal answers and different prompts mostly different ones.
import { createHash } from "node:crypto";

const WORDS =
  "water flows over the weir and every stream takes its share of the river in turn while stones hold fast".split(
    " ",
  );

/** Tokens of an answer that nothing cuts short or prolongs. */
export const NATURAL_TOKENS = 16;

/** Text of token `index` of `choice`; `fixed` replaces every token. */
export function tokenTexts(
  prompts: readonly string[],
  fixed: string | undefined,
): (choice: number, index: number) => string {
  if (fixed !== undefined) return () => fixed;
  const hash = createHash("sha1");
  for (const prompt of prompts) hash.update(prompt);
  const start = hash.digest().readUInt16LE(0);
  return (choice, index) => {
    const word = WORDS[(start + choice * 7 + index) % WORDS.length] ?? "";
    return index === 0 ? word : ` ${word}`;
  };
}

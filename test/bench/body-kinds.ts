// Bodies of a wanted size for the model "large", hard to read each in its own way: much to look at, much
// to count, much to spell out. All are valid JSON.

const wrap = (inside: string): string => `{"model":"large","max_tokens":1,${inside}}`;
const fill = (unit: string, bytes: number): string => unit.repeat(Math.floor(bytes / unit.length));
const user = (content: string): string => wrap(`"messages":[{"role":"user","content":${content}}]`);
export const LARGE_BODIES: Readonly<Record<string, (bytes: number) => string>> = {
  "one text": (bytes) => user(`"${fill("word ", bytes)}"`),
  images: (bytes) => {
    const url = `data:image/png;base64,${"QUJD".repeat(250_000)}`;
    return user(`[${fill(`{"type":"image_url","image_url":{"url":"${url}"}},`, bytes)}"look"]`);
  },
  escapes: (bytes) => user(`"${fill('\\"a\\n', bytes)}"`),
  messages: (bytes) => wrap(`"messages":[${fill('{"role":"user","content":"a"},', bytes)}{}]`),
  "empty objects": (bytes) => wrap(`"messages":[${fill("{},", bytes)}{}]`),
  nesting: (bytes) =>
    wrap(`"messages":[${fill(`${"[".repeat(500)}${"]".repeat(500)},`, bytes)}{}]`),
  blanks: (bytes) => wrap(`"messages":[${fill(" \n", bytes)}{}]`),
  numbers: (bytes) => wrap(`"stop":[${fill("123456,", bytes)}1],"messages":[]`),
  tools: (bytes) =>
    wrap(
      `"tools":[${fill('{"type":"function","function":{"name":"f"}},', bytes)}{}],"messages":[]`,
    ),
};

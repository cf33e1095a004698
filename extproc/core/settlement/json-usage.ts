// Usage in a whole JSON body. Only the known places of the top level are read, so nothing that a
// client or a model put deeper into the answer is mistaken for usage. SGLang answers a batch with an
// array of results, each with its own count: their sum is the usage of the request.

import { parseJson, sumOf, tokenCount, usageOf, type UsageCounts } from "./usage-fields.js";

/**
 * The counts of a body that is one complete JSON value; an answer that generates nothing has a prompt
 * count alone. Undefined: not JSON, or an array of which a member has no output count, since a part
 * of a sum would be a guess.
 */
export function usageInBody(text: string): UsageCounts | undefined {
  const body = parseJson(text);
  return Array.isArray(body) ? sumOfMembers(body) : usageOf(body);
}

function sumOfMembers(members: readonly unknown[]): UsageCounts | undefined {
  let sum: UsageCounts = { output: undefined, prompt: undefined, cached: undefined };
  for (const member of members) {
    const counts = usageOf(member);
    if (counts.output === undefined) return undefined;
    sum = {
      output: sumOf(sum.output, counts.output),
      prompt: sumOf(sum.prompt, counts.prompt),
      cached: sumOf(sum.cached, counts.cached),
    };
  }
  return { ...sum, output: tokenCount(sum.output) };
}

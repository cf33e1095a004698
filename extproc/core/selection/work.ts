// How much work is a request, in tokens? Its prompt and the output it may produce, where the output is
// counted with the configured estimate at most: a client that asks for a huge limit rarely uses it.

import type { SelectionQuery } from "./decision.js";

/**
 * Tokens to reserve for a request, 1 or more.
 *
 * @param estimateTokens output counted for a request that names no smaller limit
 */
export function workTokens(
  { prompt, outputLimitTokens }: Pick<SelectionQuery, "prompt" | "outputLimitTokens">,
  estimateTokens: number,
): number {
  const input = prompt?.inputTokens ?? 1;
  const output = Math.min(outputLimitTokens ?? estimateTokens, estimateTokens);
  return Math.max(1, input + output);
}

// How long are the answers, and what is expected of them? Lengths follow a bounded Pareto distribution:
// most answers are short, and a few are hundreds of times longer, which is what makes sharing by
// requests differ from sharing by tokens. Estimates are wrong in a known way: the true length times a
// factor, or one figure for everybody. Unit: output tokens.

import type { Chance } from "../chance.js";

export interface Lengths {
  /** The shortest answer, >= 1. */
  readonly lowTokens: number;
  /** The longest answer: what a server allows at most. */
  readonly capTokens: number;
  /** Tail index: the smaller, the heavier. Below 2 the variance is ruled by the cap. */
  readonly tail: number;
}

/** The longest answer of the simulated engines. */
export const OUTPUT_CAP_TOKENS = 8_192;

/** A chat: mostly dozens of tokens, about 130 on average. */
export const CHAT: Lengths = { lowTokens: 32, capTokens: OUTPUT_CAP_TOKENS, tail: 1.2 };

/** What the estimate of a request is: the truth times one of these, each as likely, or one figure. */
export type EstimateRule =
  { readonly kind: "factor"; readonly factors: readonly number[] } | { readonly kind: "default" };

/** The shipped `default_output_tokens`: what Weir books when nobody tells it anything. */
export const DEFAULT_ESTIMATE_TOKENS = 256;
export const BY_DEFAULT: EstimateRule = { kind: "default" };
export const TENFOLD_EITHER_WAY: EstimateRule = { kind: "factor", factors: [0.1, 1, 10] };

/** The length of one answer, by inverting the distribution's survival function. */
export function drawTokens({ lowTokens, capTokens, tail }: Lengths, chance: Chance): number {
  const beyondCap = (lowTokens / capTokens) ** tail;
  const survival = chance.unit() * (1 - beyondCap) + beyondCap;
  return Math.min(capTokens, Math.floor(lowTokens * survival ** (-1 / tail)));
}

/** What is booked for an answer of this length, at least 1 token. */
export function estimateTokens(rule: EstimateRule, tokens: number, chance: Chance): number {
  if (rule.kind === "default") return DEFAULT_ESTIMATE_TOKENS;
  return Math.max(1, Math.round(tokens * chance.pick(rule.factors)));
}

// Who asks for what in the benchmark of selection? Conversations that begin with one of a few hundred
// shared prefixes, some of them far more popular than the rest, as system prompts, tools and documents
// are. A conversation has several turns; each turn sends everything said so far again. Everything is
// drawn before the run, from one seed, so that all policies meet the same requests; only the moment of
// a later turn depends on when the answer before it has ended.

import { CHARS_PER_TOKEN } from "../../envoy/mock-worker/kv-cache.js";
import { Chance } from "../sim/chance.js";

const PREFIXES = 200;
const PREFIX_TOKENS_MIN = 1_024;
const PREFIX_TOKENS_MAX = 8_192;
const TURNS_MAX = 12;
/** After each turn the conversation goes on with this probability: four turns on average. */
const ANOTHER_TURN = 0.77;
const QUESTION_TOKENS = [20, 400] as const;
/** Output tokens are Pareto: half are below 102, one in a hundred is above 2,000. */
const OUTPUT_TOKENS_MIN = 60;
const OUTPUT_TAIL = 1.3;
const OUTPUT_TOKENS_MAX = 2_048;
/** Every other conversation names this limit of output tokens, the others none. */
const NAMED_LIMIT = 1_024;
const THINK_MEAN_MS = 8_000;

export interface Turn {
  readonly question: string;
  readonly answer: string;
  readonly outputTokens: number;
  /** Time between the end of the answer before and this question. */
  readonly thinkMs: number;
}

export interface Conversation {
  readonly prefix: string;
  readonly turns: readonly Turn[];
  readonly limitTokens: number | undefined;
}

/** Cuts texts that never repeat each other out of one long text. */
class Texts {
  readonly #pool: string;
  readonly #chance: Chance;

  constructor(chance: Chance) {
    const words: string[] = [];
    for (let index = 0; index < 1 << 18; index += 1) {
      words.push(chance.whole(0, 0x7fffffff).toString(36).padStart(7, "0"));
    }
    this.#pool = words.join(" ");
    this.#chance = chance;
  }

  take(tokens: number): string {
    const length = tokens * CHARS_PER_TOKEN;
    const from = this.#chance.whole(0, this.#pool.length - length);
    return this.#pool.slice(from, from + length);
  }
}

/** So many conversations. */
export function drawConversations(count: number, seed: number): readonly Conversation[] {
  const chance = new Chance(seed);
  const texts = new Texts(chance);
  const prefixes = Array.from({ length: PREFIXES }, () => {
    const ratio = PREFIX_TOKENS_MAX / PREFIX_TOKENS_MIN;
    return texts.take(Math.round(PREFIX_TOKENS_MIN * ratio ** chance.unit()));
  });
  const popularity = cumulative(prefixes.map((_, index) => 1 / (index + 1)));
  return Array.from({ length: count }, () => {
    const drawn = chance.unit();
    const index = popularity.findIndex((upTo) => drawn < upTo);
    const limitTokens = chance.once(0.5) ? NAMED_LIMIT : undefined;
    const turns = [drawTurn(texts, chance, limitTokens)];
    while (turns.length < TURNS_MAX && chance.once(ANOTHER_TURN)) {
      turns.push(drawTurn(texts, chance, limitTokens));
    }
    return { prefix: prefixes[index] ?? "", turns, limitTokens };
  });
}

function drawTurn(texts: Texts, chance: Chance, limitTokens = OUTPUT_TOKENS_MAX): Turn {
  const pareto = Math.ceil(OUTPUT_TOKENS_MIN * chance.unit() ** (-1 / OUTPUT_TAIL));
  const outputTokens = Math.min(limitTokens, pareto);
  return {
    question: texts.take(chance.whole(...QUESTION_TOKENS)),
    answer: texts.take(outputTokens),
    outputTokens,
    thinkMs: chance.exponential(THINK_MEAN_MS),
  };
}

function cumulative(weights: readonly number[]): readonly number[] {
  const sum = weights.reduce((total, weight) => total + weight, 0);
  let upTo = 0;
  return weights.map((weight) => (upTo += weight / sum));
}

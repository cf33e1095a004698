// What is each way of choosing workers worth where prompts share their beginnings? The policies meet
// the same requests at eight workers: a core of Weir and the engines of mock workers on virtual time
// (selection-fleet.ts says why), so a run depends on its seeds alone. Read are the part of all prompt
// tokens that the engines' caches had, how much fuller the fullest worker is than the mean one, the
// time to the first token, and what decided. The engines prefill side by side and their pace does not
// depend on their batch: real ones gain more by a warm cache, because prefill slows decoding down.

import { drawConversations, type Conversation } from "./selection-load.js";
import { Fleet, type FleetShape, type Measured } from "./selection-fleet.js";
import type { Print } from "./print.js";

/** A block is 64 tokens here; prefill at 10,700 tokens/s, decoding at 50 a second. */
const SHAPE: FleetShape = {
  workers: 8,
  slots: 16,
  kvBlocks: 4_096,
  blockChars: 256,
  msPerToken: 20,
  prefillMsPerBlock: 6,
};
const CHARS_PER_TOKEN = 4;

/** Of what the slots can do when no cache helps. */
const LOAD = 0.7;
const FULL = { conversations: 1_500, seeds: [1, 2, 3] };
const SMOKE = { conversations: 250, seeds: [1] };

interface Case {
  readonly title: string;
  readonly policy: string;
  readonly selection?: object;
  readonly tellsUtilization?: boolean;
}

const OWNERS = { max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 10 };
const BY_ENGINE_LOAD = { ...OWNERS, engine_load: true };

const CASES: readonly Case[] = [
  { title: "power_of_two", policy: "power_of_two" },
  { title: "round_robin", policy: "round_robin" },
  { title: "least_load", policy: "least_load" },
  { title: "cache_aware", policy: "cache_aware" },
  { title: "cache_aware, 2 owners", policy: "cache_aware", selection: OWNERS },
  {
    title: "the same, engines tell KV usage",
    policy: "cache_aware",
    selection: BY_ENGINE_LOAD,
  },
  {
    title: "the same, and slots in use",
    policy: "cache_aware",
    selection: BY_ENGINE_LOAD,
    tellsUtilization: true,
  },
];

/** A run long enough for the work of these conversations to be `LOAD` of what the slots can do. */
function lengthMsFor(conversations: readonly Conversation[]): number {
  let workMs = 0;
  for (const { prefix, turns } of conversations) {
    let chars = prefix.length;
    for (const { question, answer, outputTokens } of turns) {
      chars += question.length;
      workMs += Math.ceil(chars / SHAPE.blockChars) * SHAPE.prefillMsPerBlock;
      workMs += outputTokens * SHAPE.msPerToken;
      chars += answer.length;
    }
  }
  return workMs / (SHAPE.workers * SHAPE.slots * LOAD);
}

function runCase(conversations: readonly Conversation[], seed: number, of: Case): Measured {
  const fleet = new Fleet({
    shape: SHAPE,
    models: { demo: { policy: of.policy } },
    selection: of.selection ?? {},
    conversations,
    lengthMs: lengthMsFor(conversations),
    seed,
    tellsUtilization: of.tellsUtilization ?? false,
  });
  return fleet.measure();
}

export function benchSelection(print: Print, smoke: boolean): void {
  const { conversations, seeds } = smoke ? SMOKE : FULL;
  const { workers, slots, kvBlocks, blockChars } = SHAPE;
  const kvTokens = Math.round((kvBlocks * blockChars) / CHARS_PER_TOKEN / 1_000);
  print(
    `Choosing workers: ${String(workers)} engines of ${String(slots)} slots and ${String(kvTokens)}k ` +
      "tokens of KV cache, 200 shared prefixes of 1k to 8k tokens (Zipf),",
  );
  print(
    `  ${String(conversations)} conversations per seed, load ${percent(LOAD)} % without caches, ` +
      `seeds ${seeds.join(", ")}; Weir's core and the mock workers' engines on virtual time`,
  );
  print(row(["", "cached", "max/mean", "p50", "p99 TTFT", "decided by"]));
  const loads = seeds.map((seed) => drawConversations(conversations, seed));
  for (const of of CASES) {
    const runs = loads.map((load, index) => runCase(load, seeds[index] ?? 0, of));
    print(row([of.title, ...figures(runs)]));
  }
}

function figures(runs: readonly Measured[]): readonly string[] {
  const mean = (read: (run: Measured) => number): number =>
    runs.reduce((sum, run) => sum + read(run), 0) / runs.length;
  const refused = runs.reduce((sum, run) => sum + run.refused, 0);
  if (refused > 0) throw new Error(`${String(refused)} requests were refused`);
  const times = runs.flatMap((run) => run.firstTokenMs).sort((one, other) => one - other);
  const quantile = (part: number): string =>
    `${String(Math.round(times[Math.floor(part * times.length)] ?? NaN))} ms`;
  return [
    `${(100 * mean((run) => run.cachedShare)).toFixed(1)} %`,
    mean((run) => run.maxByMean).toFixed(2),
    quantile(0.5),
    quantile(0.99),
    decidedBy(runs),
  ];
}

/** The two results that decided most. */
function decidedBy(runs: readonly Measured[]): string {
  const counts = new Map<string, number>();
  let all = 0;
  for (const { results } of runs) {
    for (const [result, count] of results) {
      counts.set(result, (counts.get(result) ?? 0) + count);
      all += count;
    }
  }
  const most = [...counts].sort(([, one], [, other]) => other - one).slice(0, 2);
  return most.map(([result, count]) => `${result} ${percent(count / all)} %`).join(", ");
}

function percent(part: number): string {
  return (100 * part).toFixed(0);
}

function row([title = "", ...cells]: readonly string[]): string {
  const widths = [8, 9, 9, 10];
  const padded = cells.map((cell, index) => cell.padStart(widths[index] ?? 0));
  return `  ${title.padEnd(33)}${padded.slice(0, 4).join(" ")}  ${cells.slice(4).join("")}`;
}

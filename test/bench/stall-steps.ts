// How long does the reading of one large body hold the event loop at a time? The core is driven as the
// edge drives it, step by step and then to the choice of a worker, on bodies that are hard to read each
// in its own way. Of each step the fastest of some rounds counts, since its work is the same in all of
// them and the machine's other work is not; printed is the longest of these.

import { STEP_BYTES } from "../../extproc/edge/envoy/body-reading.js";
import { Bench, requestHead } from "../support/desk.js";
import { LARGE_BODIES } from "./body-kinds.js";
import type { Print } from "./print.js";

const ROUNDS = 5;
const CONFIG = {
  workers: [{ url: "http://127.0.0.1:8000", cluster: "worker_1", models: ["large"] }],
  models: { large: { policy: "cache_aware" } },
};

/** Milliseconds of each step of one body; the last is its admission, prompt and all. */
function steps(bench: Bench, body: Uint8Array): number[] {
  const { desk, now } = bench;
  const { request } = desk.open(requestHead(), () => undefined, now);
  const took: number[] = [];
  const timed = <T>(work: () => T): T => {
    const startedAt = performance.now();
    const result = work();
    took.push(performance.now() - startedAt);
    return result;
  };
  const reader = desk.bodyReader(body);
  if (reader === undefined) throw new Error("the body is too small to be read in steps");
  while (!timed(() => reader.step(STEP_BYTES)));
  const verdict = timed(() => desk.body(request, body, now, reader));
  if (verdict.kind !== "route") throw new Error(`a body was not routed but: ${verdict.kind}`);
  desk.end(request, true, now);
  return took;
}

function fastest(rounds: readonly (readonly number[])[]): readonly number[] {
  const [first = []] = rounds;
  return first.map((_, step) => Math.min(...rounds.map((round) => round[step] ?? Infinity)));
}

export function benchSteps(print: Print, bytes: number): void {
  const bench = new Bench(CONFIG);
  print(`Bodies of ${String(bytes / 1_000_000)} MB, read in steps of ${String(STEP_BYTES)} bytes`);
  for (const [kind, make] of Object.entries(LARGE_BODIES)) {
    const body = Buffer.from(make(bytes));
    const took = fastest(Array.from({ length: ROUNDS }, () => steps(bench, body)));
    const sum = took.reduce((all, one) => all + one, 0);
    print(
      `  ${kind.padEnd(14)} ${sum.toFixed(1).padStart(6)} ms in ${String(took.length)} steps  ` +
        `longest ${Math.max(...took.slice(0, -1)).toFixed(2)} ms  ` +
        `last ${(took.at(-1) ?? 0).toFixed(2)} ms`,
    );
  }
}

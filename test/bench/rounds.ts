// Alternating rounds: each target is loaded in turn, again and again, so that a machine that is slower
// for a while is slower for all of them. A ratio is taken within its round, against Envoy alone in
// that round; what is printed is the median of the rounds.

import { median } from "./measure.js";
import type { Sample } from "./load.js";
import type { Target, Targets } from "./targets.js";

/** How long and how often is measured. */
export interface Pace {
  readonly rounds: number;
  readonly seconds: number;
  /** Before the first round of each target and workload. */
  readonly warmUpSeconds: number;
}

/** Medians over all rounds. */
export interface Summary {
  readonly target: Target;
  readonly answersPerSecond: number;
  /** CPU microseconds per answer; 0 for a part that the target does not have. */
  readonly envoyMicros: number;
  readonly serverMicros: number;
  readonly totalMicros: number;
  readonly cpuRatio: number;
  readonly cpuRatioMin: number;
  readonly cpuRatioMax: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly p50Ratio: number;
  readonly p99Ratio: number;
  readonly firstP50Ms: number;
  /** Of all rounds together. */
  readonly errors: number;
  readonly answers: number;
}

interface Round {
  readonly sample: Sample;
  readonly envoyMicros: number;
  readonly serverMicros: number;
  readonly totalMicros: number;
}

/** Loads all targets, `pace.rounds` times in turn. */
export async function alternate(
  targets: Targets,
  pace: Pace,
  run: (target: Target, watched: readonly number[], warmUpSeconds: number) => Promise<Sample>,
): Promise<readonly Summary[]> {
  const rounds = new Map<Target, Round[]>(targets.map((target) => [target, []]));
  for (let round = 0; round < pace.rounds; round += 1) {
    for (const [target, done] of rounds) {
      const pids = [target.envoyPid, target.serverPid];
      const watched = pids.filter((pid) => pid !== undefined);
      const sample = await run(target, watched, round === 0 ? pace.warmUpSeconds : 0);
      const cpu = [...sample.cpuMicros];
      const [envoyMicros = 0, serverMicros = 0] = pids.map((pid) =>
        pid === undefined ? 0 : cpu.shift(),
      );
      done.push({ sample, envoyMicros, serverMicros, totalMicros: envoyMicros + serverMicros });
    }
  }
  const plain = rounds.get(targets[0]) ?? [];
  return targets.map((target) => summarize(target, rounds.get(target) ?? [], plain));
}

function summarize(target: Target, rounds: readonly Round[], plain: readonly Round[]): Summary {
  const middle = (of: (round: Round) => number): number => median(rounds.map(of));
  const ratios = (of: (round: Round) => number): number[] =>
    rounds.flatMap((round, index) => {
      const base = plain[index];
      return base === undefined ? [] : [of(round) / of(base)];
    });
  const sum = (of: (round: Round) => number): number =>
    rounds.reduce((total, round) => total + of(round), 0);
  const cpuRatios = ratios((round) => round.totalMicros);
  return {
    target,
    answersPerSecond: middle(({ sample }) => sample.answers / sample.seconds),
    envoyMicros: middle((round) => round.envoyMicros),
    serverMicros: middle((round) => round.serverMicros),
    totalMicros: middle((round) => round.totalMicros),
    cpuRatio: median(cpuRatios),
    cpuRatioMin: Math.min(...cpuRatios),
    cpuRatioMax: Math.max(...cpuRatios),
    p50Ms: middle(({ sample }) => sample.p50Ms),
    p99Ms: middle(({ sample }) => sample.p99Ms),
    p50Ratio: median(ratios(({ sample }) => sample.p50Ms)),
    p99Ratio: median(ratios(({ sample }) => sample.p99Ms)),
    firstP50Ms: middle(({ sample }) => sample.firstP50Ms ?? NaN),
    errors: sum(({ sample }) => sample.errors),
    answers: sum(({ sample }) => sample.answers),
  };
}

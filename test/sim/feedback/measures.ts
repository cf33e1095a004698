// Figures of one run: where the knee settles, how far limit and throughput swing, how long requests
// wait at the engines.

import type { Point, RunResult } from "./loop.js";

/** Relative distance of the learned knee from the true one that still counts as right. */
export const KNEE_TOLERANCE = 0.15;

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

function isRight({ knee, trueKnee }: Point): boolean {
  return Math.abs(knee / trueKnee - 1) <= KNEE_TOLERANCE;
}

/** When the knee is right for good; undefined = not even at the end. */
export function settledAtMs({ points }: RunResult): number | undefined {
  const lastWrong = points.findLastIndex((point) => !isRight(point));
  return points[lastWrong + 1]?.atMs;
}

export interface Swing {
  readonly least: number;
  readonly most: number;
}

/** Smallest and largest value from `fromMs` on. */
export function swing(
  points: readonly Point[],
  fromMs: number,
  value: (point: Point) => number,
): Swing {
  const values = points.filter(({ atMs }) => atMs >= fromMs).map(value);
  return { least: Math.min(...values), most: Math.max(...values) };
}

/** The worst of all stretches of `polls` polls from `fromMs` on: tokens as a part of the other run's. */
export function worstStretch(
  run: RunResult,
  oracle: RunResult,
  fromMs: number,
  polls: number,
): number {
  let worst = Number.POSITIVE_INFINITY;
  const sum = ({ points }: RunResult, from: number): number =>
    points.slice(from, from + polls).reduce((total, { tokens }) => total + tokens, 0);
  run.points.forEach(({ atMs }, index) => {
    if (atMs < fromMs || index + polls > run.points.length) return;
    worst = Math.min(worst, sum(run, index) / sum(oracle, index));
  });
  return worst;
}

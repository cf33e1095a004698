// What learning from engine feedback brings in one scenario, beside an oracle that knows the knee and
// static limits twice too high, in figures for people. Counts are requests of one replica.

import { adaptiveAdmission } from "../../support/feedback.js";
import { grouped, percent, seconds, table } from "../command/table.js";
import { runLoop, type Control, type RunResult, type Scenario } from "./loop.js";
import { percentile, settledAtMs, swing, type Swing } from "./measures.js";

export interface FeedbackReport {
  readonly scenario: Scenario;
  readonly learned: RunResult;
  readonly oracle: RunResult;
  readonly fixed: RunResult;
  readonly replicas: number;
}

/** Runs a scenario under the shipped knobs, with slots that follow the limit, and under the two others. */
export function reportOf(scenario: Scenario, seed: number): FeedbackReport {
  const run = (control: Control): RunResult => runLoop(scenario, control, seed);
  const knees = (atMs: number): number =>
    scenario.shapesAt(atMs).reduce((sum, { knee }) => sum + knee, 0);
  return {
    scenario,
    learned: run({ kind: "feedback", config: adaptiveAdmission(), acts: "slots" }),
    oracle: run({ kind: "fixed", slotsAt: knees }),
    fixed: run({ kind: "fixed", slotsAt: () => scenario.staticSlots }),
    replicas: scenario.shapesAt(0).length,
  };
}

/** Requests in one engine's own queue, mean over what counts. */
function meanWaiting({ points }: RunResult, { scenario, replicas }: FeedbackReport): number {
  const counted = points.filter(({ atMs }) => atMs >= scenario.countFromMs);
  return counted.reduce((sum, { waiting }) => sum + waiting, 0) / counted.length / replicas;
}

function runTable(report: FeedbackReport): string[] {
  const { scenario, learned, oracle, fixed } = report;
  const counted = (scenario.lengthMs - scenario.countFromMs) / 1_000;
  const row = (name: string, run: RunResult): string[] => [
    name,
    grouped(run.tokens / counted),
    percent(run.tokens / oracle.tokens),
    seconds(percentile(run.queuedMs, 0.5)),
    seconds(percentile(run.queuedMs, 0.99)),
    meanWaiting(run, report).toFixed(1),
  ];
  return table([
    ["limits", "tokens/s", "of oracle's", "engine queue p50", "p99", "waiting per replica"],
    row("learned", learned),
    row("oracle", oracle),
    row("static, 2x too high", fixed),
  ]);
}

const range = ({ least, most }: Swing): string => `${least.toFixed(1)} to ${most.toFixed(1)}`;

export function reportLines(report: FeedbackReport): string[] {
  const { scenario, learned, replicas } = report;
  const { countFromMs, ceilingsPublished } = scenario;
  const settledMs = settledAtMs(learned);
  const fromMs = Math.max(settledMs ?? 0, countFromMs);
  const last = learned.points.at(-1);
  const limited = learned.points.filter(({ limit }) => limit > 0);
  const settled =
    settledMs === undefined ? "never" : `${((fromMs - countFromMs) / 60_000).toFixed(1)} min`;
  return [
    dressOf(ceilingsPublished),
    "",
    ...runTable(report),
    "",
    `knee of the engines   ${(last?.trueKnee ?? 0).toFixed(1)} running requests per replica`,
    `learned               ${(last?.knee ?? 0).toFixed(1)} at the end, within 15 % for good after ${settled}`,
    `knee from then on     ${range(swing(learned.points, fromMs, ({ knee }) => knee))}`,
    `limit from then on    ${range(swing(limited, fromMs, ({ limit }) => limit / replicas))}`,
  ];
}

export function dressOf(ceilingsPublished: boolean): string {
  return ceilingsPublished
    ? "engines that report their ceiling of running requests"
    : "engines that do not report their ceiling";
}

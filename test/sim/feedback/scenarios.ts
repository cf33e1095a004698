// What the closed loop is tried with. Sizes are the knee of one replica, `N`; demand and limits are
// given in parts of the knee of all replicas. The engine's own ceiling lies a quarter above its knee,
// so that a limit twice too high fills both the batch and the engine's queue.

import type { EngineShape } from "./engine.js";
import type { Demand, Scenario } from "./loop.js";

export const MINUTE_MS = 60_000;
const REPLICAS = 4;
/** Mean time of a request at full pace: 400 tokens at 20 tokens per second. */
const SERVICE_SECONDS = 20;
const POLL_MS = 10_000;
const CHANGE_AT_MS = 20 * MINUTE_MS;
const STEP_AT_MS = 5 * MINUTE_MS;

export function shapeOf(knee: number, ceilingShare = 1.25): EngineShape {
  return {
    knee,
    decline: 0.05,
    ceiling: Math.floor(ceilingShare * knee),
    kvRequests: 1.6 * knee,
    pace: 20,
  };
}

export interface ScenarioSketch {
  readonly title: string;
  readonly knee: number;
  readonly lengthMs: number;
  readonly ceilingsPublished: boolean;
  /** Knee of one replica over time; undefined = it stays. */
  readonly kneeAt?: (atMs: number) => number;
  /** Default 1.25. */
  readonly ceilingShare?: number;
  readonly demand: Demand;
  readonly countFromMs: number;
}

export function scenario(sketch: ScenarioSketch, over: Partial<Scenario> = {}): Scenario {
  const { title, knee, lengthMs, ceilingsPublished, ceilingShare, demand, countFromMs } = sketch;
  const kneeAt = sketch.kneeAt ?? ((): number => knee);
  const largest = Math.max(kneeAt(0), kneeAt(lengthMs));
  return {
    title,
    shapesAt: (atMs) => Array.from({ length: REPLICAS }, () => shapeOf(kneeAt(atMs), ceilingShare)),
    demand,
    staticSlots: 2 * largest * REPLICAS,
    lengthMs,
    countFromMs,
    ceilingsPublished,
    pollMs: POLL_MS,
    lostPolls: 0.02,
    noise: 0.01,
    ...over,
  };
}

/** So many clients at once, in parts of the knee of all replicas. */
export function backlog(knee: number, share: (atMs: number) => number): Demand {
  return { kind: "backlog", clientsAt: (atMs) => share(atMs) * knee * REPLICAS };
}

/** Poisson arrivals, in parts of what all replicas finish per second at their knee. */
export function arrivals(knee: number, share: (atMs: number) => number): Demand {
  const perSecond = (knee * REPLICAS) / SERVICE_SECONDS;
  return { kind: "arrivals", perSecondAt: (atMs) => share(atMs) * perSecond };
}

/**
 * The scenarios every size must pass. Throughput counts from the first poll with demand above the
 * knee, and where the knee changes, to the size given, from the change on.
 */
export function scenariosFor(
  knee: number,
  ceilingsPublished: boolean,
  lengthMs: number,
): readonly Scenario[] {
  const common = { knee, lengthMs, ceilingsPublished };
  const twice = backlog(knee, () => 2);
  const stepFrom = (low: number): Demand => backlog(knee, (atMs) => (atMs < STEP_AT_MS ? low : 2));
  // Half a percent of the knee per poll, from one half: twice as slow as a change that counts.
  const ramp = (atMs: number): number => Math.min(2, 0.5 + 0.005 * (atMs / POLL_MS));
  return [
    { ...common, title: "a backlog from the start", demand: twice, countFromMs: 2 * POLL_MS },
    { ...common, title: "a step from half", demand: stepFrom(0.5), countFromMs: STEP_AT_MS },
    { ...common, title: "a step from a trickle", demand: stepFrom(0.05), countFromMs: STEP_AT_MS },
    {
      ...common,
      title: "a slow ramp",
      demand: backlog(knee, ramp),
      countFromMs: 101 * POLL_MS,
    },
    {
      ...common,
      title: "arrivals that step above what can be served",
      demand: arrivals(knee, (atMs) => (atMs < STEP_AT_MS ? 0.5 : 1.1)),
      countFromMs: STEP_AT_MS,
    },
    {
      ...common,
      title: "a knee that halves",
      kneeAt: (atMs: number): number => (atMs < CHANGE_AT_MS ? 2 * knee : knee),
      demand: backlog(knee, () => 4),
      countFromMs: CHANGE_AT_MS,
    },
    {
      ...common,
      title: "a knee that doubles",
      kneeAt: (atMs: number): number => (atMs < CHANGE_AT_MS ? knee / 2 : knee),
      demand: twice,
      countFromMs: CHANGE_AT_MS,
    },
    {
      ...common,
      title: "an engine that queues from its knee on",
      ceilingShare: 1,
      demand: twice,
      countFromMs: 2 * POLL_MS,
    },
  ].map((sketch) => scenario(sketch));
}

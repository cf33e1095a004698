// The loads that gateways are measured under, with the bars of each.

import { chatBodies } from "./bodies.js";

/** Tokens of every answer. */
export const STREAM_TOKENS = 64;
/** Time between two tokens of a stream, milliseconds: 50 tokens a second. */
export const TOKEN_EVERY_MS = 20;

/** Time to a JSON answer of an engine, milliseconds: short for one, and long beside what is measured. */
const ANSWER_AFTER_MS = 60;

const JSON_CONNECTIONS = 64;
const STREAMING = { stream: true, stream_options: { include_usage: true } };

export interface Workload {
  /** As given to `--only`. */
  readonly name: string;
  readonly title: string;
  /** Requests under way at any time; each connection sends the next when its answer is whole. */
  readonly connections: number;
  readonly bodies: readonly string[];
  /** How long workers take for a JSON answer, milliseconds; at once when absent. */
  readonly answerAfterMs?: number;
  /** What CPU is counted per: an answer, or an event of a streamed answer. */
  readonly unit: "request" | "chunk";
  /** Bars as ratios to plain Envoy of the same run; without one, the figure stands alone. */
  readonly cpuRatioMax?: number;
  readonly p99RatioMax?: number;
}

const streams = (count: number): Workload => ({
  name: `sse-${String(count)}`,
  title: `SSE, ${String(count)} streams of ${String(STREAM_TOKENS)} tokens, one each ${String(TOKEN_EVERY_MS)} ms, with usage`,
  connections: count,
  bodies: chatBodies(1_024, STREAMING),
  unit: "chunk",
  cpuRatioMax: 2.4,
});

type Bars = Pick<Workload, "cpuRatioMax" | "p99RatioMax">;

function json(kB: number, answerAfterMs: number, bars: Bars): Workload {
  const [ending, when] =
    answerAfterMs === 0 ? ["", "at once"] : ["-paced", `after ${String(answerAfterMs)} ms`];
  return {
    name: `json-${String(kB)}k${ending}`,
    title: `JSON, bodies of ${String(kB)} kB, ${String(JSON_CONNECTIONS)} connections, answers ${when}`,
    connections: JSON_CONNECTIONS,
    bodies: chatBodies(1_024 * kB, {}),
    answerAfterMs,
    unit: "request",
    ...bars,
  };
}

export const WORKLOADS: readonly Workload[] = [
  // At the pace of engines nobody is faster than they are, so all targets do the same work.
  ...[0, ANSWER_AFTER_MS].flatMap((afterMs) => [
    json(1, afterMs, { cpuRatioMax: 3.0, p99RatioMax: 3.0 }),
    json(32, afterMs, { cpuRatioMax: 3.3 }),
  ]),
  streams(32),
  streams(100),
];

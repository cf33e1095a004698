// The loads that gateways are measured under, with the bars of each.

import { chatBodies } from "./bodies.js";

/** Tokens of every answer. */
export const STREAM_TOKENS = 64;
/** Time between two tokens of a stream, milliseconds: 50 tokens a second. */
export const TOKEN_EVERY_MS = 20;

const JSON_CONNECTIONS = 64;
const STREAMING = { stream: true, stream_options: { include_usage: true } };

export interface Workload {
  /** As given to `--only`. */
  readonly name: string;
  readonly title: string;
  /** Requests under way at any time; each connection sends the next when its answer is whole. */
  readonly connections: number;
  readonly bodies: readonly string[];
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

export const WORKLOADS: readonly Workload[] = [
  {
    name: "json-1k",
    title: `JSON, bodies of 1 kB, ${String(JSON_CONNECTIONS)} connections`,
    connections: JSON_CONNECTIONS,
    bodies: chatBodies(1_024, {}),
    unit: "request",
    cpuRatioMax: 3.0,
    p99RatioMax: 3.0,
  },
  {
    name: "json-32k",
    title: `JSON, bodies of 32 kB, ${String(JSON_CONNECTIONS)} connections`,
    connections: JSON_CONNECTIONS,
    bodies: chatBodies(32_768, {}),
    unit: "request",
    cpuRatioMax: 3.3,
  },
  streams(32),
  streams(100),
];

// CPU time of a process and load on a server: what every benchmark here is made of.

import { readFileSync } from "node:fs";
import autocannon from "autocannon";

/** Clock ticks per second of /proc/<pid>/stat; 100 on every Linux this runs on. */
const TICKS_PER_SECOND = 100;

/** CPU time of a process so far, user and system, in microseconds. Linux only. */
export function cpuMicros(pid: number): number {
  const stat = readFileSync(`/proc/${String(pid)}/stat`, "utf8");
  // The command's name may hold blanks; the fields are counted behind its closing bracket.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1_000_000;
}

export interface LoadOptions {
  readonly port: number;
  readonly body: string;
  readonly connections: number;
  readonly seconds: number;
}

export interface LoadResult {
  readonly requests: number;
  readonly errors: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly requestsPerSecond: number;
}

/** Keeps `connections` requests under way for `seconds`; each waits for its whole answer. */
export async function load(options: LoadOptions): Promise<LoadResult> {
  const result = await autocannon({
    url: `http://127.0.0.1:${String(options.port)}/v1/chat/completions`,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: options.body,
    connections: options.connections,
    duration: options.seconds,
  });
  return {
    requests: result["2xx"],
    errors: result.errors + result.non2xx,
    p50Ms: result.latency.p50,
    p99Ms: result.latency.p99,
    requestsPerSecond: result.requests.average,
  };
}

export interface Measured extends LoadResult {
  /** CPU microseconds per answered request of each watched process, in order. */
  readonly cpuPerRequest: readonly number[];
}

/** Loads a server after a warm-up and charges its processes' CPU to the answered requests. */
export async function measure(
  options: LoadOptions,
  pids: readonly number[],
  warmUpSeconds: number,
): Promise<Measured> {
  if (warmUpSeconds > 0) await load({ ...options, seconds: warmUpSeconds });
  const before = pids.map(cpuMicros);
  const result = await load(options);
  const cpuPerRequest = pids.map(
    (pid, index) => (cpuMicros(pid) - (before[index] ?? 0)) / Math.max(1, result.requests),
  );
  return { ...result, cpuPerRequest };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? 0)) / 2;
}

// How is a gateway loaded? With closed loops: as many connections as the workload says, each sending
// its next request when the last answer is whole. JSON answers are asked for by wrk, streams by a
// client of our own, each in a process of its own whose CPU is not counted. The CPU of the watched
// processes is read where the measured time begins and where it ends.

import { fileURLToPath } from "node:url";
import { startProcess } from "../support/process.js";
import { cpuMicros, processTree } from "./measure.js";
import { asItStands } from "./processes.js";
import type { Workload } from "./workloads.js";
import type { Wrk } from "./wrk.js";

const POST_LUA = fileURLToPath(new URL("post.lua", import.meta.url));
const LOAD_CLIENT = fileURLToPath(new URL("load-client.ts", import.meta.url));
/** What a client may take beyond the time it was told, to start and to end its last answers. */
const CLIENT_SLACK_MS = 60_000;
/** Of JSON: on a busy machine a warm-up is longer, up to four times, until it has so many answers. */
const WARM_UP_ANSWERS = 15_000;
const WARM_UP_TIMES_MAX = 4;

/** What a client counted in the measured time. */
export interface LoadResult {
  /** Whole answers or, of streams, events. */
  readonly answers: number;
  readonly seconds: number;
  /** Connections that failed, answers other than 200, and answers that were not whole. */
  readonly errors: number;
  /** Latency of a whole answer or, of streams, the gap between two events. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Time to a stream's first event, median. */
  readonly firstP50Ms?: number;
}

export interface Sample extends LoadResult {
  /** CPU microseconds per answer of each watched process with its children, in order. */
  readonly cpuMicros: readonly number[];
}

export interface LoadOptions {
  readonly port: number;
  readonly workload: Workload;
  /** The workload's bodies, one per line. */
  readonly bodiesFile: string;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  /** Undefined: our own client for JSON too, which takes more of the machine. */
  readonly wrk: Wrk | undefined;
  readonly watched: readonly number[];
}

export function runLoad(options: LoadOptions): Promise<Sample> {
  const { wrk, workload } = options;
  if (wrk === undefined || workload.unit === "chunk") return runOwnClient(options);
  return runWrk(options, wrk);
}

async function runWrk(options: LoadOptions, wrk: Wrk): Promise<Sample> {
  if (options.warmUpSeconds > 0) {
    let answers = 0;
    for (let times = 0; times < WARM_UP_TIMES_MAX && answers < WARM_UP_ANSWERS; times += 1) {
      answers += (await wrkOnce(options, wrk, options.warmUpSeconds)).answers;
    }
  }
  const cpu = watchCpu(options.watched);
  const result = await wrkOnce(options, wrk, options.seconds);
  return sampleOf(result, cpu());
}

async function wrkOnce(options: LoadOptions, wrk: Wrk, seconds: number): Promise<LoadResult> {
  const { port, workload, bodiesFile } = options;
  const url = `http://127.0.0.1:${String(port)}/v1/chat/completions`;
  const child = startProcess(
    wrk.command,
    [
      ...["--threads", "1", "--connections", String(workload.connections), "--timeout", "10s"],
      ...["--duration", `${String(seconds)}s`, "--script", POST_LUA, url, "--", bodiesFile],
    ],
    { name: "wrk", env: wrk.env },
  );
  return readResult(await child.waitForOutput(/^result (.*)$/m, limitMs(seconds)));
}

async function runOwnClient(options: LoadOptions): Promise<Sample> {
  const { port, workload, bodiesFile, seconds, warmUpSeconds, watched } = options;
  const { connections, unit } = workload;
  const order = { port, connections, unit, bodiesFile, seconds, warmUpSeconds };
  const args = [...asItStands(LOAD_CLIENT), JSON.stringify(order)];
  const child = startProcess(process.execPath, args, { name: "load client" });
  try {
    await child.waitForOutput(/^begin$/m, limitMs(warmUpSeconds));
    const cpu = watchCpu(watched);
    await child.waitForOutput(/^end$/m, limitMs(seconds));
    const spent = cpu();
    return sampleOf(readResult(await child.waitForOutput(/^result (.*)$/m, limitMs(0))), spent);
  } finally {
    await child.stop();
  }
}

const limitMs = (seconds: number): number => seconds * 1_000 + CLIENT_SLACK_MS;

function readResult(line: RegExpExecArray): LoadResult {
  return JSON.parse(line[1] ?? "") as LoadResult;
}

/** Called again, gives the CPU microseconds that each tree of processes spent in between. */
function watchCpu(roots: readonly number[]): () => readonly number[] {
  const trees = roots.map(processTree);
  const read = (): number[] =>
    trees.map((tree) => tree.reduce((sum, pid) => sum + cpuMicros(pid), 0));
  const before = read();
  return () => read().map((after, index) => after - (before[index] ?? 0));
}

function sampleOf(result: LoadResult, spentMicros: readonly number[]): Sample {
  const answers = Math.max(1, result.answers);
  return { ...result, cpuMicros: spentMicros.map((micros) => micros / answers) };
}

// Do large bodies hold up the tokens of others? Streams of a steady pace run through Envoy and Weir, all
// logic on, first alone, then while bodies of 20 MB are sent one after the other, hard to read each in
// its own way. Read are the gaps between the tokens of a stream, as a client sees them, and how long
// Weir's event loop was late at most. The bodies go to a worker that does not read them, so what they
// cost is Envoy's and Weir's part only; on a machine of two cores that alone makes tokens late.

import { request } from "../support/http-client.js";
import type { RunningProcess } from "../support/process.js";
import { JSON_HEADERS } from "../support/stack.js";
import type { Print } from "./print.js";
import { Processes } from "./processes.js";
import { benchSteps } from "./stall-steps.js";

const STREAMS = 32;
const MS_PER_TOKEN = 20;

interface Pace {
  readonly seconds: number;
  readonly bytes: number;
}
const FULL: Pace = { seconds: 15, bytes: 20_000_000 };
const SMOKE: Pace = { seconds: 1, bytes: 2_000_000 };

interface Gaps {
  readonly count: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** The gaps between the chunks of one stream, in milliseconds. */
async function streamGaps(port: number, tokens: number): Promise<readonly number[]> {
  const gaps: number[] = [];
  let last: number | undefined;
  const { status } = await request({
    port,
    path: "/v1/chat/completions",
    headers: JSON_HEADERS,
    body: JSON.stringify({
      model: "demo",
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: tokens,
      ignore_eos: true,
      messages: [{ role: "user", content: "hello" }],
    }),
    onChunk: () => {
      const at = performance.now();
      if (last !== undefined) gaps.push(at - last);
      last = at;
    },
    limitMs: 120_000,
  });
  if (status !== 200) throw new Error(`a stream was answered ${String(status)}`);
  return gaps;
}

async function measured(port: number, { seconds }: Pace): Promise<Gaps> {
  const tokens = Math.ceil((seconds * 1_000) / MS_PER_TOKEN);
  const streams = Array.from({ length: STREAMS }, () => streamGaps(port, tokens));
  const gaps = (await Promise.all(streams)).flat().sort((a, b) => a - b);
  const at = (share: number): number => gaps[Math.floor((gaps.length - 1) * share)] ?? 0;
  return { count: gaps.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) };
}

/** Since the last call: how late Weir's event loop was at most, in milliseconds. */
async function latest(weir: RunningProcess, calls: number): Promise<number> {
  weir.signal("SIGUSR2");
  const line = new RegExp(`late (\\d+\\.\\d) ms at most, look ${String(calls)}\\b`);
  return Number((await weir.waitForOutput(line))[1]);
}

function printGaps(print: Print, title: string, gaps: Gaps, lateMs: number): void {
  const ms = (value: number): string => `${value.toFixed(1)} ms`;
  print(
    `  ${title.padEnd(20)} gaps p50 ${ms(gaps.p50Ms)}  p99 ${ms(gaps.p99Ms)}  ` +
      `max ${ms(gaps.maxMs)}  (${String(gaps.count)})  Weir's event loop late by ${ms(lateMs)} at most`,
  );
}

function printBodies(print: Print, answers: string): void {
  const statuses = new Map<string, string[]>();
  for (const [, kind = "", status = ""] of answers.matchAll(/^(.+): (\d+)$/gm)) {
    statuses.set(kind, [...(statuses.get(kind) ?? []), status]);
  }
  for (const [kind, all] of statuses) {
    const refused = all.filter((status) => status !== "200").length;
    print(`  ${kind.padEnd(20)} ${String(all.length)} bodies  ${String(refused)} refused`);
  }
}

export async function benchStall(print: Print, smoke: boolean): Promise<void> {
  const pace = smoke ? SMOKE : FULL;
  benchSteps(print, pace.bytes);
  const processes = new Processes();
  try {
    const { url } = await processes.worker(STREAMS, MS_PER_TOKEN);
    const sink = await processes.sink();
    const { envoy, weir } = await processes.gateway({
      workers: [
        { url, cluster: "worker_1", models: ["demo"] },
        { url: sink, cluster: "worker_2", models: ["large"] },
      ],
      models: { large: { policy: "cache_aware" } },
      scheduler: { max_concurrent_requests: 1_000, queue_size: 1_000 },
    });
    print(
      `Stall: ${String(STREAMS)} streams, a token every ${String(MS_PER_TOKEN)} ms, ` +
        `and bodies of ${String(pace.bytes / 1_000_000)} MB`,
    );
    await measured(envoy.port, { ...pace, seconds: 1 });
    await latest(weir, 1);
    const alone = await measured(envoy.port, pace);
    printGaps(print, "without large bodies", alone, await latest(weir, 2));
    const sender = await processes.largeBodies(envoy.port, pace.bytes);
    const among = await measured(envoy.port, pace);
    printGaps(print, "with large bodies", among, await latest(weir, 3));
    print(`  ratio of the p99s    ${(among.p99Ms / alone.p99Ms).toFixed(2)}x`);
    printBodies(print, sender.stdout);
  } finally {
    await processes.stop();
  }
}

// Where does Weir's own time go, with all logic on? Two profiles of the process under load: own time, and
// bytes allocated. On are tenants by header and fair sharing, cache_aware selection, engine feedback in
// enforce, metrics, and log lines (to nowhere). Printed are the parts and the functions with the most of
// either; of CPU also what Weir used per request, measured while nothing is profiled.

import { readFileSync } from "node:fs";
import { fullConfig } from "./full-config.js";
import { runLoad } from "./load.js";
import type { Print } from "./print.js";
import { Processes } from "./processes.js";
import type { Frame, Profile } from "./profiler.js";
import { WORKLOADS, type Workload } from "./workloads.js";
import { findWrk } from "./wrk.js";

const WORKERS = 8;
const TOP_FUNCTIONS = 12;
const FULL = { seconds: 8, warmUpSeconds: 8 };
const SMOKE = { seconds: 1, warmUpSeconds: 0 };

type Shares = readonly (readonly [Frame, number])[];

/** Frames that are no work. */
const IDLE = ["(idle)", "(program)", "(root)"];
const PARTS: readonly (readonly [part: string, url: RegExp])[] = [
  ["gRPC", /@grpc|grpc-health/],
  ["node:http2", /internal\/http2/],
  ["log lines", /pino|sonic-boom|thread-stream|request-log|settlement-records/],
  ["metrics", /prom-client|edge\/telemetry/],
  ["Weir: messages", /edge\/envoy/],
  ["Weir: bodies", /core\/identity\/(json|prompt|shape)|core\/prefixes/],
  ["Weir: decisions", /extproc\//],
  ["rest of node", /^node:/],
];

function partOf({ functionName, url }: Frame): string {
  if (url === "") return functionName.startsWith("(") ? functionName : "natives";
  return PARTS.find(([, pattern]) => pattern.test(url))?.[0] ?? "other";
}

function nameOf({ functionName, url }: Frame): string {
  return `${functionName || "(anonymous)"} ${url.split("/").slice(-2).join("/")}`.trim();
}

function printShares(print: Print, title: string, all: Shares): void {
  const busy = all.filter(([{ functionName }]) => !IDLE.includes(functionName));
  const total = busy.reduce((sum, [, amount]) => sum + amount, 0);
  const share = (amount: number): string => `${((100 * amount) / total).toFixed(1).padStart(5)} %`;
  const parts = new Map<string, number>();
  for (const [frame, amount] of busy) {
    parts.set(partOf(frame), (parts.get(partOf(frame)) ?? 0) + amount);
  }
  print(`  ${title}, by part`);
  for (const [part, amount] of [...parts].sort(([, a], [, b]) => b - a)) {
    print(`    ${share(amount)}  ${part}`);
  }
  print(`  ${title}, by function`);
  for (const [frame, amount] of busy.slice(0, TOP_FUNCTIONS)) {
    print(`    ${share(amount)}  ${nameOf(frame)}`);
  }
}

async function profile(
  print: Print,
  workload: Workload,
  { seconds, warmUpSeconds }: typeof FULL,
): Promise<void> {
  const processes = new Processes();
  try {
    const workers = await processes.fastWorkers(WORKERS);
    const { envoy, weir, profile: file } = await processes.gateway(fullConfig(workers));
    const wrk = await findWrk().catch(() => undefined);
    const bodiesFile = processes.file(".txt", `${workload.bodies.join("\n")}\n`);
    const load = { port: envoy.port, workload, bodiesFile, wrk, seconds };
    const plain = await runLoad({ ...load, watched: [weir.pid], warmUpSeconds });
    weir.signal("SIGHUP");
    await weir.waitForOutput(/profiling/);
    const { answers, errors } = await runLoad({ ...load, watched: [], warmUpSeconds: 0 });
    weir.signal("SIGHUP");
    await weir.waitForOutput(/profile written/);
    const { micros, bytes: allocated } = JSON.parse(readFileSync(file, "utf8")) as Profile;
    const sum = allocated.reduce((all, [, amount]) => all + amount, 0);
    print(
      `Profile, ${workload.title}: CPU ${(plain.cpuMicros[0] ?? 0).toFixed(0)} us/request  ` +
        `allocated ${(sum / 1_024 / answers).toFixed(1)} KiB/request  ${String(errors)} errors`,
    );
    printShares(print, "own time", micros);
    printShares(print, "allocated", allocated);
  } finally {
    await processes.stop();
  }
}

export async function benchProfile(print: Print, smoke: boolean): Promise<void> {
  for (const workload of WORKLOADS) {
    if (workload.unit === "request") await profile(print, workload, smoke ? SMOKE : FULL);
  }
}

// What a gateway costs: CPU per request and latency of Envoy with Weir, and of other gateways, beside
// plain Envoy in the same run, for JSON bodies of two sizes and for streams. Prints one table per
// workload and, for Weir, whether its bars are met.

import { runLoad } from "./load.js";
import type { Print } from "./print.js";
import { Processes } from "./processes.js";
import { alternate, type Pace, type Summary } from "./rounds.js";
import { markdownTable } from "./table.js";
import { startTargets, type TargetOptions } from "./targets.js";
import type { Workload } from "./workloads.js";
import type { Wrk } from "./wrk.js";

export interface GatewayBench extends TargetOptions {
  readonly workloads: readonly Workload[];
  readonly pace: Pace;
  readonly wrk: Wrk | undefined;
}

/** With 64 slots each, the default of an engine that does not tell its own, no load here waits. */
const WORKERS = 8;

export async function benchGateway(print: Print, bench: GatewayBench): Promise<void> {
  const { workloads, pace, wrk } = bench;
  const processes = new Processes();
  try {
    const workers = await processes.fastWorkers(WORKERS);
    const targets = await startTargets(processes, workers, bench, print);
    print(
      `${String(pace.rounds)} alternating rounds of ${String(pace.seconds)} s each; medians, CPU ` +
        "ratios with the lowest and the highest round",
    );
    for (const workload of workloads) {
      await setPace(workers, workload);
      const bodiesFile = processes.file(".txt", `${workload.bodies.join("\n")}\n`);
      const summaries = await alternate(targets, pace, (target, watched, warmUpSeconds) =>
        runLoad({
          ...{ port: target.port, workload, bodiesFile, watched, wrk, warmUpSeconds },
          seconds: pace.seconds,
        }),
      );
      printWorkload(print, workload, summaries);
    }
  } finally {
    await processes.stop();
  }
}

async function setPace(
  [worker]: readonly string[],
  { answerAfterMs = 0 }: Workload,
): Promise<void> {
  await fetch(`${worker ?? ""}/answer-after/${String(answerAfterMs)}`, { method: "POST" });
}

function printWorkload(print: Print, workload: Workload, summaries: readonly Summary[]): void {
  const { title, unit } = workload;
  print("");
  print(`${title}:`);
  print("");
  for (const line of markdownTable(
    headOf(unit),
    summaries.map((one) => rowOf(unit, one)),
  )) {
    print(line);
  }
  print("");
  for (const summary of summaries.filter(({ target }) => target.weir)) {
    printBars(print, workload, summary);
  }
}

function headOf(unit: Workload["unit"]): readonly string[] {
  const cpu = ["Envoy, us", "server, us", `CPU per ${unit}, us`, "ratio"];
  return unit === "request"
    ? ["", "requests/s", ...cpu, "p50 ms", "p99 ms", "p99 ratio", "errors"]
    : ["", "chunks/s", ...cpu, "first p50 ms", "gap p50 ms", "gap p99 ms", "errors"];
}

function rowOf(unit: Workload["unit"], summary: Summary): readonly string[] {
  const { cpuRatio, cpuRatioMin, cpuRatioMax } = summary;
  const part = (micros: number): string => (micros === 0 ? "-" : micros.toFixed(0));
  const cpu = [
    part(summary.envoyMicros),
    part(summary.serverMicros),
    summary.totalMicros.toFixed(0),
    `${cpuRatio.toFixed(2)} (${cpuRatioMin.toFixed(2)} to ${cpuRatioMax.toFixed(2)})`,
  ];
  const times = [summary.p50Ms, summary.p99Ms].map((ms) => ms.toFixed(1));
  const before = [summary.target.title, summary.answersPerSecond.toFixed(0), ...cpu];
  return unit === "request"
    ? [...before, ...times, summary.p99Ratio.toFixed(2), String(summary.errors)]
    : [...before, summary.firstP50Ms.toFixed(1), ...times, String(summary.errors)];
}

function printBars(print: Print, workload: Workload, summary: Summary): void {
  const { name, unit, cpuRatioMax, p99RatioMax } = workload;
  const bar = (what: string, value: number, max: number | undefined): void => {
    if (max === undefined) return;
    print(
      `  ${value <= max ? "PASS" : "MISS"}  ${name}, ${summary.target.title}: ${what} at most ` +
        `${max.toFixed(1)} times plain Envoy (${value.toFixed(2)})`,
    );
  };
  bar(`CPU per ${unit}`, summary.cpuRatio, cpuRatioMax);
  bar("p99", summary.p99Ratio, p99RatioMax);
}

// Weir in a process of its own for the benchmarks: `serve.js <weir.yaml> <wire|proto-loader>`. Logs go
// to /dev/null, so that their cost is in and the disk is not. On SIGUSR2 it says how late the event loop
// was at most since it was asked last; it looks only when it was asked once, because looking wakes the
// process a thousand times a second.

import { openSync, readFileSync, writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { App } from "../../extproc/app.js";
import { loadConfig } from "../../extproc/edge/config/load.js";
import { formatProblem } from "../../extproc/edge/config/problem.js";
import { createWireCodec } from "../../extproc/edge/envoy/codec.js";
import { createLog } from "../../extproc/edge/telemetry/log.js";
import { Profiler } from "./profiler.js";
import { createProtoLoaderCodec } from "./proto-loader-codec.js";

const [file = "", codec = "wire", profileFile = ""] = process.argv.slice(2);
const loaded = loadConfig({ text: readFileSync(file, "utf8"), file, env: {}, flags: [] });
if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
const { log, settlementLog } = createLog("info", openSync("/dev/null", "w"));
const app = new App({
  config: loaded.config,
  log,
  settlementLog,
  seed: 1,
  startTimeSeconds: Date.now() / 1_000,
  processMetrics: true,
  createCodec: codec === "wire" ? createWireCodec : createProtoLoaderCodec,
});
await app.start();
process.stdout.write("serving\n");
const delay = monitorEventLoopDelay({ resolution: 1 });
let looks = 0;
process.on("SIGUSR2", () => {
  looks += 1;
  delay.enable();
  // A timer of a millisecond is never early; how late it is says how long it was held up.
  const lateMs = Math.max(0, delay.max / 1e6 - 1);
  delay.reset();
  process.stdout.write(`late ${lateMs.toFixed(1)} ms at most, look ${String(looks)}\n`);
});
// The first SIGHUP begins a profile, the second one writes it to the third argument.
const profiler = new Profiler();
let isProfiled = false;
process.on("SIGHUP", () => {
  void (async () => {
    if (isProfiled) writeFileSync(profileFile, JSON.stringify(await profiler.stop()));
    else await profiler.start();
    process.stdout.write(isProfiled ? "profile written\n" : "profiling\n");
    isProfiled = true;
  })();
});
process.on("SIGTERM", () => {
  process.exit(0);
});

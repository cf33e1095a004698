// Weir in a process of its own for the benchmarks: `serve.ts <weir.yaml> <wire|proto-loader>`. Logs go
// to /dev/null, so that their cost is in and the disk is not.

import { openSync, readFileSync } from "node:fs";
import { App } from "../../extproc/app.js";
import { loadConfig } from "../../extproc/edge/config/load.js";
import { formatProblem } from "../../extproc/edge/config/problem.js";
import { createWireCodec } from "../../extproc/edge/envoy/codec.js";
import { createLog } from "../../extproc/edge/telemetry/log.js";
import { createProtoLoaderCodec } from "./proto-loader-codec.js";

const [file = "", codec = "wire"] = process.argv.slice(2);
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
process.on("SIGTERM", () => {
  process.exit(0);
});

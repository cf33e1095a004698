// `npm run bench`: sets up what is needed and runs the benchmarks. `--smoke` runs each of them once
// and briefly, so that they do not rot.
import { spawnSync } from "node:child_process";
import { ensurePackages } from "../../envoy/demo/setup.mjs";

await ensurePackages();
const { status } = spawnSync(
  process.execPath,
  ["--import", "tsx", "test/bench/main.ts", ...process.argv.slice(2)],
  { stdio: "inherit" },
);
process.exitCode = status ?? 1;

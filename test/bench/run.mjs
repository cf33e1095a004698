// `npm run bench`: sets up what is needed and runs the benchmarks. What is measured runs as users run it:
// compiled by tsc, and not by the loader that tests go through, which wraps functions and takes time
// of its own. `--smoke` runs each of them once and briefly, so that they do not rot.
import { spawnSync } from "node:child_process";
import { ensureBuild, ensurePackages } from "../../envoy/demo/setup.mjs";

await ensurePackages();
await ensureBuild({
  target: {
    project: "test/bench/tsconfig.json",
    sources: ["extproc", "envoy", "test", "tsconfig.json", "package-lock.json"],
    stamp: "dist/bench/.sources.json",
  },
});
const { status } = spawnSync(
  process.execPath,
  ["--import", "tsx", "test/bench/main.ts", ...process.argv.slice(2)],
  { stdio: "inherit" },
);
process.exitCode = status ?? 1;

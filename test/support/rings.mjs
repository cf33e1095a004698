// How did one part of the test suite go? This file runs one mocha process or one check (an npm
// script) and says how many tests passed, failed and were skipped in it. Everything that is not a
// clean end counts as a failure: a crash, a process that hangs or does not exit after its last test,
// an exit code that does not fit the counts. Each part runs in a process group of its own, which is
// ended with it, so that a server or an Envoy that a test left behind does not outlive it.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { npmCommand } from "../../envoy/demo/setup.mjs";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const MOCHA = join(REPOSITORY, "node_modules/mocha/bin/mocha.js");
const REPORTER = join(REPOSITORY, "test/support/ring-reporter.cjs");
/** How long mocha may take to exit after its last test before something counts as left open. */
const EXIT_GRACE_MS = 15_000;
const LOOK_EVERY_MS = 500;
const groups = new Set();

/** Ends every part that runs now; for the end of this process. */
export function killAll() {
  for (const pid of groups) killGroup(pid);
}

/**
 * Runs one npm script and counts it as one test. Its output is shown only when it fails.
 * Resolves to { passed, failed, skipped, failures, output }.
 */
export async function runCheck({ name, script, root = REPOSITORY, limitMs }) {
  const npm = npmCommand(root);
  const args = [...npm.args, "run", "--silent", script];
  const options = {
    cwd: root,
    env: { NO_COLOR: "1", ...npm.env },
    stdio: ["ignore", "pipe", "pipe"],
  };
  const result = await runGroup(npm.command, args, options, limitMs);
  if (result.problem === undefined) return { passed: 1, failed: 0, skipped: 0, failures: [] };
  const failures = [`${name}: ${result.problem}`];
  return { passed: 0, failed: 1, skipped: 0, failures, output: result.output };
}

/**
 * Runs mocha once over the given files. `args` are further mocha flags, `stdio` is for tests.
 * Resolves to { passed, failed, skipped, failures }.
 */
export async function runMocha(options) {
  const { name, files, args = [], timeoutMs, limitMs, root = REPOSITORY } = options;
  const { stdio = ["ignore", "inherit", "inherit"], graceMs = EXIT_GRACE_MS, env = {} } = options;
  const folder = await mkdtemp(join(tmpdir(), "weir-ring-"));
  const reportFile = join(folder, "report.json");
  const flags = ["--no-package", "--no-config", "--reporter", REPORTER, "--timeout", timeoutMs];
  if (!process.stdout.isTTY) flags.push("--no-color");
  const commandLine = [MOCHA, ...flags.map(String), ...args, ...files];
  const childEnv = { ...process.env, ...env, WEIR_RING_REPORT: reportFile };
  let endedAt;
  const stuck = async () => {
    const report = await readReport(reportFile);
    if (report?.ended !== true) return undefined;
    endedAt ??= Date.now();
    const over = Date.now() - endedAt > graceMs;
    return over ? "did not exit after its last test: something is still open" : undefined;
  };
  try {
    const spawnOptions = { cwd: root, env: childEnv, stdio };
    const result = await runGroup(process.execPath, commandLine, spawnOptions, limitMs, stuck);
    return count(name, await readReport(reportFile), result);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Joins what the reporter counted with how the process ended. */
function count(name, report, result) {
  const { passed = 0, failed = 0, skipped = 0, failures = [], current = "loading" } = report ?? {};
  const counts = {
    passed,
    failed,
    skipped,
    failures: failures.map((title) => `${name}: ${title}`),
  };
  const whole = report?.ended === true && result.stopped !== true;
  // mocha's exit code is the number of failures: it explains itself unless there were none.
  if (result.problem === undefined ? whole : whole && failed > 0) return counts;
  counts.failed += 1;
  const during = report?.ended === true ? "" : ` during: ${current}`;
  counts.failures.push(`${name}: mocha ${result.problem ?? "ended early"}${during}`);
  return counts;
}

async function readReport(path) {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}

/**
 * Runs a program as the leader of a new process group and waits for its end. `stuck` is asked now
 * and then; a text it gives ends the group. `problem` is undefined when the program exited with 0;
 * `stopped` is set when we had to end it.
 */
function runGroup(command, args, options, limitMs, stuck = () => Promise.resolve(undefined)) {
  return new Promise((done) => {
    const child = spawn(command, args, { ...options, detached: true });
    let output = "";
    let stopped;
    const stop = (problem) => {
      stopped ??= problem;
      killGroup(child.pid);
    };
    const limit = setTimeout(() => stop(`was stopped after ${limitMs / 1000} s`), limitMs);
    const look = setInterval(async () => {
      const problem = await stuck();
      if (problem !== undefined) stop(problem);
    }, LOOK_EVERY_MS);
    const settle = (problem) => {
      clearTimeout(limit);
      clearInterval(look);
      groups.delete(child.pid);
      killGroup(child.pid);
      done({ problem: stopped ?? problem, stopped: stopped !== undefined, output });
    };
    if (child.pid !== undefined) groups.add(child.pid);
    child.stdout?.on("data", (bytes) => (output += bytes));
    child.stderr?.on("data", (bytes) => (output += bytes));
    child.on("error", (error) => settle(`cannot be started: ${error.message}`));
    child.on("exit", (code, signal) => {
      // Output that was on its way arrives before the next turn of the loop.
      setTimeout(() => {
        settle(code === 0 ? undefined : signal === null ? `exit ${code}` : `ended by ${signal}`);
      }, 50);
    });
  });
}

function killGroup(pid) {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The group is gone, which is what was wanted.
  }
}

// Is everything all right? `npm test` sets up what is missing, runs the checks and every ring of
// tests, shows what failed in full, and closes with one line: `N passed, N failed, N skipped`. The
// exit code is 1 when anything failed or no test ran.
//
//   npm test                              everything
//   npm test -- --only unit,contract      some parts: checks, unit, sim, contract, e2e, bench
//   npm test -- --only unit --grep "I-1"  what is not ours goes on to mocha
//
// A test file belongs to the ring its folder is named after, and to `unit` when there is none, so no
// file can be forgotten. Plain JavaScript on node: modules only, because packages may be missing.
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { envoyBinary } from "../envoy/demo/envoy-binary.mjs";
import { ensureBuild, ensurePackages, requireNode } from "../envoy/demo/setup.mjs";
import { killAll, runCheck, runMocha } from "./support/rings.mjs";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const MINUTE_MS = 60_000;
const CHECK_LIMIT_MS = 5 * MINUTE_MS;
const CHECKS = [
  { name: "type check", script: "typecheck" },
  { name: "lint", script: "lint" },
  { name: "format", script: "format" },
  { name: "architecture", script: "arch" },
];
/** `timeoutMs` is per test, `limitMs` for the whole run; both are several times what is usual. */
const RINGS = [
  { name: "unit", timeoutMs: 10_000, limitMs: 10 * MINUTE_MS },
  { name: "sim", timeoutMs: 120_000, limitMs: 10 * MINUTE_MS },
  { name: "contract", timeoutMs: 30_000, limitMs: 10 * MINUTE_MS },
  { name: "e2e", timeoutMs: 60_000, limitMs: 20 * MINUTE_MS },
  { name: "bench", timeoutMs: 120_000, limitMs: 15 * MINUTE_MS },
];
const PARTS = ["checks", ...RINGS.map((ring) => ring.name)];

const total = { passed: 0, failed: 0, skipped: 0, failures: [] };

function add(counts) {
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped += counts.skipped;
  total.failures.push(...counts.failures);
}

function fail(reason) {
  add({ passed: 0, failed: 1, skipped: 0, failures: [reason] });
}

/** `{ parts, mochaArgs }` of the command line; throws naming the allowed parts. */
function readArguments(argv) {
  let parts = PARTS;
  const mochaArgs = [];
  for (let index = 0; index < argv.length; index += 1) {
    const [flag, attached] = argv[index].split(/=(.*)/s);
    if (flag !== "--only") {
      mochaArgs.push(argv[index]);
      continue;
    }
    const value = attached ?? argv[(index += 1)] ?? "";
    parts = value.split(",");
    const unknown = parts.filter((part) => !PARTS.includes(part));
    if (unknown.length > 0) {
      throw new Error(`--only: "${unknown.join(",")}" is not one of ${PARTS.join(", ")}`);
    }
  }
  return { parts, mochaArgs };
}

/** The checks, two at a time: each has a process of its own and the smallest machine two cores. */
async function runChecks() {
  console.log("\n== checks");
  const waiting = [...CHECKS];
  const lane = async () => {
    for (let check = waiting.shift(); check !== undefined; check = waiting.shift()) {
      const start = Date.now();
      const counts = await runCheck({ ...check, limitMs: CHECK_LIMIT_MS });
      console.log(`  ${counts.failed === 0 ? "✔" : "✖"} ${check.name} (${seconds(start)} s)`);
      if (counts.output !== undefined) console.log(counts.output);
      add(counts);
    }
  };
  await Promise.all([lane(), lane()]);
}

async function runRing(ring, files, mochaArgs) {
  console.log(`\n== ${ring.name}: ${files.length} files`);
  if (files.length === 0) return;
  const env = {};
  if (ring.name === "e2e") {
    try {
      env.ENVOY_BIN = await envoyBinary();
      console.log(`envoy: ${env.ENVOY_BIN}`);
    } catch (error) {
      console.log(error.message);
      fail("e2e: there is no Envoy, so no end-to-end test ran");
      return;
    }
  }
  const start = Date.now();
  const args = [...(await mochaFlags()), ...mochaArgs];
  const counts = await runMocha({ ...ring, files, args, env });
  const { passed, failed, skipped } = counts;
  console.log(
    `${ring.name}: ${passed} ok, ${failed} not ok, ${skipped} left out, ${seconds(start)} s`,
  );
  add(counts);
}

/** The flags under `mocha` in package.json, less what each run chooses for itself. */
async function mochaFlags() {
  const { mocha } = JSON.parse(await readFile(join(REPOSITORY, "package.json"), "utf8"));
  return Object.entries(mocha)
    .filter(([name]) => !["spec", "reporter", "timeout"].includes(name))
    .flatMap(([name, value]) => {
      if (typeof value === "boolean") return value ? [`--${name}`] : [];
      return [value].flat().map((one) => `--${name}=${one}`);
    });
}

/** Every test file, by ring. */
async function filesByRing() {
  const byRing = new Map(RINGS.map((ring) => [ring.name, []]));
  const names = await readdir(join(REPOSITORY, "test"), { recursive: true });
  for (const name of names.filter((one) => one.endsWith(".test.ts")).sort()) {
    const folder = name.split(/[\\/]/)[0];
    byRing.get(byRing.has(folder) ? folder : "unit").push(join("test", name));
  }
  return byRing;
}

async function main() {
  const { parts, mochaArgs } = readArguments(process.argv.slice(2));
  requireNode();
  await ensurePackages();
  await ensureBuild().catch((error) => fail(`build: ${error.message}`));
  if (parts.includes("checks")) await runChecks();
  const files = await filesByRing();
  for (const ring of RINGS) {
    if (parts.includes(ring.name)) await runRing(ring, files.get(ring.name), mochaArgs);
  }
  const ringsWanted = parts.some((part) => part !== "checks");
  const testsRan = total.passed + total.failed - (parts.includes("checks") ? CHECKS.length : 0);
  if (ringsWanted && testsRan <= 0) fail("no test ran");
}

function seconds(start) {
  return ((Date.now() - start) / 1000).toFixed(1);
}

function close() {
  if (total.failures.length > 0) {
    console.log(`\nFailed:\n${total.failures.map((line) => `  - ${line}`).join("\n")}`);
  }
  const { passed, failed, skipped } = total;
  console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
  process.exitCode = failed > 0 ? 1 : 0;
}

process.on("exit", killAll);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    fail(`stopped by ${signal}`);
    close();
    process.exit(1);
  });
}
try {
  await main();
} catch (error) {
  fail(error.message);
}
close();

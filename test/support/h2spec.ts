// Which h2spec do we run? It is a conformance test of HTTP/2 servers, written in Go. Looked for in this
// order: H2SPEC_BIN; `h2spec` on PATH; the project's cache,
// ${XDG_CACHE_HOME:-$HOME/.cache}/weir/h2spec-<version>/h2spec; built into that cache by `go install`
// under a temporary name and then renamed, so that any number of processes may build at once.

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The latest release that `go install` can fetch by its name. */
const H2SPEC_VERSION = "2.2.1";
const PACKAGE = `github.com/summerwind/h2spec/cmd/h2spec@v${H2SPEC_VERSION}+incompatible`;
export const BUILD_LIMIT_MS = 300_000;
const RUN_LIMIT_MS = 60_000;
/** Seconds h2spec waits for an answer; most cases take milliseconds. */
const ANSWER_LIMIT_SECS = 2;

/** The path of a program that runs, or why there is none. */
export async function findH2spec(): Promise<{ path: string } | { problem: string }> {
  const own = process.env["H2SPEC_BIN"];
  if (own !== undefined && own !== "") {
    return (await runs(own)) ? { path: own } : { problem: `H2SPEC_BIN=${own} does not run` };
  }
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    const path = join(folder, "h2spec");
    if (folder !== "" && (await runs(path))) return { path };
  }
  const root = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  const cache = join(root, "weir", `h2spec-${H2SPEC_VERSION}`);
  const path = join(cache, "h2spec");
  if (await runs(path)) return { path };
  try {
    await build(cache, path);
    return { path };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return {
      problem:
        `h2spec is not there: H2SPEC_BIN is not set, it is not on PATH, there is no ${path}, ` +
        `and it could not be built with go: ${reason}`,
    };
  }
}

async function build(cache: string, path: string): Promise<void> {
  await mkdir(cache, { recursive: true });
  const work = await mkdtemp(join(cache, ".build-"));
  try {
    const env = { ...process.env, GOBIN: work, GOFLAGS: "-buildvcs=false" };
    await run("go", ["install", PACKAGE], { env, timeout: BUILD_LIMIT_MS });
    await rename(join(work, "h2spec"), path);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function runs(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    await run(path, ["--version"], { timeout: 10_000 });
    return true;
  } catch {
    return false;
  }
}

export interface H2specResults {
  readonly passed: number;
  /** Cases that did not pass, as `<section>: <title>`. */
  readonly failed: readonly string[];
  /** Cases h2spec left out, because what the server answered gave it nothing to test. */
  readonly skipped: readonly string[];
}

/** Runs every case, the strict ones included, against a port of 127.0.0.1. */
export async function runH2spec(path: string, port: number): Promise<H2specResults> {
  const folder = await mkdtemp(join(tmpdir(), "weir-h2spec-"));
  try {
    const report = join(folder, "report.xml");
    const target = ["--host", "127.0.0.1", "--port", String(port)];
    const how = ["--strict", "--timeout", String(ANSWER_LIMIT_SECS), "--junit-report", report];
    // It exits with 1 when a case fails; the report tells which.
    await run(path, [...target, ...how], { timeout: RUN_LIMIT_MS }).catch(() => undefined);
    return readReport(await readFile(report, "utf8"));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const CASE = /<testcase package="([^"]*)" classname="([^"]*)"[^>]*>(.*?)<\/testcase>/gs;

function readReport(xml: string): H2specResults {
  let passed = 0;
  const failed: string[] = [];
  const skipped: string[] = [];
  for (const [, section = "", title = "", result = ""] of xml.matchAll(CASE)) {
    const name = `${section}: ${title.replaceAll("&#34;", '"')}`;
    if (result.includes("<skipped")) skipped.push(name);
    else if (/<(error|failure)/.test(result)) failed.push(name);
    else passed += 1;
  }
  return { passed, failed, skipped };
}

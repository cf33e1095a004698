// Where do things fetched for the benchmarks stay? In the cache folder that Envoy's binary has too:
// ${XDG_CACHE_HOME:-$HOME/.cache}/weir, or .cache/weir in the repository where there is no home.

import { spawn } from "node:child_process";
import { isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export type Environment = Readonly<Record<string, string | undefined>>;

const REPOSITORY = resolve(fileURLToPath(new URL("../..", import.meta.url)));

/** The folder `name` in the cache; it need not exist. */
export function cacheFolder(name: string, env: Environment = process.env): string {
  const { XDG_CACHE_HOME: given, HOME: home } = env;
  let root = join(REPOSITORY, ".cache");
  if (given !== undefined && isAbsolute(given)) root = given;
  else if (home !== undefined && isAbsolute(home)) root = join(home, ".cache");
  return join(root, "weir", name);
}

export interface CommandResult {
  /** Null when the command could not be started or was ended by a signal. */
  readonly code: number | null;
  readonly stdout: string;
  /** Its last line of standard error, or why it did not run. */
  readonly problem: string;
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly env?: Environment;
  readonly limitMs: number;
}

/** Runs a command to its end; never rejects. */
export function runCommand(
  command: string,
  args: readonly string[],
  { cwd, env = process.env, limitMs }: CommandOptions,
): Promise<CommandResult> {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    const timer = setTimeout(() => child.kill("SIGKILL"), limitMs);
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    const finish = (code: number | null, problem: string): void => {
      clearTimeout(timer);
      done({ code, stdout, problem });
    };
    child.on("error", (error) => {
      finish(null, error.message);
    });
    child.on("close", (code, signal) => {
      const last = stderr.trim().split("\n").at(-1) ?? "";
      finish(code, last === "" ? `ended with ${String(code ?? signal)}` : last);
    });
  });
}

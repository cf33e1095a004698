// The other gateways that `--peers` measures: which packages they are, how each is installed into a
// virtual environment of its own in the cache folder, and how it is started in front of given
// workers, by the flags its `--help` names. Logs are at the level "warn", so that they write no line
// per request; everything else is as shipped.

import { access, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "../support/http-client.js";
import { freePorts } from "../support/ports.js";
import { cacheFolder, runCommand, type Environment } from "./cache.js";
import type { Processes } from "./processes.js";

export interface Peer {
  /** The package's and the program's name. */
  readonly name: string;
  readonly version: string;
  readonly policies: readonly string[];
  /** Words before the flags, and flags that differ. */
  readonly command: readonly string[];
}

export const PEERS: readonly Peer[] = [
  {
    name: "smg",
    version: "1.13.0",
    policies: ["power_of_two", "cache_aware"],
    command: ["launch", "--log-level", "warn"],
  },
  {
    name: "vllm-router",
    version: "0.1.17",
    policies: ["power_of_two", "cache_aware"],
    command: ["--log-level", "warning"],
  },
];

export interface Problem {
  readonly problem: string;
}

/** Some 60 MB each. */
const INSTALL_LIMIT_MS = 600_000;
const START_LIMIT_MS = 90_000;
const POLL_MS = 250;
/** Written last, so that a half installed environment is made anew. */
const COMPLETE = "weir-complete";

/** The path of the installed program, or why there is none. Progress goes to stderr. */
export async function installPeer(
  { name, version }: Peer,
  env: Environment = process.env,
): Promise<string | Problem> {
  const folder = cacheFolder(join("peers", `${name}-${version}`), env);
  const program = join(folder, "bin", name);
  const complete = join(folder, COMPLETE);
  if (
    await access(complete).then(
      () => true,
      () => false,
    )
  ) {
    return program;
  }
  process.stderr.write(`${name}: installing ${version} into ${folder} …\n`);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const python = join(folder, "bin", "python");
  const pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
  const steps: readonly (readonly [string, readonly string[]])[] = [
    ["python3", ["-m", "venv", folder]],
    [python, [...pip, `${name}==${version}`]],
    [program, ["--help"]],
  ];
  for (const [command, args] of steps) {
    const { code, problem } = await runCommand(command, args, { env, limitMs: INSTALL_LIMIT_MS });
    if (code !== 0) return { problem: `${[command, ...args].join(" ")}: ${problem}` };
  }
  await writeFile(complete, "");
  return program;
}

export interface PeerStart {
  readonly peer: Peer;
  readonly program: string;
  readonly policy: string;
  readonly workers: readonly string[];
}

/** Starts one and waits until it answers a chat request. */
export async function startPeer(
  processes: Processes,
  { peer, program, policy, workers }: PeerStart,
): Promise<{ readonly port: number; readonly pid: number } | Problem> {
  const [port, metricsPort = 0] = await freePorts(2);
  const child = processes.run(
    program,
    [
      ...peer.command,
      ...["--host", "127.0.0.1", "--port", String(port), "--policy", policy],
      ...["--prometheus-host", "127.0.0.1", "--prometheus-port", String(metricsPort)],
      ...["--worker-urls", ...workers],
    ],
    { name: peer.name },
  );
  const deadline = performance.now() + START_LIMIT_MS;
  while (performance.now() < deadline && child.end === undefined) {
    if (await answersChat(port)) return { port, pid: child.pid };
    await sleep(POLL_MS);
  }
  const lastLine = (child.stderr.trim() || child.stdout.trim()).split("\n").at(-1) ?? "";
  const { end } = child;
  const state =
    end === undefined ? "no answer in time" : `ended with ${String(end.code ?? end.signal)}`;
  await child.stop();
  return { problem: `${state}; ${lastLine}` };
}

async function answersChat(port: number): Promise<boolean> {
  const body = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] });
  const headers = [["content-type", "application/json"]] as const;
  const path = "/v1/chat/completions";
  const answer = await request({ port, path, headers, body, limitMs: 5_000 }).catch(
    () => undefined,
  );
  return answer?.status === 200;
}

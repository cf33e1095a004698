// How do tests run Weir as a process of its own, to stop, kill or drain it? This file starts the
// command line with the configuration of a stack and asks its admin port and its log, which is all
// that an operator has as well.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { request } from "./http-client.js";
import { startProcess, type ProcessEnd, type RunningProcess } from "./process.js";
import type { Stack } from "./stack.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
/** The sources are compiled as they are loaded, perhaps on a busy machine. */
const START_LIMIT_MS = 30_000;
const POLL_MS = 20;

export interface WeirState {
  readonly ready: boolean;
  readonly draining: boolean;
  readonly requests: { readonly live: number; readonly queued: number };
  readonly partitions: readonly { readonly in_flight: number }[];
  readonly workers: readonly { readonly live_load: number; readonly health: string }[];
}

export type LogLine = Readonly<Record<string, unknown>>;

/** A running Weir; use `startWeir`. */
export class WeirProcess {
  readonly process: RunningProcess;
  readonly #adminPort: number;
  readonly #folder: string;

  constructor(process: RunningProcess, adminPort: number, folder: string) {
    this.process = process;
    this.#adminPort = adminPort;
    this.#folder = folder;
  }

  async state(): Promise<WeirState> {
    const answer = await request({ port: this.#adminPort, path: "/state" });
    return JSON.parse(answer.body.toString("utf8")) as WeirState;
  }

  /** What it holds now, in the same words as `Stack.held`. */
  async held(): Promise<Record<string, number>> {
    const { requests, partitions, workers } = await this.state();
    const inFlight = partitions.reduce((sum, partition) => sum + partition.in_flight, 0);
    const load = workers.reduce((sum, worker) => sum + worker.live_load, 0);
    return { inFlight, load, live: requests.live, queued: requests.queued };
  }

  /** Status of /readyz. */
  async readiness(): Promise<number> {
    return (await request({ port: this.#adminPort, path: "/readyz" })).status;
  }

  async metrics(): Promise<string> {
    return (await request({ port: this.#adminPort, path: "/metrics" })).body.toString("utf8");
  }

  /** Its log so far; each line of standard output is a JSON object. */
  log(): readonly LogLine[] {
    return this.process.stdout
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LogLine);
  }

  /** The settlement lines of its log. */
  settled(): readonly LogLine[] {
    return this.log().filter((line) => line["msg"] === "request settled");
  }

  /** Waits for this many settlement lines; they are written a moment after the settlement. */
  async untilSettled(count: number): Promise<readonly LogLine[]> {
    const what = `settle ${String(count)} requests`;
    await this.process.waitUntil(() => this.settled().length >= count, what);
    return this.settled();
  }

  /** Ends it, whatever it is doing, and waits for its end. */
  async stop(): Promise<ProcessEnd> {
    // A stopped process hears no other signal.
    this.process.signal("SIGKILL");
    const end = await this.process.ended;
    await rm(this.#folder, { recursive: true, force: true });
    return end;
  }
}

/** Starts Weir with the configuration of a stack made `withoutWeir`, and waits until it is ready. */
export async function startWeir(stack: Stack): Promise<WeirProcess> {
  const { listen } = stack.config.admin;
  if (listen.kind !== "tcp") throw new Error("the admin port of a stack is on TCP");
  const folder = await mkdtemp(join(tmpdir(), "weir-config-"));
  const file = join(folder, "weir.yaml");
  await writeFile(file, stack.yaml);
  const args = ["--import", "tsx", "extproc/main.ts", "serve", "-c", file];
  const child = startProcess(process.execPath, args, { name: "weir", cwd: REPOSITORY });
  const weir = new WeirProcess(child, listen.port, folder);
  const deadline = Date.now() + START_LIMIT_MS;
  while ((await weir.readiness().catch(() => 0)) !== 200) {
    if (child.end !== undefined || Date.now() > deadline) {
      await weir.stop();
      throw new Error(`Weir did not start\n${child.describe()}`);
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  return weir;
}

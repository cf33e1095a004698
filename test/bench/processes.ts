// What the benchmarks run, each in a process of its own: workers, Weir, Envoy with and without it, and
// whatever else stands in front of workers. `Processes` stops all that was started through it, the
// last one first, and keeps the files they read in one folder.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WeirConfig } from "../../extproc/core/model/config.js";
import { bootstrapYaml } from "../../extproc/edge/envoy/bootstrap.js";
import { configYaml, testConfig, type ConfigSketch } from "../support/config.js";
import { startEnvoy, type EnvoyProcess } from "../support/envoy.js";
import { freePorts } from "../support/ports.js";
import { startProcess, type ProcessOptions, type RunningProcess } from "../support/process.js";
import { plainBootstrap } from "./plain-bootstrap.js";

export type CodecName = "wire" | "proto-loader";

export interface WorkerProcess {
  readonly process: RunningProcess;
  readonly url: string;
}

export interface Gateway {
  readonly envoy: EnvoyProcess;
  /** Weir, or what stands in its place. */
  readonly weir: RunningProcess;
  /** Where Weir writes its profile. */
  readonly profile: string;
}

export interface GatewayOptions {
  readonly codec?: CodecName;
  /** Name in `listen.transport`; the shipped one when absent. */
  readonly transport?: string | undefined;
}

/** On a busy machine. */
const START_LIMIT_MS = 30_000;

/** The arguments of Node that run a program of this repository as users do, compiled by tsc. */
export function compiled(source: string): readonly string[] {
  return [`dist/bench/${source.replace(/ts$/, "js")}`];
}

/** Those that run one as it stands, for programs whose time does not count. */
export function asItStands(source: string): readonly string[] {
  return ["--import", "tsx", source];
}

export class Processes {
  readonly #folder = mkdtempSync(join(tmpdir(), "weir-bench-"));
  readonly #stops: (() => Promise<unknown>)[] = [];
  #files = 0;

  /** A mock worker that runs this many requests at once; by default as fast as it can. */
  async worker(slots: number, msPerToken = 0): Promise<WorkerProcess> {
    const args = [
      ...[...compiled("envoy/mock-worker/main.ts"), "--port", "0", "--slots", String(slots)],
      ...["--ms-per-token", String(msPerToken)],
    ];
    const worker = this.#start("mock worker", args);
    const [url] = await worker.waitForOutput(/http:\/\/127\.0\.0\.1:\d+/, START_LIMIT_MS);
    return { process: worker, url };
  }

  /** Where a worker listens that takes any body unread. */
  async sink(): Promise<string> {
    const sink = this.#start("sink", [...asItStands("test/bench/large-bodies.ts"), "sink"]);
    return (await sink.waitForOutput(/http:\/\/127\.0\.0\.1:\d+/))[0];
  }

  /** Sends large bodies through this port until it is stopped. */
  async largeBodies(port: number, bytes: number): Promise<RunningProcess> {
    const program = asItStands("test/bench/large-bodies.ts");
    const args = [...program, "send", String(port), String(bytes)];
    const sender = this.#start("large bodies", args);
    await sender.waitForOutput(/sending/);
    return sender;
  }

  /** The URLs of this many workers that cost next to nothing, all in one process. */
  async fastWorkers(count: number): Promise<readonly string[]> {
    const ports = await freePorts(count);
    const args = [...compiled("test/bench/fast-worker.ts"), ...ports.map(String)];
    const worker = this.#start("fast workers", args);
    await worker.waitForOutput(/serving/, START_LIMIT_MS);
    return ports.map((port) => `http://127.0.0.1:${String(port)}`);
  }

  /** Weir and the Envoy in front of it. */
  async gateway(sketch: ConfigSketch, options: GatewayOptions = {}): Promise<Gateway> {
    const { codec = "wire", transport } = options;
    const over = await withAddresses(sketch, transport);
    const file = this.file(".yaml", configYaml(over));
    const profile = file.replace(/yaml$/, "profile.json");
    const program = compiled("test/bench/serve.ts");
    const args = [...program, file, codec, profile];
    return { ...(await this.#behindEnvoy(testConfig(over), `weir (${codec})`, args)), profile };
  }

  /** The same Envoy with a server that decides nothing in Weir's place. */
  async emptyGateway(sketch: ConfigSketch): Promise<Omit<Gateway, "profile">> {
    const config = testConfig(await withAddresses(sketch));
    const { ext_proc: address } = config.listen;
    if (address.kind !== "tcp") throw new Error("the empty server listens on a port only");
    const program = compiled("test/bench/empty-server.ts");
    const clusters = String(config.workers.length);
    return this.#behindEnvoy(config, "empty server", [...program, String(address.port), clusters]);
  }

  /** The same Envoy without Weir. */
  async plainEnvoy(sketch: ConfigSketch): Promise<EnvoyProcess> {
    return this.#envoy(plainBootstrap(bootstrapYaml(testConfig(await withAddresses(sketch)))));
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops) await stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Any other program. */
  run(command: string, args: readonly string[], options: ProcessOptions): RunningProcess {
    const child = startProcess(command, args, options);
    this.#stops.unshift(() => child.stop());
    return child;
  }

  /** The path of a new file. */
  file(ending: string, text: string): string {
    this.#files += 1;
    const file = join(this.#folder, `${String(this.#files)}${ending}`);
    writeFileSync(file, text);
    return file;
  }

  async #behindEnvoy(
    config: WeirConfig,
    name: string,
    args: readonly string[],
  ): Promise<Omit<Gateway, "profile">> {
    const weir = this.#start(name, args);
    await weir.waitForOutput(/serving/, START_LIMIT_MS);
    return { envoy: await this.#envoy(bootstrapYaml(config)), weir };
  }

  #start(name: string, args: readonly string[]): RunningProcess {
    return this.run(process.execPath, args, { name });
  }

  async #envoy(bootstrap: string): Promise<EnvoyProcess> {
    const envoy = await startEnvoy(bootstrap, { discardAccessLog: true });
    this.#stops.unshift(() => envoy.stop());
    return envoy;
  }
}

async function withAddresses(sketch: ConfigSketch, transport?: string): Promise<ConfigSketch> {
  const ports = await freePorts(4);
  return {
    listen: {
      ext_proc: `127.0.0.1:${String(ports[0])}`,
      ...(transport === undefined ? {} : { transport }),
    },
    admin: { listen: `127.0.0.1:${String(ports[1])}` },
    envoy: { port: ports[2], admin_port: ports[3] },
    ...sketch,
  };
}

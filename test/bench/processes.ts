// What the benchmarks run, each in a process of its own: mock workers, Weir, Envoy with and without
// it. `Processes` stops whatever was started through it, the last one first.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootstrapYaml } from "../../extproc/edge/envoy/bootstrap.js";
import { configYaml, testConfig, type ConfigSketch } from "../support/config.js";
import { startEnvoy, type EnvoyProcess } from "../support/envoy.js";
import { freePorts } from "../support/ports.js";
import { startProcess, type RunningProcess } from "../support/process.js";
import { plainBootstrap } from "./plain-bootstrap.js";

export type CodecName = "wire" | "proto-loader";

export interface WorkerProcess {
  readonly process: RunningProcess;
  readonly url: string;
}

export interface Gateway {
  readonly envoy: EnvoyProcess;
  readonly weir: RunningProcess;
  /** Where Weir writes its profile. */
  readonly profile: string;
}

export class Processes {
  readonly #folder = mkdtempSync(join(tmpdir(), "weir-bench-"));
  readonly #stops: (() => Promise<unknown>)[] = [];
  #files = 0;

  /** A mock worker that runs this many requests at once; by default as fast as it can. */
  async worker(slots: number, msPerToken = 0): Promise<WorkerProcess> {
    const args = [
      ...["envoy/mock-worker/main.ts", "--port", "0", "--slots", String(slots)],
      ...["--ms-per-token", String(msPerToken)],
    ];
    const worker = this.#start("mock worker", args);
    const [url] = await worker.waitForOutput(/http:\/\/127\.0\.0\.1:\d+/);
    return { process: worker, url };
  }

  /** Where a worker listens that takes any body unread. */
  async sink(): Promise<string> {
    const sink = this.#start("sink", ["test/bench/large-bodies.ts", "sink"]);
    return (await sink.waitForOutput(/http:\/\/127\.0\.0\.1:\d+/))[0];
  }

  /** Sends large bodies through this port until it is stopped. */
  async largeBodies(port: number, bytes: number): Promise<RunningProcess> {
    const args = ["test/bench/large-bodies.ts", "send", String(port), String(bytes)];
    const sender = this.#start("large bodies", args);
    await sender.waitForOutput(/sending/);
    return sender;
  }

  /** Weir and the Envoy in front of it. */
  async gateway(sketch: ConfigSketch, codec: CodecName): Promise<Gateway> {
    const over = await withAddresses(sketch);
    this.#files += 1;
    const file = join(this.#folder, `${String(this.#files)}.yaml`);
    const profile = join(this.#folder, `${String(this.#files)}.profile.json`);
    writeFileSync(file, configYaml(over));
    const weir = this.#start(`weir (${codec})`, ["test/bench/serve.ts", file, codec, profile]);
    await weir.waitForOutput(/serving/);
    return { envoy: await this.#envoy(bootstrapYaml(testConfig(over))), weir, profile };
  }

  /** The same Envoy without Weir. */
  async plainEnvoy(sketch: ConfigSketch): Promise<EnvoyProcess> {
    return this.#envoy(plainBootstrap(bootstrapYaml(testConfig(await withAddresses(sketch)))));
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops) await stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #start(name: string, args: readonly string[]): RunningProcess {
    const child = startProcess(process.execPath, ["--import", "tsx", ...args], { name });
    this.#stops.unshift(() => child.stop());
    return child;
  }

  async #envoy(bootstrap: string): Promise<EnvoyProcess> {
    const envoy = await startEnvoy(bootstrap);
    this.#stops.unshift(() => envoy.stop());
    return envoy;
  }
}

async function withAddresses(sketch: ConfigSketch): Promise<ConfigSketch> {
  const ports = await freePorts(4);
  return {
    listen: { ext_proc: `127.0.0.1:${String(ports[0])}` },
    admin: { listen: `127.0.0.1:${String(ports[1])}` },
    envoy: { port: ports[2], admin_port: ports[3] },
    ...sketch,
  };
}

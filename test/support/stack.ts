// The whole thing for end-to-end tests: mock workers and Weir in this process, a real Envoy beside
// it, all on free ports of 127.0.0.1. Everything a request leaves behind can be looked at from
// here: settlement records, the desk's counts, the workers' own counters, Envoy's access log.

import { App } from "../../extproc/app.js";
import type { WeirConfig } from "../../extproc/core/model/config.js";
import { sumOf } from "../../extproc/core/scheduler/admission.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { bootstrapYaml } from "../../extproc/edge/envoy/bootstrap.js";
import { now } from "../../extproc/edge/runtime/clock.js";
import { silentLog, type Log } from "../../extproc/edge/telemetry/log.js";
import type { MockWorkerOptions } from "../../envoy/mock-worker/options.js";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import { configYaml, testConfig, type ConfigSketch } from "./config.js";
import { startEnvoy, type EnvoyOptions, type EnvoyProcess } from "./envoy.js";
import { freePorts } from "./ports.js";

export interface StackOptions {
  /** Mock workers; cluster worker_1 belongs to the first. */
  readonly workers?: number;
  readonly mock?: Partial<MockWorkerOptions>;
  /** Sections of weir.yaml that replace the defaults; `workers` and the addresses are filled in. */
  readonly config?: ConfigSketch;
  readonly envoy?: EnvoyOptions;
  /** Changes the bootstrap text before Envoy gets it. */
  readonly bootstrap?: (yaml: string) => string;
  /** Where Weir's log goes; nobody reads it when absent. */
  readonly log?: Log;
  /** Leave Weir to the test (its process is killed or stopped there). */
  readonly withoutWeir?: boolean;
}

const SETTLE_LIMIT_MS = 10_000;
const POLL_MS = 10;

/** Zeros everywhere: no slot, no waiter, no live request, no live load. */
export const NOTHING_HELD = { inFlight: 0, load: 0, live: 0, queued: 0 };

export class Stack {
  readonly config: WeirConfig;
  /** The text of weir.yaml, for a Weir in a process of its own. */
  readonly yaml: string;
  readonly app: App;
  readonly envoy: EnvoyProcess;
  readonly workers: readonly MockWorker[];
  readonly settled: SettlementRecord[];
  readonly #appStarted: boolean;

  constructor(parts: {
    readonly config: WeirConfig;
    readonly yaml: string;
    readonly app: App;
    readonly envoy: EnvoyProcess;
    readonly workers: readonly MockWorker[];
    readonly settled: SettlementRecord[];
    readonly appStarted: boolean;
  }) {
    this.config = parts.config;
    this.yaml = parts.yaml;
    this.app = parts.app;
    this.envoy = parts.envoy;
    this.workers = parts.workers;
    this.settled = parts.settled;
    this.#appStarted = parts.appStarted;
  }

  /** Envoy's port for clients. */
  get port(): number {
    return this.config.envoy.port;
  }

  /** What Weir holds now. */
  held(): Record<string, number> {
    let inFlight = 0;
    let load = 0;
    for (const view of this.app.desk.partitions(now())) inFlight += sumOf(view.in_flight);
    for (const worker of this.app.workers.all()) load += worker.runtime.liveLoad;
    return { inFlight, load, ...this.app.desk.counts };
  }

  /** Waits until a condition holds, and fails with `what` when it does not in time. */
  async until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = Date.now() + SETTLE_LIMIT_MS;
    while (!(await holds())) {
      if (Date.now() > deadline) throw new Error(`not reached within 10 s: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Waits for this many settlement records since the start of the stack, or since `clear`. */
  async settlements(count: number): Promise<readonly SettlementRecord[]> {
    await this.until(
      `${String(count)} settlements (there are ${String(this.settled.length)})`,
      () => this.settled.length >= count,
    );
    return this.settled;
  }

  /** Waits until Weir holds nothing any more. */
  async idle(): Promise<void> {
    await this.until("nothing held", () => Object.values(this.held()).every((held) => held === 0));
  }

  /** Forgets settlement records, so that a test counts its own. */
  clear(): void {
    this.settled.length = 0;
  }

  async stop(): Promise<void> {
    await this.envoy.stop();
    if (this.#appStarted) await this.app.stop();
    await Promise.all(this.workers.map((worker) => worker.close(0)));
  }
}

/** Starts everything and waits until a request can be served. */
export async function startStack(options: StackOptions = {}): Promise<Stack> {
  const workers = await Promise.all(
    Array.from({ length: options.workers ?? 2 }, () =>
      startMockWorker({ port: 0, ...options.mock }),
    ),
  );
  const ports = await freePorts(4);
  const [envoyPort, envoyAdmin = 0, weirAdmin = 0, extProc = 0] = ports;
  const sketch = options.config ?? {};
  const section = (name: string): object => sketch[name] ?? {};
  const filled: ConfigSketch = {
    scheduler: { max_concurrent_requests: 64, queue_size: 5_000, queue_timeout_secs: 30 },
    ...sketch,
    listen: { ext_proc: `127.0.0.1:${String(extProc)}`, ...section("listen") },
    admin: { listen: `127.0.0.1:${String(weirAdmin)}`, ...section("admin") },
    envoy: { port: envoyPort, admin_port: envoyAdmin, ...section("envoy") },
    workers:
      sketch["workers"] ??
      workers.map((worker, index) => ({
        url: worker.url,
        cluster: `worker_${String(index + 1)}`,
        models: ["demo"],
      })),
  };
  const config = testConfig(filled);
  const settled: SettlementRecord[] = [];
  const app = new App({
    config,
    log: options.log ?? silentLog(),
    seed: 1,
    startTimeSeconds: 0,
    onSettled: (record) => {
      settled.push(record);
    },
  });
  const appStarted = options.withoutWeir !== true;
  if (appStarted) await app.start();
  const bootstrap = bootstrapYaml(config);
  const envoy = await startEnvoy(options.bootstrap?.(bootstrap) ?? bootstrap, options.envoy);
  const yaml = configYaml(filled);
  const stack = new Stack({ config, yaml, app, envoy, workers, settled, appStarted });
  if (appStarted) await stack.until("Weir is ready", () => app.ready);
  return stack;
}

/** A chat request for the demo model, as JSON text. */
export function chatBody(over: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({
    model: "demo",
    messages: [{ role: "user", content: "hello" }],
    max_tokens: 5,
    ...over,
  });
}

export const JSON_HEADERS = [["content-type", "application/json"]] as const;

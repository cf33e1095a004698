// Workers in the dress of an engine behind Envoy and Weir, asked for their load every second, and what
// Weir says of them on /state/admission. Clients that always come again count what they got; how full
// the engines are is read from the engines, so that Weir is judged from outside.

import { Agent } from "node:http";
import { expect } from "chai";
import type { DecisionReason } from "../../extproc/core/capacity/feedback-decision.js";
import type { Log } from "../../extproc/edge/telemetry/log.js";
import type { Faults } from "../../envoy/mock-worker/faults.js";
import type { MockWorkerOptions } from "../../envoy/mock-worker/options.js";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import { Chance } from "../sim/chance.js";
import { plainClasses, type ConfigSketch } from "./config.js";
import { open, request, type OpenRequest } from "./http-client.js";
import { PATIENT_MS } from "./slots.js";
import { chatBody, JSON_HEADERS, startStack, type Stack } from "./stack.js";

export interface EngineSketch {
  /** What it speaks, and what Weir is told that it speaks. */
  readonly engine: MockWorkerOptions["engine"];
  readonly mock?: Partial<MockWorkerOptions>;
  readonly faults?: Faults;
  /** Further keys of the worker in weir.yaml. */
  readonly config?: ConfigSketch;
}

export interface FleetSketch {
  readonly engines: readonly EngineSketch[];
  /** Slots of each partition by configuration; a partition has the name of its model. */
  readonly slots: Readonly<Record<string, number>>;
  readonly adaptive: ConfigSketch;
  readonly adaptiveCapacity?: boolean;
  readonly config?: ConfigSketch;
  readonly log?: Log;
  readonly withoutWeir?: boolean;
}

export interface Fleet {
  readonly stack: Stack;
  readonly workers: readonly MockWorker[];
  readonly stop: () => Promise<void>;
}

/** Starts engines, Weir and Envoy. Every class is patient, and the queues hold whoever comes. */
export async function startFleet(sketch: FleetSketch): Promise<Fleet> {
  const { engines, slots, adaptive, adaptiveCapacity } = sketch;
  const workers = await Promise.all(
    engines.map(({ engine, mock }) => startMockWorker({ port: 0, engine, ...mock })),
  );
  for (const [index, worker] of workers.entries()) worker.setFaults(engines[index]?.faults ?? {});
  const partitions = Object.entries(slots).map(([name, count]) => [
    name,
    { max_concurrent_requests: count, queue_size: 100 },
  ]);
  const stack = await startStack({
    workers: 0,
    ...(sketch.log === undefined ? {} : { log: sketch.log }),
    ...(sketch.withoutWeir === true ? { withoutWeir: true } : {}),
    config: {
      models: {},
      scheduler: {
        queue_size: 100 * partitions.length,
        default_max_class: "system",
        classes: plainClasses(30),
        admission_partitions: Object.fromEntries(partitions) as ConfigSketch,
        default_admission_partition: Object.keys(slots)[0],
        ...(adaptiveCapacity === undefined ? {} : { adaptive_capacity: adaptiveCapacity }),
      },
      adaptive_admission: { load_monitor_interval_secs: 1, ...adaptive },
      workers: engines.map(({ engine, mock, config }, index) => ({
        url: workers[index]?.url,
        cluster: `worker_${String(index + 1)}`,
        engine,
        models: mock?.models ?? ["demo"],
        ...config,
      })),
      ...sketch.config,
    },
  });
  return {
    stack,
    workers,
    stop: async () => {
      await stack.stop();
      await Promise.all(workers.map((worker) => worker.close(0)));
    },
  };
}

/** What /state/admission shows. */
export interface AdmissionPage {
  readonly mode: string;
  readonly adaptive_capacity: boolean;
  readonly revision: number;
  readonly partitions: readonly PartitionState[];
  readonly workers: readonly (Readonly<Record<string, unknown>> & { readonly url: string })[];
}

export interface PartitionState {
  readonly partition: string;
  readonly slots: Readonly<Record<"static" | "adaptive" | "orphans" | "granted", number | null>>;
  readonly outstanding: number;
  readonly decisions: Readonly<Record<DecisionReason, number>>;
  readonly last_reason: DecisionReason | null;
  readonly engines: Readonly<Record<string, number | null>>;
  readonly learned: Readonly<Record<string, unknown>>;
  readonly limits: Readonly<Record<string, unknown>>;
}

/** A page of Weir's admin server, also of a Weir in a process of its own. */
export async function adminText(stack: Stack, path: string): Promise<string> {
  const { listen } = stack.config.admin;
  if (listen.kind !== "tcp") throw new Error("the admin server is not on TCP");
  return (await request({ port: listen.port, path })).body.toString("utf8");
}

export async function admissionOf(stack: Stack): Promise<AdmissionPage> {
  return JSON.parse(await adminText(stack, "/state/admission")) as AdmissionPage;
}

export async function partitionOf(stack: Stack, name = "demo"): Promise<PartitionState> {
  const { partitions } = await admissionOf(stack);
  const state = partitions.find(({ partition }) => partition === name);
  if (state === undefined) throw new Error(`no partition ${name} on /state/admission`);
  return state;
}

/** Waits until the page says of a partition what is wanted. */
export async function untilPartition(
  stack: Stack,
  what: string,
  holds: (state: PartitionState) => boolean,
  name = "demo",
): Promise<PartitionState> {
  let last: PartitionState | undefined;
  await stack.until(what, async () => {
    const { partitions } = await admissionOf(stack);
    last = partitions.find(({ partition }) => partition === name);
    return last !== undefined && "limits" in last && holds(last);
  });
  if (last === undefined) throw new Error(`no partition ${name}`);
  return last;
}

/** What the engines themselves say over a stretch of time. */
export interface Stretch {
  /** Requests in an engine's own queue, mean over time and engines. */
  readonly waiting: number;
  /** Tokens all engines generated per second. */
  readonly tokensPerSecond: number;
}

const LOOK_EVERY_MS = 50;

/** Looks at the engines for this long. */
export async function watchEngines(
  workers: readonly MockWorker[],
  lengthMs: number,
): Promise<Stretch> {
  const tokens = (): number =>
    workers.reduce((sum, worker) => sum + worker.state().tokens.completion, 0);
  const startedAt = performance.now();
  const before = tokens();
  let looks = 0;
  let waiting = 0;
  while (performance.now() - startedAt < lengthMs) {
    await new Promise((done) => setTimeout(done, LOOK_EVERY_MS));
    looks += workers.length;
    for (const worker of workers) waiting += worker.state().waiting;
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  return { waiting: waiting / looks, tokensPerSecond: (tokens() - before) / seconds };
}

/** So many clients, each of which sends its next request when an answer has come. */
export class ReturningClients {
  /** Answers by status. */
  readonly statuses = new Map<number, number>();
  readonly #stack: Stack;
  readonly #tokens: readonly [low: number, high: number];
  readonly #chance: Chance;
  readonly #agent: Agent;
  readonly #open = new Set<OpenRequest>();
  readonly #clients: Promise<void>[];
  #stopped = false;

  constructor(stack: Stack, clients: number, tokens: readonly [low: number, high: number]) {
    this.#stack = stack;
    this.#tokens = tokens;
    this.#chance = new Chance(1);
    this.#agent = new Agent({ keepAlive: true, maxSockets: clients });
    this.#clients = Array.from({ length: clients }, () => this.#run());
  }

  /** Sends nothing more and leaves, whatever is under way. */
  async leave(): Promise<void> {
    this.#stopped = true;
    for (const opened of this.#open) opened.abort();
    await Promise.all(this.#clients);
    this.#agent.destroy();
  }

  /** Everybody was served. */
  expectServed(): void {
    expect([...this.statuses.keys()]).to.deep.equal([200]);
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const opened = open({
        port: this.#stack.port,
        method: "POST",
        path: "/v1/chat/completions",
        headers: JSON_HEADERS,
        agent: this.#agent,
        limitMs: PATIENT_MS,
      });
      opened.write(chatBody({ max_tokens: this.#chance.whole(...this.#tokens), ignore_eos: true }));
      opened.end();
      this.#open.add(opened);
      const { status, aborted } = await opened.answer;
      this.#open.delete(opened);
      if (!aborted) this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    }
  }
}

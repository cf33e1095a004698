// CPU per request and latency of plain Envoy and of Envoy with Weir, as ratios within one run, and
// Weir's own CPU with its codec against the same session over proto-loader's.

import type { EnvoyProcess } from "../support/envoy.js";
import { measure, median, type Measured } from "./measure.js";
import type { Print } from "./print.js";
import { Processes, type CodecName, type Gateway } from "./processes.js";

const CONNECTIONS = 64;
const SSE_TOKENS = 32;

const micros = (value: number): string => `${value.toFixed(0)} us`;
const ratio = (value: number): string => `${value.toFixed(2)}x`;

/** A chat request whose body has this many bytes. */
export function chat(bytes: number, over: object = {}): string {
  const frame = {
    model: "demo",
    max_tokens: 16,
    messages: [{ role: "user", content: "" }],
    ...over,
  };
  const pad = Math.max(0, bytes - JSON.stringify(frame).length);
  frame.messages = [{ role: "user", content: "word ".repeat(Math.ceil(pad / 5)).slice(0, pad) }];
  return JSON.stringify(frame);
}

/** A worker, Envoy alone, and per codec an Envoy with its Weir. */
interface Site {
  readonly plain: EnvoyProcess;
  readonly withWeir: Readonly<Record<CodecName, Gateway>>;
}

async function startSite(processes: Processes): Promise<Site> {
  const { url } = await processes.worker(512);
  const sketch = {
    workers: [{ url, cluster: "worker_1", models: ["demo"] }],
    scheduler: { max_concurrent_requests: 1_000, queue_size: 1_000 },
  };
  const wire = await processes.gateway(sketch, "wire");
  const protoLoader = await processes.gateway(sketch, "proto-loader");
  const plain = await processes.plainEnvoy(sketch);
  return { plain, withWeir: { wire, "proto-loader": protoLoader } };
}

interface Workload {
  readonly title: string;
  readonly body: string;
}

const WORKLOADS: readonly Workload[] = [
  { title: "JSON 1 kB", body: chat(1_024) },
  { title: "JSON 32 kB", body: chat(32_768) },
  {
    title: `SSE, ${String(SSE_TOKENS)} tokens`,
    body: chat(1_024, {
      stream: true,
      max_tokens: SSE_TOKENS,
      ignore_eos: true,
      stream_options: { include_usage: true },
    }),
  },
];

/** How long and how often is measured. */
interface Pace {
  /** Odd, so that a median is a run. */
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
}

const FULL: Pace = { rounds: 5, seconds: 4, warmUpSeconds: 2 };
const SMOKE: Pace = { rounds: 1, seconds: 1, warmUpSeconds: 0 };

class Comparison {
  readonly #site: Site;
  readonly #pace: Pace;
  readonly #print: Print;

  constructor(site: Site, pace: Pace, print: Print) {
    this.#site = site;
    this.#pace = pace;
    this.#print = print;
  }

  async withPlain({ title, body }: Workload): Promise<void> {
    const { envoy, weir } = this.#site.withWeir.wire;
    const plain = await this.#run(this.#site.plain.port, [this.#site.plain.process.pid], body);
    const both = await this.#run(envoy.port, [envoy.process.pid, weir.pid], body);
    const plainCpu = plain.cpuPerRequest[0] ?? 0;
    const [envoyCpu = 0, weirCpu = 0] = both.cpuPerRequest;
    this.#print(`${title}, ${String(CONNECTIONS)} connections`);
    this.#print(
      `  Envoy alone   ${micros(plainCpu)}/request  p50 ${String(plain.p50Ms)} ms  ` +
        `p99 ${String(plain.p99Ms)} ms  ${String(plain.errors)} errors`,
    );
    this.#print(
      `  Envoy + Weir  ${micros(envoyCpu)} + ${micros(weirCpu)}/request  p50 ${String(both.p50Ms)} ms  ` +
        `p99 ${String(both.p99Ms)} ms  ${String(both.errors)} errors`,
    );
    this.#print(
      `  ratio         CPU ${ratio((envoyCpu + weirCpu) / plainCpu)}  p50 ${ratio(both.p50Ms / plain.p50Ms)}  ` +
        `p99 ${ratio(both.p99Ms / plain.p99Ms)}`,
    );
  }

  async codecs(): Promise<void> {
    const body = chat(1_024);
    const ratios: number[] = [];
    const cpu: Record<CodecName, number[]> = { wire: [], "proto-loader": [] };
    for (let round = 0; round < this.#pace.rounds; round += 1) {
      for (const codec of ["wire", "proto-loader"] as const) {
        const { envoy, weir } = this.#site.withWeir[codec];
        const { cpuPerRequest } = await this.#run(envoy.port, [weir.pid], body);
        cpu[codec].push(cpuPerRequest[0] ?? 0);
      }
      ratios.push((cpu.wire.at(-1) ?? 0) / (cpu["proto-loader"].at(-1) ?? 1));
    }
    this.#print(
      `Weir's own CPU per request, JSON 1 kB, ${String(this.#pace.rounds)} alternating rounds`,
    );
    this.#print(`  own codec     ${micros(median(cpu.wire))} (median)`);
    this.#print(`  proto-loader  ${micros(median(cpu["proto-loader"]))} (median)`);
    this.#print(
      `  ratio         ${ratio(median(ratios))} (median; each: ${ratios.map(ratio).join(", ")})`,
    );
  }

  #run(port: number, pids: readonly number[], body: string): Promise<Measured> {
    const { seconds, warmUpSeconds } = this.#pace;
    return measure({ port, body, connections: CONNECTIONS, seconds }, pids, warmUpSeconds);
  }
}

export async function benchGateway(print: Print, smoke: boolean): Promise<void> {
  const processes = new Processes();
  try {
    const comparison = new Comparison(await startSite(processes), smoke ? SMOKE : FULL, print);
    for (const workload of WORKLOADS) await comparison.withPlain(workload);
    await comparison.codecs();
  } finally {
    await processes.stop();
  }
}

// The benchmarks: CPU per request and latency of plain Envoy and of Envoy with Weir, as ratios within
// one run, and Weir's own CPU with its codec against the same session over proto-loader's. Figures
// of one machine say little; the ratios are what to read. Nothing here asserts a bar.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bootstrapYaml } from "../../extproc/edge/envoy/bootstrap.js";
import { configYaml, testConfig } from "../support/config.js";
import { startEnvoy, type EnvoyProcess } from "../support/envoy.js";
import { freePorts } from "../support/ports.js";
import { startProcess, type RunningProcess } from "../support/process.js";
import { measure, median, type Measured } from "./measure.js";
import { plainBootstrap } from "./plain-bootstrap.js";
import { benchScheduler } from "./scheduler.js";

const { values: flags } = parseArgs({
  options: {
    smoke: { type: "boolean", default: false },
    peers: { type: "boolean", default: false },
  },
});
const smoke = flags.smoke;
/** Odd, so that a median is a run. */
const ROUNDS = smoke ? 1 : 5;
const SECONDS = smoke ? 1 : 4;
const WARM_UP_SECONDS = smoke ? 0 : 2;
const CONNECTIONS = 64;
const SSE_TOKENS = 32;

const print = (line = ""): void => {
  process.stdout.write(`${line}\n`);
};

function chat(bytes: number, over: object = {}): string {
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

type CodecName = "wire" | "proto-loader";

/** The processes of the benchmark: a worker, Envoy alone, and per codec an Envoy with its Weir. */
class Site {
  readonly plain: EnvoyProcess;
  readonly withWeir: Readonly<Record<CodecName, { envoy: EnvoyProcess; weir: RunningProcess }>>;
  readonly #stops: (() => Promise<unknown>)[];

  constructor(
    plain: EnvoyProcess,
    withWeir: Readonly<Record<CodecName, { envoy: EnvoyProcess; weir: RunningProcess }>>,
    stops: (() => Promise<unknown>)[],
  ) {
    this.plain = plain;
    this.withWeir = withWeir;
    this.#stops = stops;
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops) await stop();
  }
}

async function startWorker(): Promise<{ worker: RunningProcess; url: string }> {
  const worker = startProcess(
    process.execPath,
    ["--import", "tsx", "envoy/mock-worker/main.ts", "--port", "0", "--slots", "512"],
    { name: "mock worker" },
  );
  const [url] = await worker.waitForOutput(/http:\/\/127\.0\.0\.1:\d+/);
  return { worker, url };
}

async function startSite(folder: string): Promise<Site> {
  const { worker, url } = await startWorker();
  const stops: (() => Promise<unknown>)[] = [() => worker.stop()];
  const sketch = (ports: readonly number[]): object => ({
    listen: { ext_proc: `127.0.0.1:${String(ports[0])}` },
    admin: { listen: `127.0.0.1:${String(ports[1])}` },
    envoy: { port: ports[2], admin_port: ports[3] },
    workers: [{ url, cluster: "worker_1", models: ["demo"] }],
    scheduler: { max_concurrent_requests: 1_000, queue_size: 1_000 },
  });
  const start = async (
    codec: CodecName,
  ): Promise<{ envoy: EnvoyProcess; weir: RunningProcess }> => {
    const over = { ...sketch(await freePorts(4)) };
    const file = join(folder, `${codec}.yaml`);
    writeFileSync(file, configYaml(over));
    const weir = startProcess(
      process.execPath,
      ["--import", "tsx", "test/bench/serve.ts", file, codec],
      { name: `weir (${codec})` },
    );
    stops.unshift(() => weir.stop());
    await weir.waitForOutput(/serving/);
    const envoy = await startEnvoy(bootstrapYaml(testConfig(over)));
    stops.unshift(() => envoy.stop());
    return { envoy, weir };
  };
  const wire = await start("wire");
  const protoLoader = await start("proto-loader");
  const plainConfig = testConfig({ ...sketch(await freePorts(4)) });
  const plain = await startEnvoy(plainBootstrap(bootstrapYaml(plainConfig)));
  stops.unshift(() => plain.stop());
  return new Site(plain, { wire, "proto-loader": protoLoader }, stops);
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

const run = (port: number, pids: readonly number[], body: string): Promise<Measured> =>
  measure({ port, body, connections: CONNECTIONS, seconds: SECONDS }, pids, WARM_UP_SECONDS);

const micros = (value: number): string => `${value.toFixed(0)} us`;
const ratio = (value: number): string => `${value.toFixed(2)}x`;

async function compareWithPlain(site: Site, { title, body }: Workload): Promise<void> {
  const { envoy, weir } = site.withWeir.wire;
  const plain = await run(site.plain.port, [site.plain.process.pid], body);
  const both = await run(envoy.port, [envoy.process.pid, weir.pid], body);
  const plainCpu = plain.cpuPerRequest[0] ?? 0;
  const [envoyCpu = 0, weirCpu = 0] = both.cpuPerRequest;
  print(`${title}, ${String(CONNECTIONS)} connections`);
  print(
    `  Envoy alone   ${micros(plainCpu)}/request  p50 ${String(plain.p50Ms)} ms  ` +
      `p99 ${String(plain.p99Ms)} ms  ${String(plain.errors)} errors`,
  );
  print(
    `  Envoy + Weir  ${micros(envoyCpu)} + ${micros(weirCpu)}/request  p50 ${String(both.p50Ms)} ms  ` +
      `p99 ${String(both.p99Ms)} ms  ${String(both.errors)} errors`,
  );
  print(
    `  ratio         CPU ${ratio((envoyCpu + weirCpu) / plainCpu)}  p50 ${ratio(both.p50Ms / plain.p50Ms)}  ` +
      `p99 ${ratio(both.p99Ms / plain.p99Ms)}`,
  );
}

async function compareCodecs(site: Site): Promise<void> {
  const body = chat(1_024);
  const ratios: number[] = [];
  const cpu: Record<CodecName, number[]> = { wire: [], "proto-loader": [] };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const codec of ["wire", "proto-loader"] as const) {
      const { envoy, weir } = site.withWeir[codec];
      const { cpuPerRequest } = await run(envoy.port, [weir.pid], body);
      cpu[codec].push(cpuPerRequest[0] ?? 0);
    }
    ratios.push((cpu.wire.at(-1) ?? 0) / (cpu["proto-loader"].at(-1) ?? 1));
  }
  print(`Weir's own CPU per request, JSON 1 kB, ${String(ROUNDS)} alternating rounds`);
  print(`  own codec     ${micros(median(cpu.wire))} (median)`);
  print(`  proto-loader  ${micros(median(cpu["proto-loader"]))} (median)`);
  print(`  ratio         ${ratio(median(ratios))} (median; each: ${ratios.map(ratio).join(", ")})`);
}

async function main(): Promise<void> {
  if (flags.peers) print("No peers are measured in this version.");
  print(`node ${process.version}, ${String(cpus().length)} x ${cpus()[0]?.model ?? "unknown CPU"}`);
  const folder = mkdtempSync(join(tmpdir(), "weir-bench-"));
  const site = await startSite(folder);
  try {
    for (const workload of WORKLOADS) await compareWithPlain(site, workload);
    await compareCodecs(site);
    benchScheduler(print, smoke);
  } finally {
    await site.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();

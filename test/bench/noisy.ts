// The noisy neighbour: three tenants of equal weight with 64, 16 and 2 connections on two workers of
// eight slots, each request a tenth of a second of work, all of them in closed loops. Sixteen slots do
// 160 requests a second. The small tenant can use no more than 20 of them, so the two large ones are
// due 70 each. Without fair sharing, whoever has more connections gets more. Printed with Weir and,
// beside it, for the same Envoy and workers without Weir.
//
// The load goes on from the warm-up into the measurement: clients that broke off in between would have
// been charged estimates of 256 tokens, and these answers have one token, so that the debts would last
// for the whole measurement.

import { request } from "../support/http-client.js";
import { ClosedLoop, postBytes } from "./closed-loop.js";
import { median } from "./measure.js";
import type { Print } from "./print.js";
import { Processes, type WorkerProcess } from "./processes.js";

const WORKERS = 2;
const SLOTS_EACH = 8;
const SERVICE_MS = 100;
/** Requests per second of all slots, when none is ever empty. */
const CAPACITY = (WORKERS * SLOTS_EACH * 1_000) / SERVICE_MS;
const TENANTS = [
  { tenant: "large", connections: 64 },
  { tenant: "middle", connections: 16 },
  { tenant: "small", connections: 2 },
] as const;

/** Difference of the two large tenants, as a part of the larger. */
const LARGE_GAP_MAX = 0.03;
/** Of 20: a request that waits for a slot waits for a sixteenth of the service time on average. */
const SMALL_PER_SECOND_MIN = 15.5;
const SMALL_P50_MAX_MS = 115;
const CAPACITY_SHARE_MIN = 0.97;

const BODY = JSON.stringify({
  model: "demo",
  max_tokens: 1,
  messages: [{ role: "user", content: "hello" }],
});

interface Pace {
  readonly seconds: number;
  readonly warmUpSeconds: number;
}

/**
 * At 160 requests a second the code of Weir and of the workers is compiled for speed only after some
 * 2,000 requests. Which slots end together drifts over seconds, and the small tenant's waiting with it.
 */
const FULL: Pace = { seconds: 30, warmUpSeconds: 15 };
const SMOKE: Pace = { seconds: 1, warmUpSeconds: 1 };

/** A worker whose requests all take the same time, whatever they ask for. */
async function fixedWorker(processes: Processes): Promise<WorkerProcess> {
  const worker = await processes.worker(SLOTS_EACH);
  const port = Number(new URL(worker.url).port);
  const body = JSON.stringify({ delay_ms: SERVICE_MS });
  const { status } = await request({ port, path: "/mock/faults", body });
  if (status !== 200) throw new Error(`the mock worker answered ${String(status)}`);
  return worker;
}

interface TenantResult {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly errors: number;
}

/** A tenant's connections, each in a closed loop from the start until `stop`. */
class TenantLoop {
  readonly #loops: readonly ClosedLoop[];
  #latenciesMs: number[] = [];
  #errors = 0;

  constructor(port: number, { tenant, connections }: (typeof TENANTS)[number]) {
    const bytes = postBytes("/v1/chat/completions", [["x-weir-tenant-id", tenant]], BODY);
    this.#loops = Array.from(
      { length: connections },
      () =>
        new ClosedLoop(port, bytes, ({ status, ms }) => {
          if (status === 200) this.#latenciesMs.push(ms);
          else this.#errors += 1;
        }),
    );
  }

  /** Forgets what was counted so far. */
  begin(): void {
    this.#latenciesMs = [];
    this.#errors = 0;
  }

  result(seconds: number): TenantResult {
    return {
      requestsPerSecond: this.#latenciesMs.length / seconds,
      p50Ms: median(this.#latenciesMs),
      errors: this.#errors,
    };
  }

  /** Waits for the answers that are under way. */
  async stop(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }
}

const sleep = (seconds: number): Promise<void> =>
  new Promise((done) => setTimeout(done, seconds * 1_000));

/** All tenants at once; their results in the order of TENANTS. */
async function measured(port: number, pace: Pace): Promise<readonly TenantResult[]> {
  const loops = TENANTS.map((tenant) => new TenantLoop(port, tenant));
  await sleep(pace.warmUpSeconds);
  for (const loop of loops) loop.begin();
  const startedAt = performance.now();
  await sleep(pace.seconds);
  const seconds = (performance.now() - startedAt) / 1_000;
  const results = loops.map((loop) => loop.result(seconds));
  await Promise.all(loops.map((loop) => loop.stop()));
  return results;
}

const sumOf = (results: readonly TenantResult[]): number =>
  results.reduce((sum, { requestsPerSecond }) => sum + requestsPerSecond, 0);

function printTenants(print: Print, title: string, results: readonly TenantResult[]): void {
  print(`  ${title}`);
  for (const [index, { tenant, connections }] of TENANTS.entries()) {
    const { requestsPerSecond = 0, p50Ms = 0, errors = 0 } = results[index] ?? {};
    print(
      `    ${tenant.padEnd(6)} ${String(connections).padStart(2)} connections  ` +
        `${requestsPerSecond.toFixed(1).padStart(5)} requests/s  p50 ${p50Ms.toFixed(1)} ms  ` +
        `errors ${String(errors)}`,
    );
  }
  const together = sumOf(results);
  const share = (100 * together) / CAPACITY;
  const emptyMs = (WORKERS * SLOTS_EACH * 1_000) / together - SERVICE_MS;
  print(
    `    together ${together.toFixed(1)} of ${String(CAPACITY)}: ${share.toFixed(1)} %; ` +
      `a slot is empty for ${emptyMs.toFixed(1)} ms between two requests`,
  );
}

function printBars(print: Print, results: readonly TenantResult[]): void {
  const [large = 0, middle = 0, small = 0] = results.map((result) => result.requestsPerSecond);
  const p50Ms = results[2]?.p50Ms ?? Number.POSITIVE_INFINITY;
  const gap = Math.abs(large - middle) / Math.max(large, middle);
  const share = sumOf(results) / CAPACITY;
  const bars: readonly (readonly [title: string, met: boolean])[] = [
    [`large and middle within 3 % (${(100 * gap).toFixed(1)} %)`, gap <= LARGE_GAP_MAX],
    [
      `small at least ${String(SMALL_PER_SECOND_MIN)} requests/s (${small.toFixed(1)})`,
      small >= SMALL_PER_SECOND_MIN,
    ],
    [
      `small p50 at most ${String(SMALL_P50_MAX_MS)} ms (${p50Ms.toFixed(1)})`,
      p50Ms <= SMALL_P50_MAX_MS,
    ],
    [
      `together at least 97 % of capacity (${(100 * share).toFixed(1)} %)`,
      share >= CAPACITY_SHARE_MIN,
    ],
  ];
  for (const [title, met] of bars) print(`    ${met ? "PASS" : "MISS"}  ${title}`);
}

export async function benchNoisy(print: Print, smoke: boolean): Promise<void> {
  const pace = smoke ? SMOKE : FULL;
  const processes = new Processes();
  try {
    const workers: WorkerProcess[] = [];
    while (workers.length < WORKERS) workers.push(await fixedWorker(processes));
    const sketch = {
      workers: workers.map(({ url }, index) => ({
        url,
        cluster: `worker_${String(index + 1)}`,
        models: ["demo"],
      })),
      trust: { tenant_id: true, peers: ["127.0.0.1"] },
      scheduler: { max_concurrent_requests: WORKERS * SLOTS_EACH, queue_size: 100 },
    };
    print(
      `Noisy neighbour: ${String(WORKERS)} workers x ${String(SLOTS_EACH)} slots x ` +
        `${String(SERVICE_MS)} ms, equal weights, due 70, 70 and 20 requests/s`,
    );
    const { envoy } = await processes.gateway(sketch);
    const withWeir = await measured(envoy.port, pace);
    printTenants(print, "Envoy + Weir", withWeir);
    printBars(print, withWeir);
    const plain = await processes.plainEnvoy(sketch);
    printTenants(print, "Envoy alone", await measured(plain.port, pace));
  } finally {
    await processes.stop();
  }
}

// What choosing by fair shares costs as tenants grow: with a given number of tenants waiting, the one
// that is due is chosen and booked, a running request is settled, and a new one enters for the tenant
// just served. Printed as time per such round and as a ratio to ten tenants; a structure that scans
// its tenants, or its waiters, would show the ratio of their numbers.

import { GLOBAL_PARTITION } from "../../extproc/core/model/config.js";
import { createRng, type Rng } from "../../extproc/core/model/rng.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { Permit } from "../../extproc/core/scheduler/permit.js";
import { Scheduler } from "../../extproc/core/scheduler/scheduler.js";
import { fairQueueing } from "../support/fair.js";
import { ask, settings } from "../support/scheduler.js";
import type { Print } from "./print.js";

const SLOTS = 16;
/** Output tokens of a request, drawn below this; the estimate lies in the middle. */
const TOKENS_BELOW = 512;
const ESTIMATE_TOKENS = 256;

interface Running {
  readonly tenant: number;
  readonly permit: Permit;
}

class Load {
  readonly #scheduler: Scheduler<number>;
  readonly #running: Running[] = [];
  readonly #rng: Rng = createRng(1);
  #now = 0;

  constructor(tenants: number, waitersEach: number) {
    const waiters = tenants * waitersEach;
    const queueSize = waiters + SLOTS;
    this.#scheduler = new Scheduler<number>(
      [settings({ capacity: SLOTS, queueSize, queueTimeoutSecs: 1_000_000 })],
      new Map([[GLOBAL_PARTITION, SLOTS]]),
      fairQueueing({ maxQueuedPerTenant: waitersEach + SLOTS, maxTracked: tenants + SLOTS }),
      {
        onGranted: (tenant, permit) => {
          this.#running.push({ tenant, permit });
        },
        onTimedOut: () => undefined,
        onDisplaced: () => undefined,
        onPreempted: () => undefined,
        onWake: () => undefined,
      },
      monotonicMs(0),
    );
    for (let slot = 0; slot < SLOTS; slot += 1) this.#arrive(slot % tenants);
    for (let index = 0; index < waiters; index += 1) this.#arrive(index % tenants);
  }

  /** One running request is settled, the next tenant is served, and its tenant comes again. */
  round(): void {
    this.#now += 0.01;
    const at = this.#rng.below(this.#running.length);
    const ended = this.#running[at];
    const last = this.#running.pop();
    if (ended === undefined || last === undefined) throw new Error("nothing runs");
    if (last !== ended) this.#running[at] = last;
    const tokens = this.#rng.below(TOKENS_BELOW);
    ended.permit.settle({ tokens, clockTokens: Math.max(1, tokens) });
    ended.permit.release();
    this.#scheduler.dispatch(monotonicMs(this.#now));
    const served = this.#running.at(-1);
    if (served === undefined) throw new Error("a free slot was not used");
    this.#arrive(served.tenant);
  }

  #arrive(tenant: number): void {
    const share = { tenant: `header:tenant-${String(tenant)}`, estimateTokens: ESTIMATE_TOKENS };
    const request = ask(tenant, 1, GLOBAL_PARTITION, share);
    const admission = this.#scheduler.admit(request, monotonicMs(this.#now));
    if (admission.kind === "granted") this.#running.push({ tenant, permit: admission.permit });
    if (admission.kind === "queue_full") throw new Error("the queue is too small");
  }
}

/** Microseconds per round, after as many rounds of warm-up. */
function measure(tenants: number, waitersEach: number, rounds: number): number {
  const load = new Load(tenants, waitersEach);
  for (let index = 0; index < rounds; index += 1) load.round();
  const start = process.hrtime.bigint();
  for (let index = 0; index < rounds; index += 1) load.round();
  return Number(process.hrtime.bigint() - start) / 1_000 / rounds;
}

export function benchFairShare(print: Print, smoke: boolean): void {
  const rounds = smoke ? 2_000 : 100_000;
  print("Fair sharing: a request is settled, the next tenant is chosen and booked, one arrives");
  const cases = [
    { tenants: 10, waitersEach: 1 },
    { tenants: 1_000, waitersEach: 1 },
    { tenants: 100_000, waitersEach: 1 },
    { tenants: 1_000, waitersEach: 64 },
  ];
  let first: number | undefined;
  for (const { tenants, waitersEach } of cases) {
    const micros = measure(tenants, waitersEach, rounds);
    first ??= micros;
    const title = `${tenants.toLocaleString("en")} tenants x ${String(waitersEach)} queued`;
    print(`  ${title.padEnd(42)} ${micros.toFixed(2)} us  ratio ${(micros / first).toFixed(2)}x`);
  }
}

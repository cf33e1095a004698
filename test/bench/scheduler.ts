// What a decision of the scheduler costs as its queue grows: with a given number of waiters standing,
// one request ends, the next waiter is served and a new one enters. Printed as time per such round and
// as a ratio to the smallest queue; a structure that scans its waiters would show the ratio of the
// queues.

import { partitionName, type PartitionName } from "../../extproc/core/model/ids.js";
import type { ClassRank } from "../../extproc/core/model/priority.js";
import { createRng, type Rng } from "../../extproc/core/model/rng.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { Permit } from "../../extproc/core/scheduler/permit.js";
import { Scheduler } from "../../extproc/core/scheduler/scheduler.js";
import { ask, settings } from "../support/scheduler.js";
import type { Print } from "./print.js";

/** Slots of each partition. */
const SLOTS = 16;

class Load {
  readonly scheduler: Scheduler<number>;
  readonly #names: readonly PartitionName[];
  readonly #running: Permit[] = [];
  readonly #rng: Rng = createRng(1);
  #now = 0;
  #next = 0;

  constructor(partitions: number, waiters: number) {
    this.#names = Array.from({ length: partitions }, (_, index) =>
      partitionName(`p${String(index)}`),
    );
    this.scheduler = new Scheduler<number>(
      this.#names.map((name) =>
        settings({ name, capacity: SLOTS, queueSize: waiters + 1, queueTimeoutSecs: 1_000_000 }),
      ),
      new Map(this.#names.map((name) => [name, SLOTS])),
      undefined,
      {
        onGranted: (_request, permit) => {
          this.#running.push(permit);
        },
        onTimedOut: () => undefined,
        onDisplaced: () => undefined,
        onPreempted: () => undefined,
        onWake: () => undefined,
      },
      monotonicMs(0),
    );
    for (let index = 0; index < waiters + SLOTS * partitions; index += 1) this.#arrive(index);
  }

  /** One request ends, one waiter is served, one request arrives. */
  round(): void {
    this.#now += 0.01;
    const at = this.#rng.below(this.#running.length);
    const ended = this.#running[at];
    const last = this.#running.pop();
    if (ended === undefined || last === undefined) throw new Error("nothing runs");
    if (last !== ended) this.#running[at] = last;
    ended.release();
    this.scheduler.dispatch(monotonicMs(this.#now));
    this.#arrive(this.#next);
  }

  #arrive(index: number): void {
    const name = this.#names[index % this.#names.length];
    const rank = this.#rng.below(4) as ClassRank;
    this.#next = index + 1;
    if (name === undefined) throw new Error("no partition");
    const admission = this.scheduler.admit(ask(index, rank, name), monotonicMs(this.#now));
    if (admission.kind === "granted") this.#running.push(admission.permit);
  }
}

/** Microseconds per round, after as many rounds of warm-up. */
function measure(partitions: number, waiters: number, rounds: number): number {
  const load = new Load(partitions, waiters);
  for (let index = 0; index < rounds; index += 1) load.round();
  const start = process.hrtime.bigint();
  for (let index = 0; index < rounds; index += 1) load.round();
  return Number(process.hrtime.bigint() - start) / 1_000 / rounds;
}

export function benchScheduler(print: Print, smoke: boolean): void {
  const rounds = smoke ? 2_000 : 100_000;
  print("Scheduler: a request ends, a waiter is served, a request arrives");
  const cases = [
    { title: "1 partition, 1,000 waiters", partitions: 1, waiters: 1_000 },
    { title: "1 partition, 10,000 waiters", partitions: 1, waiters: 10_000 },
    { title: "1 partition, 100,000 waiters", partitions: 1, waiters: 100_000 },
    { title: "64 partitions x 4 classes, 64,000 waiters", partitions: 64, waiters: 64_000 },
  ];
  let first: number | undefined;
  for (const { title, partitions, waiters } of cases) {
    const micros = measure(partitions, waiters, rounds);
    first ??= micros;
    print(`  ${title.padEnd(42)} ${micros.toFixed(2)} us  ratio ${(micros / first).toFixed(2)}x`);
  }
}

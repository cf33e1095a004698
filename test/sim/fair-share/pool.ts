// Partitions on virtual time, mostly one: the real scheduler and ledger, simulated clients in front of
// them and an engine behind that takes the same time for every token. Nothing else is there, so that a million
// requests take seconds, and what is measured is the sharing alone. One seed decides everything.
//
// A client that leaves while it waits is taken out of the queue; in the middle of its answer, it frees
// its slot and is charged as Weir charges a stream that broke off: its estimate, or what passed already
// if that is more. An answer without usage is charged the same way.

import { GLOBAL_PARTITION } from "../../../extproc/core/model/config.js";
import {
  modelId,
  partitionName,
  tenantKey,
  type PartitionName,
} from "../../../extproc/core/model/ids.js";
import { monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import type { Waiter } from "../../../extproc/core/scheduler/admission.js";
import type { Permit } from "../../../extproc/core/scheduler/permit.js";
import { Scheduler } from "../../../extproc/core/scheduler/scheduler.js";
import { fairQueueing } from "../../support/fair.js";
import { settings } from "../../support/scheduler.js";
import { Chance } from "../chance.js";
import { EventQueue, type Planned } from "../event-queue.js";
import { drawTokens, estimateTokens } from "./lengths.js";
import type { PoolPlan, Span, Traffic } from "./pool-plan.js";

/** More than any plan has clients: what a full queue does is not the question here. */
const QUEUE_SIZE = 100_000;
/** Nobody is refused for having waited. */
const PATIENCE_SECS = 100_000_000;
const NEVER_STARVED_SECS = PATIENCE_SECS;

/** What happened to one request of a tenant, by the tenant's index in the plan. */
export interface PoolObserver {
  /** It begins to wait, or no longer waits. */
  readonly waits?: (tenant: number) => void;
  readonly leavesQueue?: (tenant: number) => void;
  /** It runs, and its tenant is booked the estimate. */
  readonly runs?: (tenant: number, estimateTokens: number, waitedMs: number) => void;
  /** It ran and is over. */
  readonly settled?: (tenant: number, run: SettledRun, now: number) => void;
}

export interface SettledRun {
  readonly producedTokens: number;
  readonly chargedTokens: number;
  /** The client was there to the end. */
  readonly whole: boolean;
}

interface Source {
  readonly tenant: number;
  readonly traffic: Traffic;
  /** While its clients are there. */
  readonly span: Span;
}

const ALWAYS: Span = [0, Number.POSITIVE_INFINITY];

/** The slots of one partition, and how many requests wait for them and have them. */
interface Slots {
  readonly count: number;
  waiting: number;
  running: number;
}

interface PoolRequest {
  readonly source: Source;
  readonly slots: Slots;
  readonly tokens: number;
  readonly estimateTokens: number;
  /** Part of its answer that its client waits for; undefined = all of it. */
  readonly leavesAt: number | undefined;
  readonly withoutUsage: boolean;
  readonly askedAt: number;
  waiter: Waiter<PoolRequest> | undefined;
  leave: Planned | undefined;
}

/** A client that leaves while it waits, of all that leave. */
const LEAVES_WAITING = 0.5;
const LEAVES_WAITING_WITHIN_MS = 5_000;

export class Pool {
  readonly plan: PoolPlan;
  readonly #observers: readonly PoolObserver[];
  readonly #chance: Chance;
  readonly #events = new EventQueue();
  readonly #scheduler: Scheduler<PoolRequest>;
  readonly #slots: ReadonlyMap<PartitionName, Slots>;
  readonly #waiting = new Set<PoolRequest>();
  #now: MonotonicMs = monotonicMs(0);
  #settled = 0;
  #names = 0;
  #idleSlotMs = 0;

  constructor(plan: PoolPlan, seed: number, observers: readonly PoolObserver[], fair = true) {
    this.plan = plan;
    this.#observers = observers;
    this.#chance = new Chance(seed);
    const counts = Object.entries(plan.partitions ?? {}).map(
      ([name, count]) => [partitionName(name), count] as const,
    );
    const capacities = new Map([[GLOBAL_PARTITION, plan.slots], ...counts]);
    this.#slots = new Map(
      Array.from(capacities, ([name, count]) => [name, { count, waiting: 0, running: 0 }]),
    );
    const never = NEVER_STARVED_SECS;
    this.#scheduler = new Scheduler<PoolRequest>(
      Array.from(capacities, ([name, capacity]) =>
        settings({
          name,
          capacity,
          queueSize: QUEUE_SIZE,
          queueTimeoutSecs: PATIENCE_SECS,
          starvationSecs: [plan.bulkStarvesSecs ?? never, never, never, never],
        }),
      ),
      capacities,
      fair ? fairQueueing({ maxQueuedPerTenant: QUEUE_SIZE, ...plan.fair }) : undefined,
      {
        onGranted: (request, permit) => {
          this.#leavesQueue(request);
          this.#run(request, permit);
        },
        onTimedOut: () => {
          throw new Error("nobody waits that long");
        },
        onDisplaced: () => {
          throw new Error("the queue is never full");
        },
        onPreempted: () => {
          throw new Error("nobody preempts here");
        },
        onWake: () => undefined,
      },
      this.#now,
    );
    for (const [tenant, { traffic }] of plan.tenants.entries()) {
      for (const one of traffic) {
        const { arrivals } = one;
        const spans = arrivals.kind === "backlogged" ? (arrivals.spans ?? [ALWAYS]) : [ALWAYS];
        for (const span of spans) this.#begin({ tenant, traffic: one, span });
      }
    }
  }

  get now(): number {
    return this.#now;
  }

  /** Requests that ran and are over. */
  get settled(): number {
    return this.#settled;
  }

  /** Slots times milliseconds that a slot was free while somebody waited. */
  get idleSlotMs(): number {
    return this.#idleSlotMs;
  }

  /** Goes on until so many requests are over or the time has come, whichever is first. */
  run(until: { readonly requests?: number; readonly ms?: number }): void {
    const { requests = Number.POSITIVE_INFINITY, ms = Number.POSITIVE_INFINITY } = until;
    while (this.#settled < requests) {
      const event = this.#events.next();
      if (event === undefined || event.atMs > ms) return;
      for (const { count, waiting, running } of this.#slots.values()) {
        if (waiting > 0) this.#idleSlotMs += (count - running) * (event.atMs - this.#now);
      }
      this.#now = monotonicMs(event.atMs);
      event.run();
      while (this.#scheduler.dispatch(this.#now));
    }
  }

  #begin(source: Source): void {
    const { arrivals } = source.traffic;
    switch (arrivals.kind) {
      case "backlogged":
        this.#planSpan(source, arrivals.clients);
        return;
      case "bursts":
        this.#events.plan(this.#now + arrivals.everyMs, "burst", () => {
          for (let client = 0; client < arrivals.size; client += 1) this.#ask(source);
          this.#begin(source);
        });
        return;
      case "poisson":
        this.#events.plan(
          this.#now + this.#chance.exponential(arrivals.meanGapMs),
          "arrival",
          () => {
            this.#ask(source);
            this.#begin(source);
          },
        );
    }
  }

  /** All clients come at once, and those that wait at the end leave at once. */
  #planSpan(source: Source, clients: number): void {
    const [fromMs, toMs] = source.span;
    for (let client = 0; client < clients; client += 1) {
      this.#events.plan(fromMs, "client", () => {
        this.#ask(source);
      });
    }
    if (toMs === Number.POSITIVE_INFINITY) return;
    this.#events.plan(toMs, "departure", () => {
      for (const request of [...this.#waiting]) {
        if (request.source === source) this.#cancel(request);
      }
    });
  }

  #ask(source: Source): void {
    const { traffic, tenant } = source;
    const tokens = drawTokens(traffic.lengths, this.#chance);
    const leaves = this.#chance.once(traffic.leaving ?? 0);
    const partition =
      traffic.partition === undefined ? GLOBAL_PARTITION : partitionName(traffic.partition);
    const model = traffic.model ?? this.plan.model;
    const request: PoolRequest = {
      source,
      slots: this.#slotsOf(partition),
      tokens,
      estimateTokens: estimateTokens(traffic.estimate, tokens, this.#chance),
      leavesAt: leaves ? this.#chance.unit() : undefined,
      withoutUsage: this.#chance.once(traffic.withoutUsage ?? 0),
      askedAt: this.#now,
      waiter: undefined,
      leave: undefined,
    };
    const admission = this.#scheduler.admit(
      {
        request,
        partition,
        rank: traffic.rank,
        tenant: tenantKey(this.#nameOf(source)),
        model: model === undefined ? undefined : modelId(model),
        estimateTokens: request.estimateTokens,
      },
      this.#now,
    );
    switch (admission.kind) {
      case "granted":
        this.#run(request, admission.permit);
        return;
      case "queued": {
        request.waiter = admission.waiter;
        this.#waiting.add(request);
        request.slots.waiting += 1;
        for (const observer of this.#observers) observer.waits?.(tenant);
        if (leaves && this.#chance.once(LEAVES_WAITING)) this.#planLeaving(request);
        return;
      }
      case "queue_full":
        throw new Error(`the queue of ${String(QUEUE_SIZE)} is full`);
    }
  }

  #slotsOf(partition: PartitionName): Slots {
    const slots = this.#slots.get(partition);
    if (slots === undefined) throw new Error(`no partition ${partition}`);
    return slots;
  }

  #nameOf({ tenant, traffic }: Source): string {
    if (traffic.freshNames === true) {
      this.#names += 1;
      return `fresh-${String(this.#names)}`;
    }
    const plan = this.plan.tenants[tenant];
    return plan?.key ?? plan?.name ?? "";
  }

  #planLeaving(request: PoolRequest): void {
    const afterMs = this.#chance.unit() * LEAVES_WAITING_WITHIN_MS;
    request.leave = this.#events.plan(this.#now + afterMs, "leave", () => {
      if (!this.#waiting.has(request)) return;
      this.#cancel(request);
      this.#again(request.source);
    });
  }

  #cancel(request: PoolRequest): void {
    if (request.waiter !== undefined) this.#scheduler.cancel(request.waiter);
    this.#leavesQueue(request);
  }

  #leavesQueue(request: PoolRequest): void {
    request.waiter = undefined;
    if (request.leave !== undefined) request.leave.cancelled = true;
    this.#waiting.delete(request);
    request.slots.waiting -= 1;
    for (const observer of this.#observers) observer.leavesQueue?.(request.source.tenant);
  }

  #run(request: PoolRequest, permit: Permit): void {
    const { tokens, estimateTokens, leavesAt, slots, source } = request;
    slots.running += 1;
    const waitedMs = this.#now - request.askedAt;
    for (const observer of this.#observers) {
      observer.runs?.(source.tenant, estimateTokens, waitedMs);
    }
    const producedTokens = leavesAt === undefined ? tokens : Math.floor(tokens * leavesAt);
    const observed = leavesAt === undefined && !request.withoutUsage;
    const chargedTokens = observed ? tokens : Math.max(estimateTokens, producedTokens);
    const run: SettledRun = { producedTokens, chargedTokens, whole: leavesAt === undefined };
    this.#events.plan(this.#now + producedTokens * this.plan.msPerToken, "end", () => {
      slots.running -= 1;
      this.#settled += 1;
      permit.settle({ tokens: chargedTokens, clockTokens: Math.max(1, chargedTokens) });
      permit.release();
      for (const observer of this.#observers) observer.settled?.(source.tenant, run, this.#now);
      this.#again(source);
    });
  }

  /** A client of a backlogged source sends its next request, when it is still there. */
  #again(source: Source): void {
    if (source.traffic.arrivals.kind === "backlogged" && this.#now < source.span[1]) {
      this.#ask(source);
    }
  }
}

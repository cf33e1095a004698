// A scheduler on virtual time whose listener writes everything down.

import type { ClassConfig } from "../../extproc/core/model/config.js";
import { GLOBAL_PARTITION } from "../../extproc/core/model/config.js";
import { modelId, tenantKey, type PartitionName } from "../../extproc/core/model/ids.js";
import {
  perClass,
  rankOf,
  type ClassRank,
  type PerClass,
  type PriorityClass,
} from "../../extproc/core/model/priority.js";
import { monotonicMs, type MonotonicMs } from "../../extproc/core/model/time.js";
import type {
  Admission,
  AdmissionAsk,
  PartitionView,
  Waiter,
} from "../../extproc/core/scheduler/admission.js";
import type { FairQueueing } from "../../extproc/core/scheduler/lanes.js";
import type { PartitionSettings } from "../../extproc/core/scheduler/partition-settings.js";
import type { Permit } from "../../extproc/core/scheduler/permit.js";
import { Scheduler } from "../../extproc/core/scheduler/scheduler.js";

export const SHIPPED_CLASSES: PerClass<ClassConfig> = [
  row(0, 0, 1_024, 300, 120, false),
  row(0, 0.1, 512, 60, 30, false),
  row(128, 0.25, 256, 30, 5, true),
  row(32, 0, 64, 30, 5, true),
];

function row(
  reserved_floor: number,
  reserved_per_slot: number,
  queue_size: number,
  queue_timeout_secs: number,
  starvation_threshold_secs: number,
  can_preempt: boolean,
): ClassConfig {
  return {
    reserved_floor,
    reserved_per_slot,
    queue_size,
    queue_timeout_secs,
    starvation_threshold_secs,
    can_preempt,
  };
}

export interface PartitionSketch {
  readonly name?: PartitionName;
  readonly capacity: number;
  readonly queueSize?: number;
  /** Slots kept back per class; none when absent. */
  readonly reserved?: PerClass<number>;
  readonly queueTimeoutSecs?: number | PerClass<number>;
  readonly starvationSecs?: number | PerClass<number>;
  /** Classes that may preempt; none when absent. */
  readonly canPreempt?: readonly PriorityClass[];
  readonly starvationMaxShare?: number;
  /** Of the first partition, for all of them; first come, first served when absent. */
  readonly fair?: FairQueueing;
}

const NEVER_STARVED_SECS = 1_000_000;

const at = (
  value: number | PerClass<number> | undefined,
  rank: 0 | 1 | 2 | 3,
  fallback: number,
): number => (typeof value === "number" ? value : (value?.[rank] ?? fallback));

export function settings(sketch: PartitionSketch): PartitionSettings {
  const may = (sketch.canPreempt ?? []).map(rankOf);
  return {
    name: sketch.name ?? GLOBAL_PARTITION,
    queueSize: sketch.queueSize ?? 100,
    classes: perClass((rank) => ({
      queueTimeoutMs: at(sketch.queueTimeoutSecs, rank, 60) * 1_000,
      starvationThresholdMs: at(sketch.starvationSecs, rank, NEVER_STARVED_SECS) * 1_000,
      canPreempt: may.includes(rank),
      queueShare: 0,
    })),
    reservations: perClass((rank) => ({ floor: sketch.reserved?.[rank] ?? 0, perSlot: 0 })),
    reservedShareMax: 1,
    starvationMaxShare: sketch.starvationMaxShare ?? 0.25,
  };
}

/** Tenant of whoever names none. */
export const SOMEBODY = tenantKey("header:somebody");

export interface ShareSketch {
  readonly tenant?: string;
  readonly model?: string;
  readonly estimateTokens?: number;
}

/** A request that asks for a slot. */
export function ask<T>(
  request: T,
  rank: ClassRank,
  partition = GLOBAL_PARTITION,
  share: ShareSketch = {},
): AdmissionAsk<T> {
  return {
    request,
    partition,
    rank,
    tenant: share.tenant === undefined ? SOMEBODY : tenantKey(share.tenant),
    model: share.model === undefined ? undefined : modelId(share.model),
    estimateTokens: share.estimateTokens ?? 10,
  };
}

export class SchedulerBench {
  readonly scheduler: Scheduler<string>;
  readonly granted: string[] = [];
  readonly timedOut: { readonly request: string; readonly retryAfterS: number }[] = [];
  readonly preempted: { readonly victim: string; readonly by: number }[] = [];
  /** Waiters whose place went to another tenant. */
  readonly displaced: string[] = [];
  readonly wakes: number[] = [];
  readonly permits = new Map<string, Permit>();
  readonly waiters = new Map<string, Waiter<string>>();
  readonly #first: PartitionName;
  now: MonotonicMs = monotonicMs(0);

  constructor(...sketches: readonly [PartitionSketch, ...PartitionSketch[]]) {
    const { fair } = sketches[0];
    this.#first = sketches[0].name ?? GLOBAL_PARTITION;
    this.scheduler = new Scheduler<string>(
      sketches.map(settings),
      new Map(sketches.map(({ name, capacity }) => [name ?? GLOBAL_PARTITION, capacity])),
      fair,
      {
        onGranted: (request, permit) => {
          this.granted.push(request);
          this.permits.set(request, permit);
        },
        onTimedOut: (request, retryAfterS) => {
          this.timedOut.push({ request, retryAfterS });
        },
        onDisplaced: (request) => {
          this.displaced.push(request);
        },
        onPreempted: (victim, by) => {
          this.preempted.push({ victim, by });
        },
        onWake: (when) => {
          this.wakes.push(when);
        },
      },
      this.now,
    );
  }

  /** Asks for a slot and says what came of it. */
  admit(
    request: string,
    name: PriorityClass = "default",
    partition = this.#first,
    share: ShareSketch = {},
  ): Admission<string>["kind"] {
    const admission = this.ask(request, name, partition, share);
    return admission.kind;
  }

  ask(
    request: string,
    name: PriorityClass = "default",
    partition = this.#first,
    share: ShareSketch = {},
  ): Admission<string> {
    const admission = this.scheduler.admit(ask(request, rankOf(name), partition, share), this.now);
    if (admission.kind === "granted") this.permits.set(request, admission.permit);
    if (admission.kind === "queued") this.waiters.set(request, admission.waiter);
    // The desk takes a turn after each request, which is when victims are looked for.
    if (admission.kind === "queued") this.scheduler.dispatch(this.now);
    return admission;
  }

  /** Ends a running request that cost so many output tokens. */
  settle(request: string, tokens: number): void {
    this.permits.get(request)?.settle({ tokens, clockTokens: Math.max(1, tokens) });
    this.release(request);
  }

  release(request: string): void {
    this.permits.get(request)?.release();
    this.scheduler.dispatch(this.now);
  }

  leave(request: string): boolean {
    const waiter = this.waiters.get(request);
    const left = waiter !== undefined && this.scheduler.cancel(waiter);
    this.scheduler.dispatch(this.now);
    return left;
  }

  resize(capacity: number, partition = this.#first): void {
    this.scheduler.setCapacities(new Map([[partition, capacity]]));
    this.scheduler.dispatch(this.now);
  }

  /** Lets time pass and does what falls due, as the process does. */
  advance(ms: number): void {
    this.now = monotonicMs(this.now + ms);
    this.scheduler.expire(this.now);
    this.scheduler.dispatch(this.now);
  }

  view(index = 0): PartitionView {
    const view = this.scheduler.view(this.now)[index];
    if (view === undefined) throw new Error("no such partition");
    return view;
  }
}

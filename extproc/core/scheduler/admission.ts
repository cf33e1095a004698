// What the life of a request needs of whoever admits it, and what it is told later. The priority
// scheduler and the plain limiter both stand behind this.

import type { Choice } from "../fairshare/contest.js";
import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";
import type { ClassRank, PerClass } from "../model/priority.js";
import type { MonotonicMs } from "../model/time.js";
import type { AdmissionProof } from "./admission-proof.js";
import type { Permit } from "./permit.js";
import type { HoldAsk, SlotHold } from "./slot-hold.js";

/** A request that asks for a slot. */
export interface AdmissionAsk<T> {
  readonly request: T;
  readonly partition: PartitionName;
  readonly rank: ClassRank;
  readonly tenant: TenantKey;
  /** The model a proxy vouched for; it chooses the shares that apply. */
  readonly model: ModelId | undefined;
  /** Output tokens booked on the tenant while the request runs. */
  readonly estimateTokens: number;
  /** The witness of its admission, where one is wanted; its permit carries it. */
  readonly proof?: AdmissionProof | undefined;
}

/** The handle of a queued request. */
export interface Waiter<T> extends AdmissionAsk<T> {
  readonly enqueuedAt: MonotonicMs;
  readonly deadline: MonotonicMs;
}

export type Admission<T> =
  | { readonly kind: "granted"; readonly permit: Permit }
  | { readonly kind: "queued"; readonly waiter: Waiter<T> }
  | {
      readonly kind: "queue_full";
      readonly limit: QueueLimit;
      readonly retryAfterS: number;
    };

/** Which limit a request met: the tenant's own in the partition, or that of the whole queue. */
export type QueueLimit = "tenant_limit" | "global_limit";

/** Why a request has no place in the queue: a limit, or it had to give its place up. */
export type QueueRefusal = QueueLimit | "displaced";

export interface AdmissionListener<T> {
  /** A waiter got its slot. */
  readonly onGranted: (request: T, permit: Permit) => void;
  /** A waiter's queue timeout elapsed; it holds nothing any more. */
  readonly onTimedOut: (request: T, retryAfterS: number) => void;
  /** A waiter's place went to a tenant that has fewer; it holds nothing any more. */
  readonly onDisplaced: (request: T, retryAfterS: number) => void;
  /** A running request must give way: end it; its slot is in use until its permit is released. */
  readonly onPreempted: (request: T, by: ClassRank) => void;
  /** Something falls due then: call `expire` and `dispatch` at that moment. */
  readonly onWake: (at: MonotonicMs) => void;
}

/** One partition at this moment. */
export interface PartitionView {
  readonly name: PartitionName;
  /** Slots; undefined = unbounded. */
  readonly capacity: number | undefined;
  readonly queue_size: number;
  readonly in_flight: PerClass<number>;
  readonly queued: PerClass<number>;
  readonly reserved: PerClass<number>;
  readonly queue_share: PerClass<number>;
  readonly retry_after_secs: PerClass<number>;
  /** Whom each lane serves next, and why; empty lists without waiters or without fair sharing. */
  readonly next: PerClass<readonly Choice[]>;
}

export interface AdmissionControl<T> {
  /** Asks for a slot. */
  admit(ask: AdmissionAsk<T>, now: MonotonicMs): Admission<T>;
  /** Takes a slot that no request has yet, at once or not at all; it never waits. */
  hold(ask: HoldAsk, now: MonotonicMs): SlotHold<T> | undefined;
  /** Takes a waiter out whose client left; false when it no longer waits. */
  cancel(waiter: Waiter<T>): boolean;
  /** Hands free slots to waiters; true when one turn's limit was reached and work may remain. */
  dispatch(now: MonotonicMs): boolean;
  /** Tells every waiter whose time is over; `all` ends the waiting of everybody. */
  expire(now: MonotonicMs, all?: boolean): void;
  setCapacities(capacities: ReadonlyMap<PartitionName, number>): void;
  readonly queued: number;
  view(now: MonotonicMs): readonly PartitionView[];
}

/** Sum over the classes. */
export const sumOf = (table: PerClass<number>): number => table[0] + table[1] + table[2] + table[3];

/** Grants in one turn of the event loop: a mass release must not hold up the tokens of streams. */
export const GRANTS_PER_TURN = 64;

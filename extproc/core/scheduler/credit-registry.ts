// Which capacity credits are there, and what became of them? A credit is a token that owns a hold: a slot
// with its provisional charge. It is active from its issue until it is redeemed, cancelled or expired,
// whichever comes first; then it is remembered for a while, so that a replay is told what happened.
//
//   issue -> active (armed at most once) -> redeemed | cancelled | expired -> forgotten
//
// The request id is unique within a tenant, so issuing twice gives the same credit. Every operation first
// does what has fallen due, so no answer depends on when the reaper came by. Holds are released after
// the credits they belonged to have changed: a release may lead back here. Memory is bounded by the
// number of credits remembered. Operations cost O(log active credits).

import type { PartitionName } from "../model/ids.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";
import { invariant } from "../model/invariant.js";
import { LinkedQueue } from "../model/linked-queue.js";
import { after, type MonotonicMs } from "../model/time.js";
import {
  bindingProblem,
  dispatchIdProblem,
  sameBinding,
  type CreditBinding,
} from "./credit-binding.js";
import { encodeBase64Url, TOKEN_BYTES } from "./credit-token.js";

/**
 * Credits remembered, active ones included: ten minutes, the default retention, of 166 requests per
 * second, and about 100 MB. Beyond it those that are dead for longest are forgotten early.
 */
export const REMEMBERED_MAX_CREDITS = 100_000;
/** Credits that are due to be forgotten wait this long for others, so that one wake-up serves many. */
const FORGET_TOGETHER_MS = 1_000;

/** What a credit owns; releasing gives the slot back and takes the charge back. */
export interface CreditHold {
  readonly release: () => void;
}

export type CreditFailure =
  | "wrong_generation"
  | "request_conflict"
  | "unknown"
  | "binding_mismatch"
  | "expired"
  | "already_redeemed"
  | "already_armed"
  | "cancelled"
  | "no_capacity"
  | "invalid_binding";

/** What an operation came to, for counting. */
export const CREDIT_OPERATIONS = [
  "issued",
  "idempotent_retry",
  "armed",
  "arm_idempotent_retry",
  "arm_rejected",
  "redeemed",
  "cancelled",
  "expired",
  "no_capacity",
  "invalid_binding",
  "binding_mismatch",
  "request_conflict",
  "wrong_generation",
  "replay",
  "unknown",
] as const;

export type CreditOperation = (typeof CREDIT_OPERATIONS)[number];

/** Counts an operation; `partition` is undefined for a token nobody knows. */
export type OnCreditOperation = (
  partition: PartitionName | undefined,
  outcome: CreditOperation,
) => void;

export interface CreditRegistryOptions<Hold extends CreditHold = CreditHold> {
  /** The allocator generation that is served. */
  readonly generation: string;
  /** Life of a credit that nobody redeems, above 0. */
  readonly ttlMs: number;
  /** Time for which a dead credit is remembered, above 0. */
  readonly retentionMs: number;
  /** Unpredictable bytes; never the seeded generator. */
  readonly secureRandom: (bytes: number) => Uint8Array;
  /** Takes a slot and books the charge, at once or not at all. */
  readonly acquire: (binding: CreditBinding, now: MonotonicMs) => Hold | undefined;
  readonly onOperation: OnCreditOperation;
  /** Call `maintain` at this moment. */
  readonly onWake: (at: MonotonicMs) => void;
  /** Slots came back that waiters may get. */
  readonly onReleased?: () => void;
  /** For tests; the default is {@link REMEMBERED_MAX_CREDITS}. */
  readonly rememberedMax?: number;
}

export interface CreditRefused<Failure extends CreditFailure = CreditFailure> {
  readonly ok: false;
  readonly failure: Failure;
}

export type CreditIssue =
  | {
      readonly ok: true;
      readonly token: string;
      readonly expiresInMs: number;
      readonly newlyIssued: boolean;
    }
  | CreditRefused;
export type CreditArm =
  { readonly ok: true; readonly expiresInMs: number; readonly newlyArmed: boolean } | CreditRefused;
export type CreditRedeem<Hold extends CreditHold = CreditHold> =
  { readonly ok: true; readonly hold: Hold } | CreditRefused<RedeemFailure>;

type EndState = "redeemed" | "cancelled" | "expired";
type EndFailure = "already_redeemed" | "cancelled" | "expired";
/** What keeps a credit from being redeemed. */
export type RedeemFailure = "unknown" | "binding_mismatch" | EndFailure;

interface Credit {
  readonly token: string;
  readonly key: string;
  /** Counts the credits that were issued. */
  readonly number: number;
  readonly binding: CreditBinding;
  deadline: MonotonicMs;
  /** The dispatch that armed it. */
  dispatchId: string | undefined;
  /** Its place among the deadlines; undefined once it is dead. */
  node: HeapNode<Credit> | undefined;
  ended: EndState | undefined;
  forgetAt: MonotonicMs | undefined;
}

const FAILURE_OF: Readonly<Record<EndState, EndFailure>> = {
  redeemed: "already_redeemed",
  cancelled: "cancelled",
  expired: "expired",
};

const OUTCOME_OF: Readonly<Record<CreditFailure, CreditOperation>> = {
  wrong_generation: "wrong_generation",
  request_conflict: "request_conflict",
  unknown: "unknown",
  binding_mismatch: "binding_mismatch",
  expired: "expired",
  already_redeemed: "replay",
  already_armed: "replay",
  cancelled: "cancelled",
  no_capacity: "no_capacity",
  invalid_binding: "invalid_binding",
};

export class CreditRegistry<Hold extends CreditHold = CreditHold> {
  readonly #options: CreditRegistryOptions<Hold>;
  readonly #rememberedMax: number;
  readonly #byToken = new Map<string, Credit>();
  readonly #byRequest = new Map<string, Credit>();
  /** Of equal deadlines the one issued first. */
  readonly #deadlines = new IndexedHeap<Credit>((one, other) =>
    one.deadline === other.deadline ? one.number < other.number : one.deadline < other.deadline,
  );
  /** Dead ones, the one dead for longest first. */
  readonly #dead = new LinkedQueue<Credit>();
  /** What the active ones own. */
  readonly #holds = new Map<Credit, Hold>();
  readonly #activeIn = new Map<PartitionName, number>();
  /** Holds of credits that ended in the step that is running. */
  readonly #toRelease = new LinkedQueue<Hold>();
  #issued = 0;

  constructor(options: CreditRegistryOptions<Hold>) {
    invariant(options.ttlMs > 0, "a credit lives for a while");
    invariant(options.retentionMs > 0, "a dead credit is remembered for a while");
    this.#options = options;
    this.#rememberedMax = options.rememberedMax ?? REMEMBERED_MAX_CREDITS;
  }

  /** Credits of a partition that hold a slot. */
  active(partition: PartitionName): number {
    return this.#activeIn.get(partition) ?? 0;
  }

  /** Credits in memory, dead ones included. */
  get remembered(): number {
    return this.#byToken.size;
  }

  /** Issues a credit, or gives the same one again. Never waits for a slot. */
  issue(binding: CreditBinding, now: MonotonicMs): CreditIssue {
    const { partition, generation } = binding;
    if (bindingProblem(binding) !== undefined) return this.#fail("invalid_binding", partition);
    if (generation !== this.#options.generation) return this.#fail("wrong_generation", partition);
    this.maintain(now);
    const key = keyOf(binding);
    const known = this.#byRequest.get(key);
    if (known !== undefined) return this.#issueAgain(known, binding, now);
    // The token comes first: whatever fails from here on must not leave a slot behind.
    const token = encodeBase64Url(this.#options.secureRandom(TOKEN_BYTES));
    invariant(!this.#byToken.has(token), "random tokens do not repeat");
    const full = this.#byToken.size >= this.#rememberedMax;
    if (full && this.#dead.size === 0) return this.#fail("no_capacity", partition);
    const hold = this.#options.acquire(binding, now);
    if (hold === undefined) return this.#fail("no_capacity", partition);
    if (full) this.#forgetOldest();
    this.#add({ token, key, binding }, hold, now);
    return { ok: true, token, expiresInMs: this.#options.ttlMs, newlyIssued: true };
  }

  /** Gives a credit its life once more, for one dispatch. Repeating the call changes nothing. */
  arm(token: string, binding: CreditBinding, dispatchId: string, now: MonotonicMs): CreditArm {
    this.maintain(now);
    const armed = this.#arm(token, binding, dispatchId, now);
    if (armed.ok) {
      this.#options.onOperation(
        binding.partition,
        armed.newlyArmed ? "armed" : "arm_idempotent_retry",
      );
    } else {
      const known = armed.failure !== "unknown";
      this.#options.onOperation(known ? binding.partition : undefined, "arm_rejected");
    }
    return armed;
  }

  /** Hands over what a credit owns, once. A binding that differs consumes nothing. */
  redeem(token: string, binding: CreditBinding, now: MonotonicMs): CreditRedeem<Hold> {
    this.maintain(now);
    const credit = this.#byToken.get(token);
    if (credit === undefined) return this.#fail("unknown", undefined);
    const { partition } = credit.binding;
    if (!sameBinding(credit.binding, binding)) return this.#fail("binding_mismatch", partition);
    if (credit.ended !== undefined) return this.#fail(FAILURE_OF[credit.ended], partition);
    return { ok: true, hold: this.#end(credit, "redeemed", now) };
  }

  /** Ends an active credit; any other token changes nothing. */
  cancel(token: string, now: MonotonicMs): void {
    this.maintain(now);
    const credit = this.#byToken.get(token);
    if (credit === undefined || credit.ended !== undefined) return;
    this.#toRelease.push(this.#end(credit, "cancelled", now));
    this.#releaseEnded();
  }

  /** Ends every active credit. */
  cancelAll(now: MonotonicMs): void {
    this.maintain(now);
    const active = [...this.#holds.keys()];
    for (const credit of active) this.#toRelease.push(this.#end(credit, "cancelled", now));
    this.#releaseEnded();
  }

  /** Expires what is overdue, forgets what is old, and says when to come again. */
  maintain(now: MonotonicMs): void {
    for (;;) {
      const next = this.#deadlines.first;
      if (next === undefined || now < next.deadline) break;
      this.#toRelease.push(this.#end(next, "expired", now));
    }
    for (;;) {
      const forgetAt = this.#dead.head?.forgetAt;
      if (forgetAt === undefined || now < forgetAt) break;
      this.#forgetOldest();
    }
    const deadline = this.#deadlines.first?.deadline;
    if (deadline !== undefined) this.#options.onWake(deadline);
    const forgetAt = this.#dead.head?.forgetAt;
    if (forgetAt !== undefined) this.#options.onWake(after(forgetAt, FORGET_TOGETHER_MS));
    this.#releaseEnded();
  }

  #issueAgain(credit: Credit, binding: CreditBinding, now: MonotonicMs): CreditIssue {
    const { partition } = binding;
    if (!sameBinding(credit.binding, binding)) return this.#fail("request_conflict", partition);
    if (credit.ended !== undefined) return this.#fail(FAILURE_OF[credit.ended], partition);
    this.#options.onOperation(partition, "idempotent_retry");
    const expiresInMs = remainingMs(credit, now);
    return { ok: true, token: credit.token, expiresInMs, newlyIssued: false };
  }

  #add(made: Pick<Credit, "token" | "key" | "binding">, hold: Hold, now: MonotonicMs): void {
    const { token, key, binding } = made;
    this.#issued += 1;
    const credit: Credit = {
      ...made,
      number: this.#issued,
      deadline: after(now, this.#options.ttlMs),
      dispatchId: undefined,
      node: undefined,
      ended: undefined,
      forgetAt: undefined,
    };
    credit.node = this.#deadlines.push(credit);
    this.#holds.set(credit, hold);
    this.#byToken.set(token, credit);
    this.#byRequest.set(key, credit);
    this.#activeIn.set(binding.partition, this.active(binding.partition) + 1);
    this.#options.onOperation(binding.partition, "issued");
    this.#options.onWake(credit.deadline);
  }

  #arm(token: string, binding: CreditBinding, dispatchId: string, now: MonotonicMs): CreditArm {
    const problem = dispatchIdProblem(dispatchId) ?? bindingProblem(binding);
    if (problem !== undefined) return failed("invalid_binding");
    if (binding.generation !== this.#options.generation) return failed("wrong_generation");
    const credit = this.#byToken.get(token);
    if (credit === undefined) return failed("unknown");
    if (!sameBinding(credit.binding, binding)) return failed("binding_mismatch");
    const { node, ended } = credit;
    if (ended !== undefined) return failed(FAILURE_OF[ended]);
    if (credit.dispatchId === dispatchId) {
      return { ok: true, expiresInMs: remainingMs(credit, now), newlyArmed: false };
    }
    if (credit.dispatchId !== undefined) return failed("already_armed");
    invariant(node !== undefined, "a credit that has not ended has a deadline");
    credit.dispatchId = dispatchId;
    credit.deadline = after(now, this.#options.ttlMs);
    this.#deadlines.moved(node);
    return { ok: true, expiresInMs: this.#options.ttlMs, newlyArmed: true };
  }

  /** Ends an active credit and hands out what it owned. */
  #end(credit: Credit, how: EndState, now: MonotonicMs): Hold {
    const { node, binding } = credit;
    const hold = this.#holds.get(credit);
    invariant(node !== undefined && hold !== undefined, "only an active credit ends");
    credit.node = undefined;
    this.#holds.delete(credit);
    credit.ended = how;
    credit.forgetAt = after(now, this.#options.retentionMs);
    this.#deadlines.remove(node);
    this.#dead.push(credit);
    const left = this.active(binding.partition) - 1;
    if (left > 0) this.#activeIn.set(binding.partition, left);
    else this.#activeIn.delete(binding.partition);
    this.#options.onOperation(binding.partition, how);
    return hold;
  }

  #forgetOldest(): void {
    const credit = this.#dead.shift();
    if (credit === undefined) return;
    this.#byToken.delete(credit.token);
    this.#byRequest.delete(credit.key);
  }

  /** Whatever stands behind a hold that fails to be released is released by the next step. */
  #releaseEnded(): void {
    if (this.#toRelease.size === 0) return;
    try {
      for (let hold = this.#toRelease.shift(); hold !== undefined; hold = this.#toRelease.shift()) {
        hold.release();
      }
    } finally {
      this.#options.onReleased?.();
    }
  }

  #fail<Failure extends CreditFailure>(
    failure: Failure,
    partition: PartitionName | undefined,
  ): CreditRefused<Failure> {
    this.#options.onOperation(partition, OUTCOME_OF[failure]);
    return failed(failure);
  }
}

function failed<Failure extends CreditFailure>(failure: Failure): CreditRefused<Failure> {
  return { ok: false, failure };
}

/** Whole milliseconds until an active credit expires. */
function remainingMs({ deadline }: Credit, now: MonotonicMs): number {
  return Math.max(0, Math.round(deadline - now));
}

/** The length makes the joint unambiguous, whatever the two texts hold. */
function keyOf({ tenant, requestId }: CreditBinding): string {
  return `${String(tenant.length)}:${tenant}${requestId}`;
}

// Where requests come in: opens each one, keeps the live ones, and moves the scheduler. Every entry
// point takes `now`; nothing here reads a clock or waits. The desk tells its owner two things: when
// the next deadline is, and that there is more to grant than fits in one turn.

import { resolveCaller, type IdentityRules } from "../identity/caller.js";
import { classifyPath } from "../identity/paths.js";
import { reject } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import { Scheduler, type PartitionView } from "../scheduler/scheduler.js";
import type { PartitionOptions } from "../scheduler/partition.js";
import type { PartitionName } from "../model/ids.js";
import type { AdmissionRules } from "./admission-plan.js";
import type { DeskContext, RequestObserver } from "./desk-context.js";
import type { RequestHead, ResponseHead } from "./heads.js";
import { RequestLife } from "./request-life.js";
import type { SettlementRecord } from "./settlement-record.js";
import type { Verdict, VerdictListener } from "./verdict.js";

export interface DeskOptions {
  readonly identity: IdentityRules;
  readonly rules: AdmissionRules;
  readonly partitions: readonly PartitionOptions[];
  readonly holdBudgetMs: number;
  readonly messageTimeoutMs: number;
  readonly queueTimeoutStatus: number;
  readonly observer: RequestObserver;
  /** The earliest queue deadline may have moved to this. */
  readonly onDeadline: (at: MonotonicMs) => void;
  /** Call `turn` again soon: more grants are possible than one turn makes. */
  readonly onMoreWork: () => void;
}

/** How many requests are where. */
export interface DeskCounts {
  /** All that have not ended. */
  readonly live: number;
  readonly queued: number;
}

export class RequestDesk {
  readonly #options: DeskOptions;
  readonly #scheduler: Scheduler<RequestLife>;
  readonly #context: DeskContext<RequestLife> & { draining: boolean; queueClosed: boolean };
  readonly #live = new Set<RequestLife>();
  #turning = false;
  #now: MonotonicMs;

  constructor(options: DeskOptions, now: MonotonicMs) {
    this.#options = options;
    this.#now = now;
    this.#scheduler = new Scheduler<RequestLife>(
      options.partitions,
      {
        onGranted: (request, permit) => {
          request.granted(permit, this.#now);
        },
        onTimedOut: (request, retryAfterS) => {
          request.refuseHeld(this.#timeoutRejection(retryAfterS), this.#now);
        },
      },
      now,
    );
    this.#context = {
      rules: options.rules,
      scheduler: this.#scheduler,
      observer: options.observer,
      draining: false,
      queueClosed: false,
      holdBudgetMs: options.holdBudgetMs,
      messageTimeoutMs: options.messageTimeoutMs,
      ended: (request, record) => {
        this.#ended(request, record);
      },
    };
  }

  /** Opens a request; what is decided about it later, while it is held, goes to `onVerdict`. */
  open(
    head: RequestHead,
    onVerdict: VerdictListener,
    now: MonotonicMs,
  ): { readonly request: RequestLife; readonly verdict: Verdict } {
    const path = classifyPath(head.method, head.target);
    const caller = resolveCaller(this.#options.identity, head.headers, head.evidence);
    const request = new RequestLife(this.#context, head, path, caller, onVerdict, now);
    this.#live.add(request);
    if (path.kind === "inference") this.#options.observer.received();
    const verdict = request.open(now);
    return { request, verdict };
  }

  /** Hands a request its body. Slots that are already free go to those who waited longer. */
  body(request: RequestLife, bytes: Uint8Array, now: MonotonicMs): Verdict {
    this.turn(now);
    const verdict = request.body(bytes, now);
    if (verdict.kind === "hold") {
      const deadline = this.#scheduler.nextDeadline;
      if (deadline !== undefined) this.#options.onDeadline(deadline);
    }
    this.turn(now);
    return verdict;
  }

  responseHeaders(request: RequestLife, head: ResponseHead, now: MonotonicMs): boolean {
    const read = request.responseHeaders(head, now);
    this.turn(now);
    return read;
  }

  /** Ends a request from outside; a request that has ended stays as it is. */
  end(request: RequestLife, complete: boolean, now: MonotonicMs): void {
    request.end(complete, now);
    this.turn(now);
  }

  /** Ends a request because Weir itself failed on it. */
  fail(request: RequestLife, now: MonotonicMs): Verdict {
    const verdict = request.fail(now);
    this.turn(now);
    return verdict;
  }

  /** Refuses whoever waited too long, and names the next deadline. */
  expire(now: MonotonicMs): void {
    this.#now = now;
    this.#scheduler.expire(now);
    const deadline = this.#scheduler.nextDeadline;
    if (deadline !== undefined) this.#options.onDeadline(deadline);
    this.turn(now);
  }

  /** Grants what can be granted now, within one turn's limit. */
  turn(now: MonotonicMs): void {
    this.#now = now;
    // A grant can end a request at once (no usable worker), which comes back here.
    if (this.#turning) return;
    this.#turning = true;
    try {
      if (this.#scheduler.dispatch(now)) this.#options.onMoreWork();
    } finally {
      this.#turning = false;
    }
  }

  setCapacities(capacities: ReadonlyMap<PartitionName, number>, now: MonotonicMs): void {
    this.#scheduler.setCapacities(capacities);
    this.turn(now);
  }

  /** Refuses every new request from now on; queued and running ones go on. */
  drain(): void {
    this.#context.draining = true;
  }

  /** Refuses everybody who still waits, and whoever would come to wait from now on. */
  refuseQueued(now: MonotonicMs): void {
    this.#now = now;
    this.#context.queueClosed = true;
    this.#scheduler.expire(now, true);
  }

  get draining(): boolean {
    return this.#context.draining;
  }

  get counts(): DeskCounts {
    return { live: this.#live.size, queued: this.#scheduler.queued };
  }

  partitions(): PartitionView[] {
    return this.#scheduler.view();
  }

  #timeoutRejection(retryAfterS: number): ReturnType<typeof reject> {
    if (this.#context.draining) return reject("draining", "the server is shutting down");
    return reject("scheduler_queue_timeout", "no slot became free within the queue timeout", {
      status: this.#options.queueTimeoutStatus,
      retryAfterS,
    });
  }

  #ended(request: RequestLife, record: SettlementRecord): void {
    this.#live.delete(request);
    this.#options.observer.settled(record);
  }
}

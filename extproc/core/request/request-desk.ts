// Where requests come in: opens each one, keeps the live ones, and moves the scheduler. Every entry
// point takes `now`; nothing here reads a clock or waits. The desk tells its owner two things: when
// the next deadline is, and that there is more to grant than fits in one turn.

import { resolveCaller, type IdentityRules } from "../identity/caller.js";
import type { JsonReader } from "../identity/json-reader.js";
import { classifyPath } from "../identity/paths.js";
import { shapeReader } from "../identity/shape.js";
import type { Rejection } from "../model/rejection.js";
import type { FeedbackController } from "../capacity/feedback-controller.js";
import type { Ledger } from "../fairshare/ledger.js";
import type { MonotonicMs } from "../model/time.js";
import type { ClassRank } from "../model/priority.js";
import type { AdmissionControl, AdmissionListener, PartitionView } from "../scheduler/admission.js";
import { CreditRegistry, type CreditRegistryOptions } from "../scheduler/credit-registry.js";
import type { RateCheck } from "../scheduler/rate-check.js";
import type { SlotHold } from "../scheduler/slot-hold.js";
import type { PartitionName } from "../model/ids.js";
import { steppedReader, type AdmissionRules } from "./admission-plan.js";
import type { DeskContext, RequestObserver } from "./desk-context.js";
import type { RequestHead, ResponseHead } from "./heads.js";
import { draining, queueFull, queueTimeout } from "./refusals.js";
import { RequestLife } from "./request-life.js";
import type { SeedDesk } from "./seed-attempt.js";
import type { SettlementRecord } from "./settlement-record.js";
import type { Verdict, VerdictListener } from "./verdict.js";

/** Capacity credits: what the registry needs, and whether requests need one. */
export interface CreditOptions extends Pick<
  CreditRegistryOptions,
  "generation" | "ttlMs" | "retentionMs" | "secureRandom" | "onOperation"
> {
  readonly required: boolean;
}

export interface DeskOptions {
  readonly identity: IdentityRules;
  readonly rules: AdmissionRules;
  /** Makes what admits requests; it tells the desk what it decides later. */
  readonly createAdmission: (
    listener: AdmissionListener<RequestLife>,
    now: MonotonicMs,
  ) => AdmissionControl<RequestLife>;
  /** Accounts of the tenants; undefined without fair sharing. */
  readonly ledger: Ledger | undefined;
  /** What the engines report; undefined when nothing is asked of them. */
  readonly feedback: FeedbackController | undefined;
  /** Undefined = credits are off. */
  readonly credits: CreditOptions | undefined;
  readonly seeding: SeedDesk;
  readonly rateCheck: RateCheck | undefined;
  readonly holdBudgetMs: (rank: ClassRank) => number;
  readonly messageTimeoutMs: number;
  readonly queueTimeoutStatus: number;
  readonly observer: RequestObserver;
  /** Call `expire` at this moment, or before. */
  readonly onDeadline: (at: MonotonicMs) => void;
  /** Call `turn` soon, after the events that are already waiting. */
  readonly onMoreWork: () => void;
}

/** A request that has come in. */
export interface Opened {
  readonly request: RequestLife;
  readonly verdict: Verdict;
  /**
   * Time to ask of Envoy if it takes long to read the body, in milliseconds; undefined when nobody
   * reads it.
   */
  readonly readingMs: number | undefined;
}

/** How many requests are where. */
export interface DeskCounts {
  /** All that have not ended. */
  readonly live: number;
  readonly queued: number;
}

export class RequestDesk {
  readonly #options: DeskOptions;
  readonly #admission: AdmissionControl<RequestLife>;
  readonly #context: DeskContext<RequestLife> & { draining: boolean; queueClosed: boolean };
  /** Undefined while credits are off. */
  readonly credits: CreditRegistry<SlotHold<RequestLife>> | undefined;
  /** Requests that have not ended. */
  #live = 0;
  #turning = false;
  #now: MonotonicMs;

  constructor(options: DeskOptions, now: MonotonicMs) {
    this.#options = options;
    this.#now = now;
    this.#admission = options.createAdmission(
      {
        onGranted: (request, permit) => {
          request.granted(permit, this.#now);
        },
        onTimedOut: (request, retryAfterS) => {
          request.refuseHeld(this.#timeoutRejection(retryAfterS), this.#now);
        },
        onDisplaced: (request, retryAfterS) => {
          request.refuseHeld(queueFull("displaced", retryAfterS), this.#now, "displaced");
        },
        onPreempted: (request, by) => {
          request.preempted(by);
        },
        onWake: options.onDeadline,
      },
      now,
    );
    const { credits } = options;
    this.credits = credits === undefined ? undefined : this.#createCredits(credits);
    this.#context = {
      rules: options.rules,
      admission: this.#admission,
      ledger: options.ledger,
      feedback: options.feedback,
      credits:
        credits === undefined || this.credits === undefined
          ? undefined
          : { registry: this.credits, ...credits },
      seeding: options.seeding,
      rateCheck: options.rateCheck,
      observer: options.observer,
      draining: false,
      queueClosed: false,
      holdBudgetMs: options.holdBudgetMs,
      messageTimeoutMs: options.messageTimeoutMs,
      ended: (record) => {
        this.#ended(record);
      },
    };
  }

  /** Opens a request; what is decided about it later, while it is held, goes to `onVerdict`. */
  open(head: RequestHead, onVerdict: VerdictListener, now: MonotonicMs): Opened {
    const path = classifyPath(head.method, head.target);
    const caller = resolveCaller(this.#options.identity, head.headers, head.evidence);
    const request = new RequestLife(this.#context, head, path, caller, onVerdict, now);
    if (path.kind === "inference") this.#options.observer.received();
    const verdict = this.#open(request, now);
    const budgetMs = this.#options.holdBudgetMs(caller.priority.effective);
    return { request, verdict, readingMs: path.kind === "inference" ? budgetMs : undefined };
  }

  /**
   * The reader of a body that others must not wait for: whoever gets one lets it read step by step, and
   * hands it to `body`. Undefined for a body that is read in one go.
   */
  bodyReader(bytes: Uint8Array): JsonReader | undefined {
    return steppedReader(this.#options.rules, bytes);
  }

  /**
   * Hands a request its body. Slots that are already free go to those who waited longer. The verdict
   * may be "hold" for a request that the same call then grants: its later verdict came first.
   *
   * @param reader has read the body, or as much of it as it was given time for
   */
  body(
    request: RequestLife,
    bytes: Uint8Array,
    now: MonotonicMs,
    reader: JsonReader = shapeReader(bytes),
  ): Verdict {
    this.turn(now);
    const verdict = request.body(reader, now);
    this.turn(now);
    return verdict;
  }

  responseHeaders(request: RequestLife, head: ResponseHead, now: MonotonicMs): boolean {
    const read = request.responseHeaders(head, now);
    this.turn(now);
    return read;
  }

  /**
   * Ends a request from outside; a request that has ended stays as it is. The slot of one that broke
   * off is granted in a later turn: a connection that goes takes many requests with it, and none of
   * them may be granted the slot of another before its own end was heard.
   */
  end(request: RequestLife, complete: boolean, now: MonotonicMs): void {
    request.end(complete, now);
    if (complete) this.turn(now);
    else this.#options.onMoreWork();
  }

  /** Ends a request because Weir itself failed on it. */
  fail(request: RequestLife, now: MonotonicMs): Verdict {
    const verdict = request.fail(now);
    this.turn(now);
    return verdict;
  }

  /** Does what has fallen due: refuses whoever waited too long, and grants what may be granted now. */
  expire(now: MonotonicMs): void {
    this.#now = now;
    this.credits?.maintain(now);
    this.#admission.expire(now);
    this.turn(now);
  }

  /** Grants what can be granted now, within one turn's limit. */
  turn(now: MonotonicMs): void {
    this.#now = now;
    // A grant can end a request at once (no usable worker), which comes back here.
    if (this.#turning) return;
    this.#turning = true;
    try {
      if (this.#admission.dispatch(now)) this.#options.onMoreWork();
    } finally {
      this.#turning = false;
    }
  }

  setCapacities(capacities: ReadonlyMap<PartitionName, number>, now: MonotonicMs): void {
    this.#admission.setCapacities(capacities);
    this.turn(now);
  }

  /**
   * Refuses every new request from now on; queued and running ones go on. Credits end, because nobody
   * can redeem them any more, and those who wait need the slots.
   */
  drain(): void {
    this.#context.draining = true;
    this.credits?.cancelAll(this.#now);
  }

  /** Refuses everybody who still waits, and every request whose body comes from now on. */
  refuseQueued(now: MonotonicMs): void {
    this.#now = now;
    this.#context.queueClosed = true;
    this.#admission.expire(now, true);
  }

  get draining(): boolean {
    return this.#context.draining;
  }

  get counts(): DeskCounts {
    return { live: this.#live, queued: this.#admission.queued };
  }

  partitions(now: MonotonicMs): readonly PartitionView[] {
    return this.#admission.view(now);
  }

  /** Slots that come back through the registry are granted in a later turn, outside its step. */
  #createCredits(options: CreditOptions): CreditRegistry<SlotHold<RequestLife>> {
    return new CreditRegistry<SlotHold<RequestLife>>({
      ...options,
      acquire: (binding, now) => {
        // Slots that are free already, also those that were taken from somebody for a waiter, go to those
        // who waited longer.
        this.turn(now);
        return this.#admission.hold(binding, now);
      },
      onWake: this.#options.onDeadline,
      onReleased: this.#options.onMoreWork,
    });
  }

  /** Counts the request from here to its end, which may come at once. */
  #open(request: RequestLife, now: MonotonicMs): Verdict {
    this.#live += 1;
    let opened = false;
    try {
      const verdict = request.open(now);
      opened = true;
      return verdict;
    } finally {
      if (!opened && !request.ended) this.#live -= 1;
    }
  }

  #timeoutRejection(retryAfterS: number): Rejection {
    if (this.#context.draining) return draining();
    return queueTimeout(this.#options.queueTimeoutStatus, retryAfterS);
  }

  #ended(record: SettlementRecord): void {
    this.#live -= 1;
    this.#options.observer.settled(record);
  }
}

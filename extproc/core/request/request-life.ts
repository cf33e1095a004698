// The life of one request, from Envoy's first message to its settlement. The phases only move
// forward:
//
//   reading -> held -> dispatched -> answering -> ended     (held is skipped when a slot is free)
//                           \-> unwinding ---------/        (preempted before its first byte)
//
// Whatever ends a request (a refusal, a complete answer, a client that left, a worker that died)
// runs #finish, and #finish runs once: it gives back everything the request holds, in one order, and
// emits the one settlement record. After that every message is ignored.

import type { FeedbackDecision } from "../capacity/feedback-decision.js";
import type { Caller } from "../identity/caller.js";
import type { PathDecision } from "../identity/paths.js";
import type { JsonReader } from "../identity/json-reader.js";
import { producesOutputTokens } from "../identity/paths.js";
import { assertNever, invariant } from "../model/invariant.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import { className, type ClassRank } from "../model/priority.js";
import type { QueueRefusal, Waiter } from "../scheduler/admission.js";
import type { AdmissionProof } from "../scheduler/admission-proof.js";
import type { Permit } from "../scheduler/permit.js";
import type { PrefixTrace, Selection, SelectionDecision } from "../selection/decision.js";
import type { Worker } from "../workers/worker.js";
import { Answer, type SettledAnswer } from "./answer.js";
import {
  accountingModel,
  admissionAsk,
  planAdmission,
  workerQuery,
  type AdmissionPlan,
} from "./admission-plan.js";
import { countUnreadable, redeemCredit } from "./credit-gate.js";
import { cutByEnvoy } from "./cut-hold.js";
import type { DeskContext } from "./desk-context.js";
import { askEngines, rateLimited, refusedAtHead, saturated } from "./gates.js";
import type { RequestHead, ResponseHead } from "./heads.js";
import { Holdings } from "./holdings.js";
import { draining, queueFull } from "./refusals.js";
import { settlementRecord, type Ending } from "./settle.js";
import type { SettlementRecord } from "./settlement-record.js";
import { routeFacts, type Verdict, type VerdictListener } from "./verdict.js";
import { WorkerCall } from "./worker-call.js";

type Phase = "reading" | "held" | "dispatched" | "unwinding" | "answering" | "ended";

export class RequestLife {
  readonly #desk: DeskContext<RequestLife>;
  readonly #head: RequestHead;
  readonly #path: PathDecision;
  /** Whoever redeems a credit is, from then on, the sender that the credit was issued for. */
  #caller: Caller;
  readonly #onVerdict: VerdictListener;
  readonly #startedAt: MonotonicMs;
  readonly #holdings = new Holdings();
  #phase: Phase = "reading";
  #plan: AdmissionPlan | undefined;
  #waiter: Waiter<RequestLife> | undefined;
  #heldAt: MonotonicMs | undefined;
  #permit: Permit | undefined;
  #decision: FeedbackDecision | undefined;
  #preemptedBy: ClassRank | undefined;
  #selection: SelectionDecision | undefined;
  #call: WorkerCall | undefined;
  readonly #answer = new Answer();

  constructor(
    desk: DeskContext<RequestLife>,
    head: RequestHead,
    path: PathDecision,
    caller: Caller,
    onVerdict: VerdictListener,
    now: MonotonicMs,
  ) {
    this.#desk = desk;
    this.#head = head;
    this.#path = path;
    this.#caller = caller;
    this.#onVerdict = onVerdict;
    this.#startedAt = now;
  }

  get ended(): boolean {
    return this.#phase === "ended";
  }

  /** True while a worker has the request, or has not let go of it yet. */
  get dispatched(): boolean {
    return ["dispatched", "unwinding", "answering"].includes(this.#phase);
  }

  /** The witness that it redeemed a capacity credit; undefined for every other request. */
  get proof(): AdmissionProof | undefined {
    return this.#permit?.proof;
  }

  /** Decides what the request headers alone can decide. */
  open(now: MonotonicMs): Verdict {
    const path = this.#path;
    switch (path.kind) {
      case "rejected":
        return this.#refuse(path.rejection, now);
      case "pass_through":
        if (this.#desk.draining) return this.#refuse(draining(), now);
        return this.#head.endOfStream ? this.#passThrough(now) : { kind: "continue" };
      case "inference": {
        const rejection = refusedAtHead(this.#desk, this.#head, this.#caller);
        return rejection === undefined ? { kind: "continue" } : this.#refuse(rejection, now);
      }
      default:
        return assertNever(path, "path decision");
    }
  }

  /**
   * Takes the whole request body, read or not: plans, asks for a slot, and chooses a worker if one is
   * free.
   */
  body(reader: JsonReader, now: MonotonicMs): Verdict {
    if (this.#phase !== "reading") return { kind: "continue" };
    if (this.#desk.queueClosed) return this.#refuse(draining(), now);
    if (this.#path.kind === "pass_through") return this.#passThrough(now);
    invariant(this.#path.kind === "inference", "a refused request has no body phase");
    const planned = planAdmission(this.#desk.rules, this.#caller, this.#path.endpoint, reader);
    if (!planned.ok) {
      countUnreadable(this.#desk.credits, planned.rejection);
      return this.#refuse(planned.rejection, now);
    }
    this.#plan = planned.plan;
    const refusal = this.#redeem(planned.plan, now) ?? rateLimited(this.#desk, now);
    if (refusal !== undefined) return this.#refuse(refusal, now);
    this.#plan = planned.withPrompt();
    return this.#permit === undefined ? this.#admit(planned.plan, now) : this.#dispatch(now);
  }

  /** The scheduler gave a held request its slot. */
  granted(permit: Permit, now: MonotonicMs): void {
    invariant(this.#phase === "held", "only a held request is granted a slot later");
    this.#waiter = undefined;
    this.#keep(permit);
    this.#onVerdict(this.#dispatch(now));
  }

  /** Ends the waiting of a held request, whose place in the queue is already gone. */
  refuseHeld(rejection: Rejection, now: MonotonicMs, queueRefusal?: QueueRefusal): void {
    invariant(this.#phase === "held", "only a held request is refused later");
    this.#waiter = undefined;
    this.#onVerdict(this.#refuse(rejection, now, queueRefusal));
  }

  /**
   * The request has to give way: it is answered now, and holds its slot until its stream has ended
   * and the worker was told. Only a request whose answer has not begun is preempted.
   */
  preempted(by: ClassRank): void {
    invariant(this.#phase === "dispatched", "only a request before its first byte is preempted");
    this.#phase = "unwinding";
    this.#preemptedBy = by;
    const message = `the request gave way to one of the class "${className(by)}"`;
    this.#onVerdict({ kind: "refuse", rejection: reject("scheduler_preempted", message) });
  }

  /** Takes the response headers; true when the body must be read for its usage. */
  responseHeaders(head: ResponseHead, now: MonotonicMs): boolean {
    // An answer that crossed with the preemption of its request no longer counts.
    if (["ended", "answering", "unwinding"].includes(this.#phase)) return false;
    const answer = this.#answer;
    answer.headers(head);
    if (this.#phase !== "dispatched") {
      // Envoy itself, or a filter before this one, answered a request that was never let through.
      this.#finish({ complete: false }, now);
      return false;
    }
    this.#call?.judge(answer, head.attributes, now);
    if (!answer.fromWorker) {
      this.#finish({ complete: false }, now);
      return false;
    }
    this.#phase = "answering";
    this.#permit?.firstByte(now);
    if (head.endOfStream) {
      this.#finish({ complete: true }, now);
      return false;
    }
    if (this.#path.kind !== "inference") return false;
    answer.read(head.contentType);
    return true;
  }

  /** Notes the first non-empty chunk of the answer's body. */
  firstByte(now: MonotonicMs): void {
    this.#answer.firstByte(now);
  }

  /** Takes decoded bytes of the answer's body. */
  responseBody(bytes: Uint8Array): void {
    if (this.#phase === "answering") this.#answer.push(bytes);
  }

  /** The body cannot be decoded, so its usage counts as missing. */
  usageUnreadable(): void {
    this.#answer.unreadable();
  }

  /**
   * Nothing more will come. `complete` says that the answer's end was seen; otherwise the client
   * left, the worker broke off, or Envoy cut the request.
   */
  end(complete: boolean, now: MonotonicMs): void {
    if (this.#phase === "ended") return;
    const heldMs = now - (this.#heldAt ?? now);
    const cutHold = this.#phase === "held" && cutByEnvoy(this.#desk, this.#rank, heldMs);
    // The body of a pass-through answer is not read, so its end cannot be told from a break.
    const unobserved = this.#phase === "answering" && this.#path.kind === "pass_through";
    this.#finish({ complete: complete || unobserved, cutHold }, now);
  }

  /** Weir failed while it worked on this request. */
  fail(now: MonotonicMs): Verdict {
    return this.#refuse(reject("internal_error", "the request could not be processed"), now);
  }

  get #producesOutput(): boolean {
    return this.#path.kind === "inference" && producesOutputTokens(this.#path.endpoint);
  }

  get #rank(): ClassRank {
    return this.#caller.priority.effective;
  }

  #passThrough(now: MonotonicMs): Verdict {
    const any = this.#desk.rules.selector.selectAny(now);
    return any.ok ? this.#send(any.worker, undefined, now) : this.#refuse(any.rejection, now);
  }

  /** Asks for a slot. */
  #admit(plan: AdmissionPlan, now: MonotonicMs): Verdict {
    const ask = admissionAsk<RequestLife>(this.#desk.rules, this, this.#caller, plan);
    const admission = this.#desk.admission.admit(ask, now);
    switch (admission.kind) {
      case "granted":
        this.#keep(admission.permit);
        return this.#dispatch(now);
      case "queued":
        this.#phase = "held";
        this.#waiter = admission.waiter;
        this.#heldAt = now;
        return { kind: "hold", budgetMs: this.#desk.holdBudgetMs(this.#rank) };
      case "queue_full": {
        const { limit, retryAfterS } = admission;
        return this.#refuse(queueFull(limit, retryAfterS), now, limit);
      }
      default:
        return assertNever(admission, "admission");
    }
  }

  /** Redeems the credit that the request brings, if it brings one; the refusal when it cannot. */
  #redeem(plan: AdmissionPlan, now: MonotonicMs): Rejection | undefined {
    const ask = { request: this, requestId: this.#head.requestId, caller: this.#caller, plan };
    const redemption = redeemCredit<RequestLife>(this.#desk, ask, now);
    if (redemption.kind === "refused") return redemption.rejection;
    if (redemption.kind === "none") return undefined;
    this.#caller = redemption.caller;
    this.#keep(redemption.permit);
    return undefined;
  }

  #keep(permit: Permit): void {
    this.#permit = permit;
    this.#holdings.addLast(permit.release);
  }

  #dispatch(now: MonotonicMs): Verdict {
    const plan = this.#plan;
    invariant(plan !== undefined, "a permit follows a plan");
    // Endpoints that generate nothing are no load that the engines' feedback speaks of.
    const tracker = this.#producesOutput ? askEngines(this.#desk, plan.partition) : undefined;
    if (tracker !== undefined) {
      this.#decision = tracker.decision;
      this.#holdings.addLast(tracker.resolve);
      const refusal = saturated(tracker);
      if (refusal !== undefined) return this.#refuse(refusal, now);
    }
    const query = workerQuery(plan, this.#caller);
    return this.#choose(this.#desk.rules.selector.select(query, now), now);
  }

  #choose(selection: Selection, now: MonotonicMs): Verdict {
    this.#selection = selection.decision;
    if (!selection.ok) return this.#refuse(selection.rejection, now);
    // Load and booking go back before the slot: whoever gets it next sees the worker without them.
    this.#holdings.addFirst(selection.booking);
    const verdict = this.#send(selection.worker, selection.trace, now);
    selection.claim();
    return verdict;
  }

  #send(worker: Worker, trace: PrefixTrace | undefined, now: MonotonicMs): Verdict {
    this.#phase = "dispatched";
    this.#holdings.addFirst(worker.runtime.holdLoad());
    this.#call = new WorkerCall(worker, trace, now);
    if (this.#permit !== undefined) this.#desk.observer.admitted();
    const facts = routeFacts(worker, this.#caller, this.#plan, this.#permit);
    return { kind: "route", worker, facts };
  }

  #refuse(rejection: Rejection, now: MonotonicMs, queueRefusal?: QueueRefusal): Verdict {
    this.#finish({ complete: false, rejection, queueRefusal }, now);
    return { kind: "refuse", rejection };
  }

  #finish(ending: Ending, now: MonotonicMs): void {
    if (this.#phase === "ended") return;
    const dispatched = this.dispatched;
    this.#phase = "ended";
    if (this.#waiter !== undefined) this.#desk.admission.cancel(this.#waiter);
    this.#waiter = undefined;
    this.#call?.over(now);
    const settled = this.#settle(dispatched, ending.complete);
    const staleHoldings = this.#learn(ending.complete, settled, now);
    this.#desk.ended(this, this.#record({ ...ending, staleHoldings }, settled, now));
  }

  #learn(complete: boolean, { reading }: SettledAnswer, now: MonotonicMs): number {
    const { fromWorker, status = 0 } = this.#answer;
    const success = complete && fromWorker && status >= 200 && status < 300;
    const report = { promptTokens: reading?.promptTokens, cachedTokens: reading?.cachedTokens };
    return this.#call?.learn(this.#desk.rules.selector, success, report, now) ?? 0;
  }

  /** Works out the charge and gives everything back, the slot also when the charge fails. */
  #settle(dispatched: boolean, complete: boolean): SettledAnswer {
    try {
      const settled = this.#answer.settle({
        dispatched,
        complete,
        producesOutput: this.#producesOutput,
        estimateTokens: this.#caller.estimate.tokens,
        takenAway: this.#preemptedBy !== undefined,
      });
      this.#permit?.settle(settled.charge);
      return settled;
    } finally {
      this.#holdings.giveBack();
    }
  }

  #record(ending: Ending, settled: SettledAnswer, now: MonotonicMs): SettlementRecord {
    return settlementRecord(
      {
        head: this.#head,
        path: this.#path,
        caller: this.#caller,
        accountingModel: accountingModel(this.#desk.rules, this.#caller),
        plan: this.#plan,
        permit: this.#permit,
        worker: this.#call?.worker,
        selection: this.#selection,
        preemptedBy: this.#preemptedBy,
        decision: this.#decision,
        ledger: this.#desk.ledger,
        answer: this.#answer,
        startedAt: this.#startedAt,
        heldAt: this.#heldAt,
      },
      ending,
      settled,
      now,
    );
  }
}

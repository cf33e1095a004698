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
import type { JsonReader } from "../identity/json-reader.js";
import { producesOutputTokens, type PathDecision } from "../identity/paths.js";
import { assertNever, invariant } from "../model/invariant.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import { className, type ClassRank } from "../model/priority.js";
import type { QueueRefusal, Waiter } from "../scheduler/admission.js";
import type { AdmissionProof } from "../scheduler/admission-proof.js";
import type { Permit } from "../scheduler/permit.js";
import type { PrefixTrace, Selection } from "../selection/decision.js";
import type { Worker } from "../workers/worker.js";
import type { SettledAnswer } from "./answer.js";
import { admissionAsk, planAdmission, workerQuery, type AdmissionPlan } from "./admission-plan.js";
import { countUnreadable, redeemCredit } from "./credit-gate.js";
import { cutByEnvoy } from "./cut-hold.js";
import type { DeskContext } from "./desk-context.js";
import { askEngines, rateLimited, refusedAtHead, saturated } from "./gates.js";
import type { RequestHead, ResponseHead } from "./heads.js";
import { Holdings } from "./holdings.js";
import { RequestFacts } from "./request-facts.js";
import { draining, queueFull } from "./refusals.js";
import { attemptSeed, queueProof } from "./seed-attempt.js";
import { settlementRecord, type Ending } from "./settle.js";
import { routeFacts, type Verdict, type VerdictListener } from "./verdict.js";
import { WorkerCall } from "./worker-call.js";

type Phase = "reading" | "held" | "dispatched" | "unwinding" | "answering" | "ended";

export class RequestLife {
  readonly #desk: DeskContext<RequestLife>;
  readonly #facts: RequestFacts;
  readonly #onVerdict: VerdictListener;
  readonly #holdings = new Holdings();
  #phase: Phase = "reading";
  #waiter: Waiter<RequestLife> | undefined;

  constructor(
    desk: DeskContext<RequestLife>,
    head: RequestHead,
    path: PathDecision,
    caller: Caller,
    onVerdict: VerdictListener,
    now: MonotonicMs,
  ) {
    this.#desk = desk;
    this.#facts = new RequestFacts(head, path, caller, now);
    this.#onVerdict = onVerdict;
  }

  get ended(): boolean {
    return this.#phase === "ended";
  }

  /** True while a worker has the request, or has not let go of it yet. */
  get dispatched(): boolean {
    return ["dispatched", "unwinding", "answering"].includes(this.#phase);
  }

  /** The witness of its admission; undefined where none is given. */
  get proof(): AdmissionProof | undefined {
    return this.#facts.permit?.proof;
  }

  /** Decides what the request headers alone can decide. */
  open(now: MonotonicMs): Verdict {
    const path = this.#facts.path;
    switch (path.kind) {
      case "rejected":
        return this.#refuse(path.rejection, now);
      case "pass_through":
        if (this.#desk.draining) return this.#refuse(draining(), now);
        return this.#facts.head.endOfStream ? this.#passThrough(now) : { kind: "continue" };
      case "inference": {
        const rejection = refusedAtHead(this.#desk, this.#facts.head, this.#facts.caller);
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
    const { path, caller } = this.#facts;
    if (path.kind === "pass_through") return this.#passThrough(now);
    invariant(path.kind === "inference", "a refused request has no body phase");
    const planned = planAdmission(this.#desk.rules, caller, path.endpoint, reader);
    if (!planned.ok) {
      countUnreadable(this.#desk.credits, planned.rejection);
      return this.#refuse(planned.rejection, now);
    }
    this.#facts.plan = planned.plan;
    const refusal = this.#redeem(planned.plan, now) ?? rateLimited(this.#desk, now);
    if (refusal !== undefined) return this.#refuse(refusal, now);
    this.#facts.plan = planned.withPrompt();
    return this.#facts.permit === undefined ? this.#admit(planned.plan, now) : this.#dispatch(now);
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
    this.#facts.preemptedBy = by;
    const message = `the request gave way to one of the class "${className(by)}"`;
    this.#onVerdict({ kind: "refuse", rejection: reject("scheduler_preempted", message) });
  }

  /** Takes the response headers; true when the body must be read for its usage. */
  responseHeaders(head: ResponseHead, now: MonotonicMs): boolean {
    // An answer that crossed with the preemption of its request no longer counts.
    if (["ended", "answering", "unwinding"].includes(this.#phase)) return false;
    const answer = this.#facts.answer;
    answer.headers(head);
    if (this.#phase !== "dispatched") {
      // Envoy itself, or a filter before this one, answered a request that was never let through.
      this.#finish({ complete: false }, now);
      return false;
    }
    this.#facts.call?.judge(answer, head.attributes, now);
    if (!answer.fromWorker) {
      this.#finish({ complete: false }, now);
      return false;
    }
    this.#phase = "answering";
    this.#facts.permit?.firstByte(now);
    if (head.endOfStream) {
      this.#finish({ complete: true }, now);
      return false;
    }
    if (this.#facts.path.kind !== "inference") return false;
    answer.read(head.contentType);
    return true;
  }

  /** Notes the first non-empty chunk of the answer's body. */
  firstByte(now: MonotonicMs): void {
    this.#facts.answer.firstByte(now);
  }

  /** Takes decoded bytes of the answer's body. */
  responseBody(bytes: Uint8Array): void {
    if (this.#phase !== "answering") return;
    this.#facts.answer.push(bytes);
    this.#facts.run?.push(bytes);
  }

  /** The body cannot be decoded, so its usage counts as missing. */
  usageUnreadable(): void {
    this.#facts.answer.unreadable();
  }

  /**
   * Nothing more will come. `complete` says that the answer's end was seen; otherwise the client
   * left, the worker broke off, or Envoy cut the request.
   */
  end(complete: boolean, now: MonotonicMs): void {
    if (this.#phase === "ended") return;
    const heldMs = now - (this.#facts.heldAt ?? now);
    const cutHold = this.#phase === "held" && cutByEnvoy(this.#desk, this.#rank, heldMs);
    // The body of a pass-through answer is not read, so its end cannot be told from a break.
    const unobserved = this.#phase === "answering" && this.#facts.path.kind === "pass_through";
    this.#finish({ complete: complete || unobserved, cutHold }, now);
  }

  /** Weir failed while it worked on this request. */
  fail(now: MonotonicMs): Verdict {
    return this.#refuse(reject("internal_error", "the request could not be processed"), now);
  }

  get #producesOutput(): boolean {
    return this.#facts.path.kind === "inference" && producesOutputTokens(this.#facts.path.endpoint);
  }

  get #rank(): ClassRank {
    return this.#facts.caller.priority.effective;
  }

  #passThrough(now: MonotonicMs): Verdict {
    const any = this.#desk.rules.selector.selectAny(now);
    return any.ok ? this.#send(any.worker, undefined, now) : this.#refuse(any.rejection, now);
  }

  /** Asks for a slot. */
  #admit(plan: AdmissionPlan, now: MonotonicMs): Verdict {
    const { caller, head } = this.#facts;
    const proof = queueProof(this.#desk.seeding, head.requestId, caller, plan);
    const ask = admissionAsk<RequestLife>(this.#desk.rules, this, caller, plan, proof);
    const admission = this.#desk.admission.admit(ask, now);
    switch (admission.kind) {
      case "granted":
        this.#keep(admission.permit);
        return this.#dispatch(now);
      case "queued":
        this.#phase = "held";
        this.#waiter = admission.waiter;
        this.#facts.heldAt = now;
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
    const { head, caller } = this.#facts;
    const ask = { request: this, requestId: head.requestId, caller, plan };
    const redemption = redeemCredit<RequestLife>(this.#desk, ask, now);
    if (redemption.kind === "refused") return redemption.rejection;
    if (redemption.kind === "none") return undefined;
    this.#facts.caller = redemption.caller;
    this.#keep(redemption.permit);
    return undefined;
  }

  #keep(permit: Permit): void {
    this.#facts.permit = permit;
    this.#holdings.addLast(permit.release);
  }

  #dispatch(now: MonotonicMs): Verdict {
    const plan = this.#facts.plan;
    invariant(plan !== undefined, "a permit follows a plan");
    // Endpoints that generate nothing are no load that the engines' feedback speaks of.
    const tracker = this.#producesOutput ? askEngines(this.#desk, plan.partition) : undefined;
    if (tracker !== undefined) {
      this.#facts.decision = tracker.decision;
      this.#holdings.addLast(tracker.resolve);
      const refusal = saturated(tracker);
      if (refusal !== undefined) return this.#seed(plan, tracker.decision, refusal, now);
    }
    const query = workerQuery(plan, this.#facts.caller);
    return this.#choose(this.#desk.rules.selector.select(query, now), now);
  }

  /** The engines take no more: the request seeds, or is refused. */
  #seed(
    plan: AdmissionPlan,
    decision: FeedbackDecision,
    refusal: Rejection,
    now: MonotonicMs,
  ): Verdict {
    const { head, caller, path, permit } = this.#facts;
    invariant(path.kind === "inference", "only inference asks the engines");
    const { requestId } = head;
    const { endpoint } = path;
    const candidate = { requestId, caller, endpoint, plan, decision, proof: permit?.proof };
    this.#facts.seed = attemptSeed(this.#desk.seeding, candidate, now);
    const { run } = this.#facts;
    if (run === undefined) return this.#refuse(refusal, now);
    const selection = run.decision;
    this.#facts.selection = selection;
    this.#desk.rules.selector.decisions.add(plan.model, selection);
    // Released before the slot and after the load, so that its prefix is in its next phase first.
    this.#holdings.addFirst(run.release);
    const verdict = this.#send(run.worker, undefined, now);
    run.dispatched();
    return verdict;
  }

  #choose(selection: Selection, now: MonotonicMs): Verdict {
    this.#facts.selection = selection.decision;
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
    this.#facts.call = new WorkerCall(worker, trace, now);
    if (this.#facts.permit !== undefined) this.#desk.observer.admitted();
    const facts = routeFacts(worker, this.#facts.caller, this.#facts.plan, this.#facts.permit);
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
    this.#facts.call?.over(now);
    const settled = this.#settle(dispatched, ending.complete, now);
    const staleHoldings = this.#learn(ending.complete, settled, now);
    const record = settlementRecord(
      this.#desk,
      this.#facts,
      ending,
      { settled, staleHoldings },
      now,
    );
    this.#desk.ended(record);
  }

  /** Lets the selector learn who holds the prompt, of which a seed has told already what may be told. */
  #learn(complete: boolean, { reading }: SettledAnswer, now: MonotonicMs): number {
    const { run } = this.#facts;
    if (run !== undefined) return run.end?.staleHoldings ?? 0;
    const { fromWorker, succeeded } = this.#facts.answer;
    const success = complete && fromWorker && succeeded;
    const report = { promptTokens: reading?.promptTokens, cachedTokens: reading?.cachedTokens };
    return this.#facts.call?.learn(this.#desk.rules.selector, success, report, now) ?? 0;
  }

  /** Works out the charge and gives everything back, the slot also when the charge fails. */
  #settle(dispatched: boolean, complete: boolean, now: MonotonicMs): SettledAnswer {
    const { answer, run } = this.#facts;
    try {
      const settled = answer.settle({
        dispatched,
        complete,
        producesOutput: this.#producesOutput,
        estimateTokens: this.#facts.caller.estimate.tokens,
        takenAway: this.#facts.preemptedBy !== undefined,
      });
      run?.judge({ answer, complete, reading: settled.reading });
      this.#facts.permit?.settle(settled.charge);
      return settled;
    } finally {
      this.#holdings.giveBack(now);
    }
  }
}

// What one request has come to: everything that is learned of it on its way and that its settlement
// record is made from. The request's life writes it; nobody else does.

import type { FeedbackDecision } from "../capacity/feedback-decision.js";
import type { Caller } from "../identity/caller.js";
import type { PathDecision } from "../identity/paths.js";
import type { ClassRank } from "../model/priority.js";
import type { MonotonicMs } from "../model/time.js";
import type { Permit } from "../scheduler/permit.js";
import type { SelectionDecision } from "../selection/decision.js";
import type { AdmissionPlan } from "./admission-plan.js";
import { Answer } from "./answer.js";
import type { RequestHead } from "./heads.js";
import type { SeedAttempt } from "./seed-attempt.js";
import type { SeedRun } from "./seed-run.js";
import type { WorkerCall } from "./worker-call.js";

export class RequestFacts {
  readonly head: RequestHead;
  readonly path: PathDecision;
  readonly startedAt: MonotonicMs;
  readonly answer = new Answer();
  /** Whoever redeems a credit is, from then on, the sender that the credit was issued for. */
  caller: Caller;
  plan: AdmissionPlan | undefined;
  /** Undefined for a request that never waited. */
  heldAt: MonotonicMs | undefined;
  permit: Permit | undefined;
  /** What the engines' feedback said; undefined when it was not asked. */
  decision: FeedbackDecision | undefined;
  /** What came of a request that the feedback refused where seeds are made. */
  seed: SeedAttempt | undefined;
  selection: SelectionDecision | undefined;
  call: WorkerCall | undefined;
  preemptedBy: ClassRank | undefined;

  constructor(head: RequestHead, path: PathDecision, caller: Caller, now: MonotonicMs) {
    this.head = head;
    this.path = path;
    this.caller = caller;
    this.startedAt = now;
  }

  /** The seed that the request became; undefined for every other request. */
  get run(): SeedRun | undefined {
    return this.seed?.kind === "seeded" ? this.seed.run : undefined;
  }
}

// Makes the settlement record of a request that has ended, from what is known of it.

import type { FeedbackDecision } from "../capacity/feedback-decision.js";
import type { Caller } from "../identity/caller.js";
import type { PathDecision } from "../identity/paths.js";
import type { Ledger } from "../fairshare/ledger.js";
import type { Standing } from "../fairshare/ticket.js";
import type { ModelId } from "../model/ids.js";
import { className, type ClassRank } from "../model/priority.js";
import type { Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import type { QueueRefusal } from "../scheduler/admission.js";
import type { Permit } from "../scheduler/permit.js";
import { requestOutcome } from "../settlement/outcome.js";
import type { SelectionDecision } from "../selection/decision.js";
import type { Worker } from "../workers/worker.js";
import type { AdmissionPlan } from "./admission-plan.js";
import type { Answer, SettledAnswer } from "./answer.js";
import type { RequestHead } from "./heads.js";
import type { SettlementRecord } from "./settlement-record.js";

/** How a request ended. */
export interface Ending {
  /** The end of the worker's answer was seen. */
  readonly complete: boolean;
  readonly rejection?: Rejection;
  /** Why it has no place in the queue. */
  readonly queueRefusal?: QueueRefusal | undefined;
  /** The hold was cut by one of Envoy's timeouts. */
  readonly cutHold?: boolean;
  /** Holdings of prompts that its answer showed to be stale. */
  readonly staleHoldings?: number;
}

/** What a request had come to when it ended. */
export interface EndedRequest {
  readonly head: RequestHead;
  readonly path: PathDecision;
  readonly caller: Caller;
  readonly accountingModel: ModelId | undefined;
  readonly plan: AdmissionPlan | undefined;
  readonly permit: Permit | undefined;
  readonly worker: Worker | undefined;
  readonly selection: SelectionDecision | undefined;
  readonly preemptedBy: ClassRank | undefined;
  readonly decision: FeedbackDecision | undefined;
  readonly ledger: Ledger | undefined;
  readonly answer: Answer;
  readonly startedAt: MonotonicMs;
  readonly heldAt: MonotonicMs | undefined;
}

export function settlementRecord(
  request: EndedRequest,
  ending: Ending,
  settled: SettledAnswer,
  now: MonotonicMs,
): SettlementRecord {
  const { path, caller, plan, permit, worker, answer, heldAt, preemptedBy } = request;
  const { priority } = caller;
  const preempted = preemptedBy !== undefined;
  const status = preempted ? PREEMPTED_STATUS : (ending.rejection?.status ?? answer.status);
  const firstByteAt = answer.firstByteAt;
  return {
    requestId: request.head.requestId,
    tenant: caller.tenant,
    tenantSource: caller.source,
    refusedValues: caller.refused,
    endpoint: endpointOf(path),
    model: plan?.model,
    accountingModel: request.accountingModel,
    requestedClass: className(priority.requested),
    class: className(priority.effective),
    unknownPriorityValue: priority.unknownValue,
    partition: plan?.partition,
    unknownPartitionHeader: plan?.unknownPartitionHeader ?? false,
    worker: worker?.identity,
    selection: request.selection,
    staleHoldings: ending.staleHoldings ?? 0,
    stream: plan?.shape.stream ?? false,
    outcome: requestOutcome({
      rejected: ending.rejection !== undefined,
      admitted: worker !== undefined,
      // An answer of Envoy's own, or of Weir's to a victim, reaches the client whole.
      complete: ending.complete || preempted || !answer.fromWorker,
      status,
    }),
    rejection: preempted ? "scheduler_preempted" : ending.rejection?.code,
    status,
    codeDetails: answer.codeDetails,
    admitted: permit !== undefined && worker !== undefined,
    waited: heldAt !== undefined,
    queuedMs: permit?.queuedMs ?? (heldAt === undefined ? 0 : now - heldAt),
    promoted: permit?.promoted ?? false,
    credit: permit?.proof !== undefined,
    feedbackReason: request.decision?.reason,
    queueRefusal: ending.queueRefusal,
    share: standingOf(request),
    requestModelFallback: caller.requestModelFallback,
    preemptedBy: preempted ? className(preemptedBy) : undefined,
    timeToFirstByteMs: firstByteAt === undefined ? undefined : firstByteAt - request.startedAt,
    durationMs: now - request.startedAt,
    estimateTokens: caller.estimate.tokens,
    estimateFallback: caller.estimate.fallback,
    charge: path.kind === "inference" ? settled.charge : undefined,
    promptTokens: settled.reading?.promptTokens,
    cachedTokens: settled.reading?.cachedTokens,
    cutHold: ending.cutHold ?? false,
  };
}

/** The shares that applied to a request that waited or ran. */
function standingOf(request: EndedRequest): Standing | undefined {
  const { permit, heldAt, ledger, caller, accountingModel } = request;
  if (permit === undefined && heldAt === undefined) return undefined;
  return ledger?.standing(caller.tenant, accountingModel);
}

/** What the client of a victim was answered. */
const PREEMPTED_STATUS = 503;

function endpointOf(path: PathDecision): SettlementRecord["endpoint"] {
  if (path.kind === "inference") return path.endpoint;
  return path.kind === "pass_through" ? "pass_through" : undefined;
}

// Makes the settlement record of a request that has ended, from what is known of it.

import type { PathDecision } from "../identity/paths.js";
import type { Standing } from "../fairshare/ticket.js";
import { className } from "../model/priority.js";
import type { Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import type { QueueRefusal } from "../scheduler/admission.js";
import { requestOutcome } from "../settlement/outcome.js";
import { accountingModel } from "./admission-plan.js";
import type { SettledAnswer } from "./answer.js";
import type { DeskContext } from "./desk-context.js";
import type { RequestFacts } from "./request-facts.js";
import { seedRecord } from "./seed-record.js";
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
}

/** What came of it. */
export interface Upshot {
  readonly settled: SettledAnswer;
  /** Holdings of prompts that its answer showed to be stale. */
  readonly staleHoldings: number;
}

export function settlementRecord(
  desk: Pick<DeskContext<unknown>, "rules" | "ledger">,
  facts: RequestFacts,
  ending: Ending,
  { settled, staleHoldings }: Upshot,
  now: MonotonicMs,
): SettlementRecord {
  const { path, caller, plan, permit, answer, heldAt, preemptedBy } = facts;
  const worker = facts.call?.worker;
  const { priority } = caller;
  const preempted = preemptedBy !== undefined;
  const status = preempted ? PREEMPTED_STATUS : (ending.rejection?.status ?? answer.status);
  const firstByteAt = answer.firstByteAt;
  return {
    requestId: facts.head.requestId,
    tenant: caller.tenant,
    tenantSource: caller.source,
    refusedValues: caller.refused,
    endpoint: endpointOf(path),
    model: plan?.model,
    accountingModel: accountingModel(desk.rules, caller),
    requestedClass: className(priority.requested),
    class: className(priority.effective),
    unknownPriorityValue: priority.unknownValue,
    partition: plan?.partition,
    unknownPartitionHeader: plan?.unknownPartitionHeader ?? false,
    worker: worker?.identity,
    selection: facts.selection,
    seed: facts.seed === undefined ? undefined : seedRecord(facts.seed),
    staleHoldings,
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
    credit: permit?.proof?.origin.source === "redeemed_credit",
    feedbackReason: facts.decision?.reason,
    queueRefusal: ending.queueRefusal,
    share: standingOf(desk, facts),
    requestModelFallback: caller.requestModelFallback,
    preemptedBy: preempted ? className(preemptedBy) : undefined,
    timeToFirstByteMs: firstByteAt === undefined ? undefined : firstByteAt - facts.startedAt,
    durationMs: now - facts.startedAt,
    estimateTokens: caller.estimate.tokens,
    estimateFallback: caller.estimate.fallback,
    charge: path.kind === "inference" ? settled.charge : undefined,
    promptTokens: settled.reading?.promptTokens,
    cachedTokens: settled.reading?.cachedTokens,
    cutHold: ending.cutHold ?? false,
  };
}

/** The shares that applied to a request that waited or ran. */
function standingOf(
  { rules, ledger }: Pick<DeskContext<unknown>, "rules" | "ledger">,
  { permit, heldAt, caller }: RequestFacts,
): Standing | undefined {
  if (permit === undefined && heldAt === undefined) return undefined;
  return ledger?.standing(caller.tenant, accountingModel(rules, caller));
}

/** What the client of a victim was answered. */
const PREEMPTED_STATUS = 503;

function endpointOf(path: PathDecision): SettlementRecord["endpoint"] {
  if (path.kind === "inference") return path.endpoint;
  return path.kind === "pass_through" ? "pass_through" : undefined;
}

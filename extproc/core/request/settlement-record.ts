// What is known of one request when it has ended: the single record from which metrics and the log
// line are made. Exactly one exists per request.

import type { DecisionReason } from "../capacity/feedback-decision.js";
import type { Endpoint } from "../identity/paths.js";
import type { PriorityClass } from "../model/priority.js";
import type { RequestModelFallback } from "../identity/caller.js";
import type { TenantSource } from "../identity/tenant.js";
import type { RefusedValue } from "../identity/trusted-header.js";
import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";
import type { Standing } from "../fairshare/ticket.js";
import type { QueueRefusal } from "../scheduler/admission.js";
import type { RejectionCode } from "../model/rejection.js";
import type { Charge } from "../settlement/charge.js";
import type { RequestOutcome } from "../settlement/outcome.js";
import type { SelectionDecision } from "../selection/decision.js";
import type { SeedRecord } from "./seed-record.js";
import type { WorkerIdentity } from "../workers/worker.js";

export interface SettlementRecord {
  /** Envoy's request id; empty when Envoy sent none. */
  readonly requestId: string;
  readonly tenant: TenantKey;
  readonly tenantSource: TenantSource;
  /** Identity values that were there but not usable. */
  readonly refusedValues: readonly RefusedValue[];
  readonly endpoint: Endpoint | "pass_through" | undefined;
  /** Canonical; undefined when the request ended before its model was known. */
  readonly model: ModelId | undefined;
  /** The trusted model header, resolved; it chooses the accounting profile, never the route. */
  readonly accountingModel: ModelId | undefined;
  /** The class asked for, and the class after the tenant's ceiling. */
  readonly requestedClass: PriorityClass;
  readonly class: PriorityClass;
  readonly unknownPriorityValue: boolean;
  readonly partition: PartitionName | undefined;
  /** The partition header was trusted but named no partition. */
  readonly unknownPartitionHeader: boolean;
  readonly worker: WorkerIdentity | undefined;
  /** How the worker was chosen, or why none was; undefined when it did not come to that. */
  readonly selection: SelectionDecision | undefined;
  /** What came of it as a seed; undefined when it was not refused by the feedback where seeds are made. */
  readonly seed: SeedRecord | undefined;
  /** Holdings of prompts that its answer showed to be stale. */
  readonly staleHoldings: number;
  readonly stream: boolean;
  readonly outcome: RequestOutcome;
  /** Why Weir refused; undefined when it did not. */
  readonly rejection: RejectionCode | undefined;
  /** Status the client got, where Weir knows it. */
  readonly status: number | undefined;
  /** Envoy's own word for whose answer it was. */
  readonly codeDetails: string | undefined;
  /** True once the request had a slot and a worker. */
  readonly admitted: boolean;
  readonly waited: boolean;
  readonly queuedMs: number;
  /** It got its slot because its lane was starved. */
  readonly promoted: boolean;
  /** It redeemed a capacity credit, whatever became of it then. */
  readonly credit: boolean;
  /** What was decided by the feedback of the engines; undefined when they were not asked. */
  readonly feedbackReason: DecisionReason | undefined;
  /** Why a refused request has no place in the queue. */
  readonly queueRefusal: QueueRefusal | undefined;
  /** The shares that applied; undefined without fair sharing, or when it never asked for a slot. */
  readonly share: Standing | undefined;
  /** Why the flat weights stood in for a model's profile. */
  readonly requestModelFallback: RequestModelFallback | undefined;
  /** It ran at a worker and had to give way to a request of this class. */
  readonly preemptedBy: PriorityClass | undefined;
  /** From the arrival of the request to the first non-empty chunk of the answer. */
  readonly timeToFirstByteMs: number | undefined;
  readonly durationMs: number;
  /** Output tokens charged provisionally. */
  readonly estimateTokens: number;
  readonly estimateFallback: string | undefined;
  /** Undefined for requests that are never charged (pass-through). */
  readonly charge: Charge | undefined;
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** Envoy cut the hold itself: a timeout of its own was shorter than the queue's. */
  readonly cutHold: boolean;
}

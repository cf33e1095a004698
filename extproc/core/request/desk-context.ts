// What a request needs of the desk it lives at. An interface of its own, open in the type of the
// request, so that desk and request do not import each other.

import type { FeedbackController } from "../capacity/feedback-controller.js";
import type { FeedbackDecision } from "../capacity/feedback-decision.js";
import type { Ledger } from "../fairshare/ledger.js";
import type { ClassRank } from "../model/priority.js";
import type { AdmissionControl } from "../scheduler/admission.js";
import type { CreditRegistry, OnCreditOperation } from "../scheduler/credit-registry.js";
import type { RateCheck } from "../scheduler/rate-check.js";
import type { SlotHold } from "../scheduler/slot-hold.js";
import type { AdmissionRules } from "./admission-plan.js";
import type { SeedDesk } from "./seed-attempt.js";
import type { SettlementRecord } from "./settlement-record.js";

/** Hears what metrics and logs are made from. */
export interface RequestObserver {
  /** An inference request entered admission. */
  readonly received: () => void;
  /** It passed the rate check, or not; not called without one. */
  readonly rateChecked: (allowed: boolean) => void;
  /** The feedback of the engines was asked about it. */
  readonly decided: (decision: FeedbackDecision) => void;
  /** It got a slot and a worker. */
  readonly admitted: () => void;
  /** It ended; called exactly once per request, pass-through and refused paths included. */
  readonly settled: (record: SettlementRecord) => void;
}

/** Capacity credits as requests meet them. */
export interface CreditDesk<Request> {
  readonly registry: Pick<CreditRegistry<SlotHold<Request>>, "redeem">;
  /** Inference requests without a credit are refused. */
  readonly required: boolean;
  /** Counts what the registry does not see. */
  readonly onOperation: OnCreditOperation;
}

export interface DeskContext<Request> {
  readonly rules: AdmissionRules;
  readonly admission: AdmissionControl<Request>;
  /** Accounts of the tenants; undefined without fair sharing. */
  readonly ledger: Ledger | undefined;
  /** What the engines report; undefined when nothing is asked of them. */
  readonly feedback: FeedbackController | undefined;
  /** Undefined while credits are off. */
  readonly credits: CreditDesk<Request> | undefined;
  readonly seeding: SeedDesk;
  /** Requests per second in front of admission; undefined = unbounded. */
  readonly rateCheck: RateCheck | undefined;
  readonly observer: RequestObserver;
  /** True while new requests are refused. */
  readonly draining: boolean;
  /** True once nobody may wait any more: a request whose body comes this late is refused too. */
  readonly queueClosed: boolean;
  /** Time asked of Envoy for a held request of a class. */
  readonly holdBudgetMs: (rank: ClassRank) => number;
  /** Envoy's own timeout of a message that asked for nothing. */
  readonly messageTimeoutMs: number;
  /** Takes leave of a request; its slot and its load are already free. */
  readonly ended: (record: SettlementRecord) => void;
}

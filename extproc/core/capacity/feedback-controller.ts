// Admission by engine feedback: the one place where telemetry of the engines becomes limits of
// partitions and decisions about requests. Owns what each partition has learned, the count of requests
// begun and not ended, and the revision that says that capacities may have changed.
//
// A publication of telemetry changes capacities, a request never does: in-flight requests are counted
// by the scheduler's slots, and counting them here again would take every slot twice.

import { TransientMap } from "../model/transient-map.js";
import type { AdaptiveAdmissionConfig } from "../model/config.js";
import type { PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import {
  decisionOutcome,
  decisionReason,
  DECISION_REASONS,
  FEEDBACK_RETRY_AFTER_S,
  projectedRequests,
  type DecisionReason,
  type FeedbackDecision,
} from "./feedback-decision.js";
import type { FeedbackInputs, ObservedWorker } from "./feedback-inputs.js";
import type { FeedbackLimits } from "./feedback-limits.js";
import { PartitionFeedback, type PartitionFeedbackView } from "./feedback-partition.js";
import { SLOTS_MAX } from "./global-capacity.js";

/** The healthy workers of one partition after a publication. */
export interface PartitionReadings {
  readonly partition: PartitionName;
  readonly workers: readonly ObservedWorker[];
}

/** One request from its decision to its end. */
export interface FeedbackTracker {
  readonly decision: FeedbackDecision;
  /** Ends the request, however it ended; a second call does nothing. */
  readonly resolve: () => void;
}

export interface FeedbackExplanation {
  readonly partition: PartitionName;
  readonly outstanding: number;
  readonly decisions: Readonly<Record<DecisionReason, number>>;
  readonly lastReason: DecisionReason | undefined;
  /** Undefined while no healthy worker is known. */
  readonly learned: PartitionFeedbackView | undefined;
}

export interface FeedbackOptions {
  readonly config: AdaptiveAdmissionConfig;
  /** The slots follow {@link FeedbackController.effectiveCapacity}; decisions are then only counted. */
  readonly adaptiveCapacity: boolean;
}

interface Book {
  outstanding: number;
  readonly decisions: Record<DecisionReason, number>;
  lastReason: DecisionReason | undefined;
}

/** The controller of this configuration; undefined in mode `off`, where nothing is to be kept. */
export function createFeedbackController(options: FeedbackOptions): FeedbackController | undefined {
  return options.config.mode === "off" ? undefined : new FeedbackController(options);
}

export class FeedbackController {
  readonly #config: AdaptiveAdmissionConfig;
  readonly #adaptiveCapacity: boolean;
  readonly #nothingLearned: PartitionFeedback;
  readonly #partitions = new Map<PartitionName, PartitionFeedback>();
  readonly #books = new TransientMap<PartitionName, Book>();
  #revision = 0;

  constructor({ config, adaptiveCapacity }: FeedbackOptions) {
    invariant(config.mode !== "off", "there is no feedback controller in mode off");
    this.#config = config;
    this.#adaptiveCapacity = adaptiveCapacity;
    this.#nothingLearned = new PartitionFeedback(config);
  }

  get mode(): AdaptiveAdmissionConfig["mode"] {
    return this.#config.mode;
  }

  /** Rises by one with each publication: from then on capacities may be different. */
  get revision(): number {
    return this.#revision;
  }

  /**
   * Takes what all healthy workers report now. A partition that is not named, or has no healthy
   * worker, is forgotten with all it has learned. Readings that were there before teach nothing.
   */
  publish(readings: readonly PartitionReadings[], now: MonotonicMs): void {
    const seen = new Set<PartitionName>();
    for (const { partition, workers } of readings) {
      if (workers.length === 0) continue;
      invariant(!seen.has(partition), "a partition is published twice at once");
      seen.add(partition);
      let feedback = this.#partitions.get(partition);
      if (feedback === undefined) {
        feedback = new PartitionFeedback(this.#config);
        this.#partitions.set(partition, feedback);
      }
      feedback.publish(workers, now);
    }
    for (const partition of this.#partitions.keys()) {
      if (seen.has(partition)) continue;
      this.#partitions.delete(partition);
      this.#dropIdleBook(partition);
    }
    this.#revision += 1;
  }

  /**
   * Begins a request and decides about it. Every request counts until its tracker is resolved, the
   * refused ones too.
   *
   * @param selector the partition the request asks for; it is used only when it is the model's own or
   *   one that has workers, so that requests cannot make up partitions
   * @param own the partition of the request's model
   */
  begin(selector: PartitionName | undefined, own: PartitionName): FeedbackTracker {
    const partition = selector !== undefined && this.#partitions.has(selector) ? selector : own;
    const book = this.#bookOf(partition);
    book.outstanding += 1;
    const { inputs, limits } = this.#feedbackOf(partition);
    const projected = projectedRequests(book.outstanding, inputs);
    const reason = decisionReason(limits, projected);
    const outcome = decisionOutcome(reason);
    const refused = outcome === "would_reject";
    book.decisions[reason] += 1;
    book.lastReason = reason;
    let open = true;
    return {
      decision: {
        partition,
        reason,
        outcome,
        reject: refused && this.#config.mode === "enforce" && !this.#adaptiveCapacity,
        retryAfterS: refused ? FEEDBACK_RETRY_AFTER_S : 0,
        projected,
      },
      resolve: () => {
        if (!open) return;
        open = false;
        book.outstanding -= 1;
        invariant(book.outstanding >= 0, "more requests ended than began");
        this.#dropIdleBook(partition);
      },
    };
  }

  /**
   * Slots the partition may have in all, in flight included.
   *
   * @param staticSlots what the configuration and the workers' ceilings give it, 0..65535
   */
  effectiveCapacity(partition: PartitionName, staticSlots: number): number {
    const { limits, inputs } = this.#feedbackOf(partition);
    const { usable, pressure, runningLimit } = limits;
    if (this.#config.mode !== "enforce" || !usable) return staticSlots;
    // Engines that run nothing cannot end their pressure by themselves: one request asks them again.
    if (pressure !== undefined) return Math.min(staticSlots, inputs.running === 0 ? 1 : 0);
    if (runningLimit === undefined) return staticSlots;
    return Math.min(staticSlots, Math.max(0, Math.min(SLOTS_MAX, Math.floor(runningLimit))));
  }

  inputs(partition: PartitionName): FeedbackInputs {
    return this.#feedbackOf(partition).inputs;
  }

  limits(partition: PartitionName): FeedbackLimits {
    return this.#feedbackOf(partition).limits;
  }

  outstanding(partition: PartitionName): number {
    return this.#books.get(partition)?.outstanding ?? 0;
  }

  /** Every partition that has healthy workers or requests, by name. */
  explain(now: MonotonicMs): readonly FeedbackExplanation[] {
    const names = new Set([...this.#partitions.keys(), ...this.#books.keys()]);
    return [...names].sort().map((partition) => {
      const book = this.#books.get(partition);
      return {
        partition,
        outstanding: book?.outstanding ?? 0,
        decisions: { ...(book?.decisions ?? noDecisions()) },
        lastReason: book?.lastReason,
        learned: this.#partitions.get(partition)?.view(now),
      };
    });
  }

  #feedbackOf(partition: PartitionName): PartitionFeedback {
    return this.#partitions.get(partition) ?? this.#nothingLearned;
  }

  #bookOf(partition: PartitionName): Book {
    let book = this.#books.get(partition);
    if (book === undefined) {
      book = { outstanding: 0, decisions: noDecisions(), lastReason: undefined };
      this.#books.set(partition, book);
    }
    return book;
  }

  /** A book nobody can add to is dropped, or every model ever asked for would leave one. */
  #dropIdleBook(partition: PartitionName): void {
    if (this.#partitions.has(partition)) return;
    if (this.#books.get(partition)?.outstanding === 0) this.#books.delete(partition);
  }
}

function noDecisions(): Record<DecisionReason, number> {
  return Object.fromEntries(DECISION_REASONS.map((reason) => [reason, 0])) as Record<
    DecisionReason,
    number
  >;
}

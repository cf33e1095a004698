// The life of one seed as the request room sees it: the seed itself, the answer that has to prove it, and
// what becomes of both. A seed never changes what the client gets; it only decides whether the worker
// counts as an owner of the prompt afterwards. That takes the worker's own answer, good and whole, of
// exactly the endpoint's kind, with usage, from the worker that was chosen, at the first attempt.

import type { Endpoint } from "../identity/paths.js";
import type { MonotonicMs } from "../model/time.js";
import type { Seed, SeedEnd, SeedStory } from "../seeding/seed.js";
import type { SelectionDecision } from "../selection/decision.js";
import type { UsageReading } from "../settlement/usage-reader.js";
import { WholeAnswer } from "../settlement/whole-answer.js";
import type { Worker } from "../workers/worker.js";
import type { Answer } from "./answer.js";

/** Why an answer made nobody an owner, in the order in which it is asked. */
export const SEED_FAULTS = [
  "no_answer",
  "no_attributes",
  "not_worker_answer",
  "other_cluster",
  "several_attempts",
  "bad_status",
  "incomplete",
  "too_large",
  "wrong_kind",
  "unfinished",
  "no_usage",
] as const;
export type SeedFault = (typeof SEED_FAULTS)[number];

/** The end of the request of a seed. */
export interface SeedAnswerEnd {
  readonly answer: Answer;
  /** The end of the answer was seen. */
  readonly complete: boolean;
  readonly reading: UsageReading | undefined;
}

export class SeedRun {
  readonly #seed: Seed;
  readonly #body: WholeAnswer;
  #fault: SeedFault | undefined = "no_answer";

  /** @param responseMaxBytes of an answer that is looked at, decoded */
  constructor(seed: Seed, endpoint: Endpoint, responseMaxBytes: number) {
    this.#seed = seed;
    this.#body = new WholeAnswer(endpoint, responseMaxBytes);
  }

  get worker(): Worker {
    return this.#seed.worker;
  }

  get story(): SeedStory {
    return this.#seed.story;
  }

  /** Undefined until the seed is released. */
  get end(): SeedEnd | undefined {
    return this.#seed.end;
  }

  /** What spoke against the answer; undefined = nothing. */
  get fault(): SeedFault | undefined {
    return this.#fault;
  }

  /** How the worker was chosen. */
  get decision(): SelectionDecision {
    const { kind, ownership, matchedBlocks, owners } = this.story;
    return {
      policy: kind,
      result: kind === "cache_aware_distribution_seed" ? "clean_peer" : "owner_with_room",
      engineLoad: undefined,
      ownership,
      owners,
      matchedBlocks,
      promptBlocks: this.#seed.plan.ownership.keys.count,
    };
  }

  dispatched(): void {
    this.#seed.dispatched();
  }

  /** Takes decoded bytes of the answer's body. */
  push(bytes: Uint8Array): void {
    this.#body.push(bytes);
  }

  /** Judges the answer; a good one takes effect when the seed is released. */
  judge(end: SeedAnswerEnd): void {
    this.#fault = this.#faultOf(end);
    const { status = 0 } = end.answer;
    if (this.#fault === undefined) this.#seed.markSuccess(end.reading);
    else if (this.#fault === "bad_status" && status >= 400 && status < 500) {
      this.#seed.markRejected();
    }
  }

  /** Ends the seed; acts once. */
  readonly release = (now: MonotonicMs): void => {
    this.#seed.release(now);
  };

  #faultOf({ answer, complete }: SeedAnswerEnd): SeedFault | undefined {
    const { attributes, origin } = answer;
    if (attributes === undefined) return "no_answer";
    if (origin === "unknown") return "no_attributes";
    if (origin !== "worker") return "not_worker_answer";
    const { clusterName, attempts } = attributes;
    if (clusterName === undefined || attempts === undefined) return "no_attributes";
    if (clusterName !== this.worker.cluster) return "other_cluster";
    if (attempts !== 1) return "several_attempts";
    if (!answer.succeeded) return "bad_status";
    if (!complete) return "incomplete";
    return answer.format === "json" ? this.#body.finish() : "wrong_kind";
  }
}

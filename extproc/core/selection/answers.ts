// What the selector answers besides a worker: how it decided, what to remember for the end of the
// request, and its refusals. A refusal says 429 where waiting helps, because the workers are only taken
// for now, and 503 or 404 where it does not.

import type { ModelId } from "../model/ids.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import type { Worker } from "../workers/worker.js";
import type { CacheAwareChoice } from "./cache-aware.js";
import type { PrefixTrace, SelectionDecision, SelectionResult } from "./decision.js";
import type { PromptPrefix } from "./ownership.js";

/** A decision in which no owner had a part. */
export function loadDecision(
  policy: SelectionDecision["policy"],
  result: SelectionResult,
  prefix: PromptPrefix | undefined,
): SelectionDecision {
  return {
    policy,
    result,
    engineLoad: undefined,
    ownership: undefined,
    owners: 0,
    matchedBlocks: 0,
    promptBlocks: prefix?.keys.count ?? 0,
  };
}

export function cacheDecision(
  { result, engineLoad, ownership, owners }: CacheAwareChoice,
  prefix: PromptPrefix | undefined,
): SelectionDecision {
  return {
    policy: "cache_aware",
    result,
    engineLoad,
    ownership: ownership?.source,
    owners,
    matchedBlocks: ownership?.matchedBlocks ?? 0,
    promptBlocks: (ownership?.keys ?? prefix?.keys)?.count ?? 0,
  };
}

/**
 * What to remember until the request ends; undefined without a prompt of one full block.
 *
 * @param lastSuccessAt of the holding for which the worker was chosen, when a success tells of it
 */
export function traceOf(
  prefix: PromptPrefix | undefined,
  worker: Worker,
  lastSuccessAt: MonotonicMs | undefined,
): PrefixTrace | undefined {
  if (prefix === undefined || prefix.keys.count === 0) return undefined;
  const expected = lastSuccessAt === undefined ? undefined : { lastSuccessAt };
  return { keys: prefix.keys, generation: worker.identity.generation, expected };
}

/** Owners of the prompt exist and none of them may take it, nor may anybody else. */
export function ownersFull(): Rejection {
  return saturated("the workers that hold the beginning of the prompt cannot take the request now");
}

/** The only workers left by the headers are working on a seed. */
export function leased(): Rejection {
  return saturated("the workers that may take the request are kept for another one now");
}

export function unusable(model: ModelId): Rejection {
  return reject("no_worker", `no worker of the model "${model}" is usable now`);
}

export function unserved(model: ModelId): Rejection {
  return reject("model_not_found", `no worker serves the model "${model}"`);
}

function saturated(message: string): Rejection {
  return reject("adaptive_admission_saturated", message, { retryAfterS: 1 });
}

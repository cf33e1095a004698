// Which worker serves an admitted request: among the usable workers of its model and partition, two
// are drawn at random and the one with the smaller live load wins (Mitzenmacher, "The power of two
// choices in randomized load balancing"). Two draws keep simultaneous arrivals apart, where "always
// the least loaded" sends them all to one worker.

import type { ModelId, PartitionName } from "../model/ids.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { Rng } from "../model/rng.js";
import type { MonotonicMs } from "../model/time.js";
import type { WorkerRegistry } from "../workers/registry.js";
import type { Worker } from "../workers/worker.js";

export interface SelectionRequest {
  readonly model: ModelId;
  readonly partition: PartitionName;
  /** Only this worker; wins over exclusions. An unknown url leaves no candidate. */
  readonly targetWorkerUrl: string | undefined;
  readonly excludedWorkerUrls: readonly string[];
}

export interface SelectionContext {
  readonly registry: WorkerRegistry;
  readonly partitionOf: (worker: Worker, model: ModelId) => PartitionName;
  readonly rng: Rng;
}

export type Selection =
  | { readonly ok: true; readonly worker: Worker }
  | { readonly ok: false; readonly rejection: Rejection };

/** True when some worker of the partition is configured for the model, usable or not. */
export function isServed(
  context: SelectionContext,
  model: ModelId,
  partition: PartitionName,
): boolean {
  return context.registry
    .serving(model)
    .some((worker) => context.partitionOf(worker, model) === partition);
}

/** Chooses a worker, or says why there is none. */
export function selectWorker(
  context: SelectionContext,
  request: SelectionRequest,
  now: MonotonicMs,
): Selection {
  const { model, partition } = request;
  const candidates = context.registry
    .serving(model)
    .filter(
      (worker) =>
        context.partitionOf(worker, model) === partition &&
        isAllowed(worker, request) &&
        worker.usable(now),
    );
  const worker = lessLoadedOfTwo(candidates, context.rng);
  if (worker !== undefined) return { ok: true, worker };
  if (!isServed(context, model, partition)) {
    return {
      ok: false,
      rejection: reject("model_not_found", `no worker serves the model "${model}"`),
    };
  }
  return {
    ok: false,
    rejection: reject("no_worker", `no worker of the model "${model}" is usable now`),
  };
}

/** Chooses any usable worker, for requests that name no model. */
export function selectAnyWorker(context: SelectionContext, now: MonotonicMs): Selection {
  const candidates = Array.from(context.registry.all()).filter((worker) => worker.usable(now));
  const worker = lessLoadedOfTwo(candidates, context.rng);
  if (worker !== undefined) return { ok: true, worker };
  return { ok: false, rejection: reject("no_worker", "no worker is usable now") };
}

function isAllowed(worker: Worker, request: SelectionRequest): boolean {
  const url = worker.identity.url;
  if (request.targetWorkerUrl !== undefined) return url === request.targetWorkerUrl;
  return !request.excludedWorkerUrls.includes(url);
}

function lessLoadedOfTwo(candidates: readonly Worker[], rng: Rng): Worker | undefined {
  if (candidates.length < 2) return candidates[0];
  const first = rng.below(candidates.length);
  const offset = 1 + rng.below(candidates.length - 1);
  const one = candidates[first];
  const other = candidates[(first + offset) % candidates.length];
  if (one === undefined || other === undefined) return one;
  return other.runtime.liveLoad < one.runtime.liveLoad ? other : one;
}

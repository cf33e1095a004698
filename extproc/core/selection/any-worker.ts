// Which worker answers a request that names no model, such as the list of models? Any usable one; of
// two drawn at random the one with fewer requests in flight. Nothing is booked: such requests take no
// slot and cost an engine next to nothing.

import { reject, type Rejection } from "../model/rejection.js";
import type { MonotonicMs } from "../model/time.js";
import type { WorkerRegistry } from "../workers/registry.js";
import type { Worker } from "../workers/worker.js";
import type { Loads } from "./loads.js";

export type AnySelection =
  | { readonly ok: true; readonly worker: Worker }
  | { readonly ok: false; readonly rejection: Rejection };

/** Chooses any usable worker. */
export function chooseAnyWorker(
  registry: WorkerRegistry,
  loads: Loads,
  now: MonotonicMs,
): AnySelection {
  const usable = Array.from(registry.all()).filter((worker) => worker.usable(now));
  if (usable.length > 0) return { ok: true, worker: loads.ofTwo(usable) };
  return { ok: false, rejection: reject("no_worker", "no worker is usable now") };
}

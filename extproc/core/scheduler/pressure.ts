// How hard a class presses on its partition, from 0 to 1: the larger of its queue's filling and its
// use of the slots it may count on.

import type { ClassRank } from "../model/priority.js";
import type { PartitionView } from "./admission.js";

/** Pressure by plain figures; `capacity` is already without what is kept back for higher classes. */
export function pressure(figures: {
  /** Requests in flight beyond the class's own reservation. */
  readonly inFlight: number;
  readonly depth: number;
  readonly limit: number;
  readonly capacity: number;
}): number {
  const queue = figures.limit > 0 ? figures.depth / figures.limit : 0;
  const slots = Math.max(0, figures.inFlight) / Math.max(1, figures.capacity);
  return Math.min(1, Math.max(queue, slots));
}

/** Pressure of a class on a partition. */
export function classPressure(view: PartitionView, rank: ClassRank): number {
  if (view.capacity === undefined) return 0;
  let kept = 0;
  for (let higher = rank + 1; higher <= 3; higher += 1) kept += view.reserved[higher as ClassRank];
  return pressure({
    inFlight: view.in_flight[rank] - view.reserved[rank],
    depth: view.queued[rank],
    limit: view.queue_share[rank],
    capacity: view.capacity - kept,
  });
}

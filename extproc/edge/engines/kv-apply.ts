// Takes a batch of events into a feed's view, in steps that are small parts of a millisecond: reading and
// applying go hand in hand, so that neither holds up requests. Of a batch with a fault, or one that is left
// in its midst, the first part has been applied; its view is to be cleared. No state.

import { readBatch, type BatchFault } from "./kv-batch.js";
import type { KvFeedView } from "./kv-feed-view.js";

export interface Applied {
  readonly events: number;
  /** What was wrong; the view cannot be trusted then. */
  readonly problem: BatchFault | undefined;
}

export function* applyBatch(
  payload: Uint8Array,
  view: KvFeedView,
): Generator<undefined, Applied, void> {
  const reading = readBatch(payload);
  let problem: BatchFault | undefined;
  for (let events = 0; ;) {
    const { done, value } = reading.next();
    if (done === true) return { events, problem: value ?? problem };
    if (value !== undefined) {
      events += 1;
      const isFollowed = yield* view.apply(value);
      if (!isFollowed) {
        problem = { reason: "too_large", detail: "the engine's cache has too many blocks" };
      }
    }
    yield;
  }
}

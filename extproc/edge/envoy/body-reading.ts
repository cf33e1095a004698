// How is a body of many megabytes read without keeping everybody else from their tokens? In steps, a
// millisecond of the event loop at a time, for all such bodies together. The step is the core's; here is
// only when the next one comes, and that a reading ends with its request. Envoy waits for a reply
// meanwhile, and would give the request up, undecided, after its message timeout; so a reading that takes
// long says so before.

import type { JsonReader } from "../../core/identity/json-reader.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { SlicedWork, Steps } from "../runtime/sliced-work.js";

/** Bytes of one step: a small part of a slice, whatever they are. */
export const STEP_BYTES = 32_768;
/** Part of Envoy's message timeout after which a reading asks for more time: the body had to come, too. */
export const SLOW_READING_SHARE = 1 / 4;

export interface BodyReading {
  readonly reader: JsonReader;
  /** The request has ended: nobody needs its body any more. */
  readonly isOver: () => boolean;
  /** A reading that lasts as long is slow. */
  readonly slowMs: number;
  /** Called at most once, while there is more to read. */
  readonly onSlow: () => void;
}

/** Reads a body to its end, or until its request ends; done in a later turn of the event loop. */
export async function readBody(
  work: SlicedWork,
  now: () => MonotonicMs,
  reading: BodyReading,
): Promise<void> {
  await work.run(steps(now, reading));
}

function* steps(
  now: () => MonotonicMs,
  { reader, isOver, slowMs, onSlow }: BodyReading,
): Steps<void> {
  const startedAt = now();
  let isSlow = false;
  while (!isOver() && !reader.step(STEP_BYTES)) {
    if (!isSlow && now() - startedAt >= slowMs) {
      isSlow = true;
      onSlow();
    }
    yield;
  }
}

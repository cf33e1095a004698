// A batch read without a pause, as a list.
import {
  readBatch,
  type BatchFault,
  type KvEvent,
} from "../../../extproc/edge/engines/kv-batch.js";

export type WholeBatch =
  | { readonly kind: "batch"; readonly events: readonly KvEvent[] }
  | ({ readonly kind: "problem" } & BatchFault);

export function readWhole(payload: Uint8Array): WholeBatch {
  const events: KvEvent[] = [];
  const reading = readBatch(payload);
  for (;;) {
    const { done, value } = reading.next();
    if (done === true) return value ? { kind: "problem", ...value } : { kind: "batch", events };
    if (value !== undefined) events.push(value);
  }
}

/** Goes to the end without a pause. */
export function resultOf<Result>(steps: Iterator<unknown, Result, void>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

// Which batches of a feed have been seen? The last number, and what the last few batches were word for word,
// as digests: a relay may repeat one, and then nothing is new; under a number that was seen, anything else
// comes from an engine that has started over. State: as said.

import { createHash } from "node:crypto";

/** Digests that are kept: what may be repeated lies close behind. */
export const HISTORY_MAX_BATCHES = 16;

export interface SeenBatch {
  readonly sequence: number;
  readonly payload: Buffer;
}

export class KvHistory {
  /** Digests by sequence, oldest first. */
  readonly #digests = new Map<number, string>();
  #last: number | undefined;

  /** The highest number, also of a batch that was skipped; undefined before the first. */
  get last(): number | undefined {
    return this.#last;
  }

  /** The number that comes next. */
  get next(): number {
    return this.#last === undefined ? 0 : this.#last + 1;
  }

  add(batch: SeenBatch): void {
    this.#last = batch.sequence;
    this.#digests.set(batch.sequence, digestOf(batch));
    if (this.#digests.size <= HISTORY_MAX_BATCHES) return;
    for (const oldest of this.#digests.keys()) {
      this.#digests.delete(oldest);
      return;
    }
  }

  /** Whether this very batch is one of the last few. */
  has(batch: SeenBatch): boolean {
    return this.#digests.get(batch.sequence) === digestOf(batch);
  }

  /** The batches before `sequence` will not come. */
  skipTo(sequence: number): void {
    this.#last = sequence - 1;
  }

  clear(): void {
    this.#digests.clear();
    this.#last = undefined;
  }
}

function digestOf({ payload }: SeenBatch): string {
  return createHash("sha256").update(payload).digest("base64");
}

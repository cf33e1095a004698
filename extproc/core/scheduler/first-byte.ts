// One cell decides every race between a victim's first byte and its preemption: open, preempted, or
// streaming since some milliseconds. Both moves start from open, so exactly one of them happens, and
// neither is undone.

/** Largest time to first byte that is kept; one more stands for "preempted". */
const MILLISECONDS_MAX = 2 ** 32 - 2;
const OPEN = 0;
const PREEMPTED = MILLISECONDS_MAX + 1;

export class FirstByteCell {
  #state = OPEN;

  get open(): boolean {
    return this.#state === OPEN;
  }

  get preempted(): boolean {
    return this.#state === PREEMPTED;
  }

  /** Whole milliseconds from admission to the first byte, at least 1; undefined before it. */
  get timeToFirstByteMs(): number | undefined {
    return this.open || this.preempted ? undefined : this.#state;
  }

  /** The first byte came; false when it had come before or the request was preempted. */
  markFirstByte(elapsedMs: number): boolean {
    if (!this.open) return false;
    this.#state = Math.min(Math.max(1, Math.round(elapsedMs)), MILLISECONDS_MAX);
    return true;
  }

  /** Marks the request as preempted; false when its first byte had come or it was marked before. */
  preempt(): boolean {
    if (!this.open) return false;
    this.#state = PREEMPTED;
    return true;
  }
}

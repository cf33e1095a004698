// What happens next in virtual time? A binary heap of actions, ordered by time and, at the same time,
// by the order in which they were planned, so that a run depends on its seed alone.

export interface Planned {
  readonly atMs: number;
  readonly label: string;
  readonly run: () => void;
  /** Taken back: it stays in the heap and does nothing. */
  cancelled: boolean;
}

interface Entry extends Planned {
  readonly sequence: number;
}

export class EventQueue {
  readonly #heap: Entry[] = [];
  #sequence = 0;

  plan(atMs: number, label: string, run: () => void): Planned {
    const entry: Entry = { atMs, label, run, cancelled: false, sequence: this.#sequence };
    this.#sequence += 1;
    const heap = this.#heap;
    heap.push(entry);
    let index = heap.length - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!this.#before(index, parent)) break;
      this.#swap(index, parent);
      index = parent;
    }
    return entry;
  }

  /** Takes out the next action that was not cancelled. */
  next(): Planned | undefined {
    for (;;) {
      const entry = this.#pop();
      if (entry?.cancelled !== true) return entry;
    }
  }

  #pop(): Entry | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top;
    heap[0] = last;
    let index = 0;
    for (;;) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < heap.length && this.#before(child, least)) least = child;
      }
      if (least === index) return top;
      this.#swap(index, least);
      index = least;
    }
  }

  #before(one: number, other: number): boolean {
    const a = this.#heap[one];
    const b = this.#heap[other];
    if (a === undefined || b === undefined) return false;
    return a.atMs < b.atMs || (a.atMs === b.atMs && a.sequence < b.sequence);
  }

  #swap(one: number, other: number): void {
    const a = this.#heap[one];
    const b = this.#heap[other];
    if (a === undefined || b === undefined) return;
    this.#heap[one] = b;
    this.#heap[other] = a;
  }
}

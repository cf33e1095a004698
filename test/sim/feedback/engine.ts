// A simulated engine whose throughput has a knee: up to `knee` running requests each of them runs at
// full pace, so that throughput grows with their number; beyond it they share what there is, less
// `decline` of it for each further knee's worth of them. The engine runs no more than its own ceiling
// and no more than its KV cache holds; the rest waits in its queue, first come, first served.
//
// Running requests advance in step, so one number, the work done on each of them since the start,
// says when the next of them ends: the one that was due at the smallest number. Times are virtual
// milliseconds, work is generated tokens.

export interface EngineShape {
  /** Running requests from which on throughput no longer grows. */
  readonly knee: number;
  /** Share of the best throughput lost per further knee's worth of running requests. */
  readonly decline: number;
  /** Running requests the engine allows itself. */
  readonly ceiling: number;
  /** Running requests that fill the KV cache. */
  readonly kvRequests: number;
  /** Tokens per second of one request below the knee. */
  readonly pace: number;
}

interface Job {
  readonly doneAt: number;
}

export class KneeEngine {
  shape: EngineShape;
  /** Tokens generated since the start. */
  generated = 0;
  readonly #running: Job[] = [];
  #waiting: { readonly tokens: number; readonly atMs: number }[] = [];
  #waitingHead = 0;
  #workEach = 0;
  #atMs = 0;
  #startableAtMs = 0;
  readonly #onStart: (queuedMs: number) => void;

  constructor(shape: EngineShape, onStart: (queuedMs: number) => void) {
    this.shape = shape;
    this.#onStart = onStart;
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length - this.#waitingHead;
  }

  /** Share of the KV cache in use. */
  get usage(): number {
    return Math.min(1, this.running / this.shape.kvRequests);
  }

  /** Tokens per second with this many requests running. */
  throughputAt(running: number): number {
    const { knee, decline, pace } = this.shape;
    const best = knee * pace;
    if (running <= knee) return running * pace;
    return best * Math.max(0.3, 1 - (decline * (running - knee)) / knee);
  }

  /** When something happens next without a request coming; Infinity = never. */
  nextMs(): number {
    const first = this.#running[0];
    const start = this.#canStart() ? this.#startableAtMs : Infinity;
    if (first === undefined) return start;
    const rate = this.throughputAt(this.running) / this.running / 1_000;
    return Math.min(start, this.#atMs + Math.max(0, first.doneAt - this.#workEach) / rate);
  }

  /** Takes a request of this many tokens. */
  accept(tokens: number, nowMs: number): void {
    this.advance(nowMs);
    this.#waiting.push({ tokens, atMs: nowMs });
    this.#start(nowMs);
  }

  /** Brings the engine to `nowMs`, which lies before its next event; work done counts. */
  advance(nowMs: number): void {
    const running = this.running;
    if (running > 0) {
      const perMs = this.throughputAt(running) / 1_000;
      this.generated += perMs * (nowMs - this.#atMs);
      this.#workEach += (perMs / running) * (nowMs - this.#atMs);
    }
    this.#atMs = nowMs;
  }

  /** Runs the event due at `nowMs`; the number of requests that ended. */
  step(nowMs: number): number {
    this.advance(nowMs);
    let ended = 0;
    for (let first = this.#running[0]; first !== undefined; first = this.#running[0]) {
      if (first.doneAt > this.#workEach + 1e-9) break;
      this.#pop();
      ended += 1;
    }
    this.#start(nowMs);
    return ended;
  }

  #canStart(): boolean {
    const { ceiling, kvRequests } = this.shape;
    return this.waiting > 0 && this.running < Math.min(ceiling, Math.floor(kvRequests));
  }

  /** Starts what may start: prefill lets at most half a knee's worth of requests begin per second. */
  #start(nowMs: number): void {
    while (this.#canStart() && this.#startableAtMs <= nowMs) {
      const job = this.#waiting[this.#waitingHead];
      if (job === undefined) return;
      this.#waitingHead += 1;
      if (this.#waitingHead > 1_000) {
        this.#waiting = this.#waiting.slice(this.#waitingHead);
        this.#waitingHead = 0;
      }
      this.#startableAtMs = Math.max(this.#startableAtMs, nowMs - 1) + 2_000 / this.shape.knee;
      this.#onStart(nowMs - job.atMs);
      this.#push({ doneAt: this.#workEach + job.tokens });
    }
  }

  #push(job: Job): void {
    const heap = this.#running;
    heap.push(job);
    let at = heap.length - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(at, parent)) return;
      this.#swap(at, parent);
      at = parent;
    }
  }

  #pop(): void {
    const heap = this.#running;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    heap[0] = last;
    let at = 0;
    for (;;) {
      let least = at;
      for (const child of [2 * at + 1, 2 * at + 2]) {
        if (child < heap.length && this.#before(child, least)) least = child;
      }
      if (least === at) return;
      this.#swap(at, least);
      at = least;
    }
  }

  #before(one: number, other: number): boolean {
    return (this.#running[one]?.doneAt ?? 0) < (this.#running[other]?.doneAt ?? 0);
  }

  #swap(one: number, other: number): void {
    const heap = this.#running;
    const first = heap[one];
    const second = heap[other];
    if (first === undefined || second === undefined) return;
    heap[one] = second;
    heap[other] = first;
  }
}

// How many tokens a second does the engine produce just now? A ring of eleven buckets of 100 ms; the
// answer is the sum over the last second, of which the oldest bucket gives the part that still lies in
// it: without it a steady engine would seem to slow down by a tenth at the start of each bucket. Times
// are milliseconds of the worker's clock.

const BUCKET_MS = 100;
const WINDOW_BUCKETS = 10;
const BUCKETS = WINDOW_BUCKETS + 1;

export class ThroughputMeter {
  readonly #tokens: number[] = new Array<number>(BUCKETS).fill(0);
  #lastBucket = 0;

  add(tokens: number, nowMs: number): void {
    const slot = this.#forwardTo(nowMs);
    this.#tokens[slot] = (this.#tokens[slot] ?? 0) + tokens;
  }

  /** Tokens per second over the last second. */
  perSecond(nowMs: number): number {
    const slot = this.#forwardTo(nowMs);
    const oldest = this.#tokens[(slot + 1) % BUCKETS] ?? 0;
    const passed = (nowMs % BUCKET_MS) / BUCKET_MS;
    return this.#tokens.reduce((sum, tokens) => sum + tokens, 0) - oldest * passed;
  }

  /** Empties the buckets that time has passed over; returns the place of the current one. */
  #forwardTo(nowMs: number): number {
    const bucket = Math.floor(nowMs / BUCKET_MS);
    const passed = Math.min(BUCKETS, bucket - this.#lastBucket);
    for (let i = 0; i < passed; i += 1) this.#tokens[(bucket - i) % BUCKETS] = 0;
    this.#lastBucket = bucket;
    return bucket % BUCKETS;
  }
}

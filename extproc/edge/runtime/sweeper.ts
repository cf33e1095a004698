// Lets the core drop what has expired, a part at a time: once per period, and while there is more, again
// after the events that are waiting. So a large sweep holds up no request.

export class Sweeper {
  readonly #periodMs: number;
  readonly #sweep: () => boolean;
  #timer: NodeJS.Timeout | undefined;
  #next: NodeJS.Immediate | undefined;

  /** @param sweep drops a part; true = there is more. It must not throw. */
  constructor(periodMs: number, sweep: () => boolean) {
    this.#periodMs = periodMs;
    this.#sweep = sweep;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#step();
    }, this.#periodMs);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    clearImmediate(this.#next);
  }

  #step(): void {
    clearImmediate(this.#next);
    if (!this.#sweep()) return;
    this.#next = setImmediate(() => {
      this.#step();
    });
  }
}

// When is work done that nobody waits for? The runtime writes what a turn of the event loop sends when
// the turn is over. Whatever is done before keeps the replies of that turn back, so records of ended
// requests wait here and are handled right behind the write, all of them, in the order they came. The
// queue holds no more than one turn's records; whoever needs them sooner calls `drain`.

export class DeferredQueue<T> {
  readonly #handle: (item: T) => void;
  readonly #onFault: (error: unknown) => void;
  #items: T[] = [];

  /**
   * @param handle does the work of one item
   * @param onFault hears what `handle` throws; the other items are handled all the same
   */
  constructor(handle: (item: T) => void, onFault: (error: unknown) => void) {
    this.#handle = handle;
    this.#onFault = onFault;
  }

  push(item: T): void {
    if (this.#items.push(item) > 1) return;
    setImmediate(() => {
      this.drain();
    });
  }

  /** Handles everything that waits, now. */
  drain(): void {
    const items = this.#items;
    if (items.length === 0) return;
    this.#items = [];
    for (const item of items) {
      try {
        this.#handle(item);
      } catch (error) {
        this.#onFault(error);
      }
    }
  }
}

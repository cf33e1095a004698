// Waits until something holds that changes by events: who makes the changes calls `changed`, and only
// then is the condition looked at again. One waiter at a time.

export class ChangeWait {
  #onChange: () => void = () => undefined;

  changed(): void {
    this.#onChange();
  }

  /** Resolves when `done` holds after a change, the time is over, or `cut` fires. */
  until(done: () => boolean, limitMs: number, cut: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        cut.removeEventListener("abort", finish);
        this.#onChange = () => undefined;
        resolve();
      };
      const timer = setTimeout(finish, limitMs);
      const check = (): void => {
        if (done() || cut.aborted) finish();
      };
      this.#onChange = check;
      cut.addEventListener("abort", finish);
      check();
    });
  }
}

// How does long work share the event loop with requests? Work is a generator that stops often. All work
// given to one runner gets a millisecond per turn of the event loop together, one piece of it after the
// other, however much of it there is; between two turns everything else is served. State: the work that
// has not ended yet, the next to go on first.

/** Work of one turn. What is shorter than this is done in one go. */
export const SLICE_MS = 1;

/** Each step is a small part of SLICE_MS. */
export type Steps<Result> = Iterator<undefined, Result, void>;

export class SlicedWork {
  readonly #jobs: { readonly step: () => boolean }[] = [];
  readonly #now: () => number;
  readonly #defer: (turn: () => void) => void;

  /** The clock in milliseconds, and what puts off a turn, are given by tests. */
  constructor(
    now: () => number = () => performance.now(),
    defer: (turn: () => void) => void = setImmediate,
  ) {
    this.#now = now;
    this.#defer = defer;
  }

  /** Does the work from the next turn on. Undefined when `signal` fires first: no further step is done. */
  run<Result>(steps: Steps<Result>, signal?: AbortSignal): Promise<Result | undefined> {
    return new Promise((resolve, reject) => {
      const step = (): boolean => {
        try {
          const { done, value } = signal?.aborted === true ? ENDED : steps.next();
          if (done === true) resolve(value);
          return done === true;
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)));
          return true;
        }
      };
      this.#jobs.push({ step });
      if (this.#jobs.length === 1) this.#deferTurn();
    });
  }

  #deferTurn(): void {
    this.#defer(() => {
      this.#turn();
    });
  }

  #turn(): void {
    const endsAt = this.#now() + SLICE_MS;
    do {
      const [job] = this.#jobs;
      if (job === undefined) return;
      if (job.step()) this.#jobs.shift();
    } while (this.#now() < endsAt);
    const [job] = this.#jobs.splice(0, 1);
    if (job === undefined) return;
    this.#jobs.push(job);
    this.#deferTurn();
  }
}

const ENDED = { done: true, value: undefined } as const;

// What time is it for this worker, and when does the next thing happen? Two clocks with one face:
// the real one, and a manual one that stands still until a test advances it. Times are milliseconds
// since the worker started. A delay of 0 always means "in a later turn of the event loop", on both
// clocks, so that a worker without pace still answers while its clock stands still.

/** Undoes a scheduled call; harmless after the call has happened. */
export type Cancel = () => void;

export interface Clock {
  /** Milliseconds since the worker started. */
  now(): number;
  /** Milliseconds since 1970, for time stamps in answers. */
  epochMs(): number;
  /** Calls `run` once after `delayMs` (0 = in a later turn). */
  after(delayMs: number, run: () => void): Cancel;
}

export class RealClock implements Clock {
  readonly #startedAt = performance.now();

  now(): number {
    return performance.now() - this.#startedAt;
  }

  epochMs(): number {
    return Date.now();
  }

  after(delayMs: number, run: () => void): Cancel {
    if (delayMs <= 0) return inLaterTurn(run);
    const timer = setTimeout(run, delayMs);
    return () => {
      clearTimeout(timer);
    };
  }
}

interface Alarm {
  readonly dueAt: number;
  readonly sequence: number;
  readonly run: () => void;
}

/** Where a manual clock begins, so that time stamps are the same in every run. */
const MANUAL_EPOCH_MS = Date.UTC(2026, 0, 1);

export class ManualClock implements Clock {
  #now = 0;
  #sequence = 0;
  readonly #alarms = new Set<Alarm>();

  now(): number {
    return this.#now;
  }

  epochMs(): number {
    return MANUAL_EPOCH_MS + this.#now;
  }

  after(delayMs: number, run: () => void): Cancel {
    if (delayMs <= 0) return inLaterTurn(run);
    const alarm: Alarm = { dueAt: this.#now + delayMs, sequence: this.#sequence++, run };
    this.#alarms.add(alarm);
    return () => {
      this.#alarms.delete(alarm);
    };
  }

  /** Moves the clock forward and runs what falls due on the way, in order, including new alarms. */
  advance(byMs: number): void {
    const until = this.#now + byMs;
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#alarms.delete(next);
      this.#now = next.dueAt;
      next.run();
    }
    this.#now = until;
  }

  #next(until: number): Alarm | undefined {
    let first: Alarm | undefined;
    for (const alarm of this.#alarms) {
      if (alarm.dueAt > until) continue;
      if (first === undefined || isBefore(alarm, first)) first = alarm;
    }
    return first;
  }
}

function isBefore(one: Alarm, other: Alarm): boolean {
  if (one.dueAt !== other.dueAt) return one.dueAt < other.dueAt;
  return one.sequence < other.sequence;
}

function inLaterTurn(run: () => void): Cancel {
  const handle = setImmediate(run);
  return () => {
    clearImmediate(handle);
  };
}

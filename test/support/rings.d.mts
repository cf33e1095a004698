// Types of rings.mjs, which is plain JavaScript because `npm test` starts with nothing built.

export interface RingCounts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** A title or a sentence for each failure. */
  readonly failures: readonly string[];
  /** What a failed check printed. */
  readonly output?: string;
}

/** Runs one npm script and counts it as one test. */
export function runCheck(options: {
  readonly name: string;
  readonly script: string;
  readonly root?: string;
  readonly limitMs: number;
}): Promise<RingCounts>;

/** Runs mocha once over the given files. */
export function runMocha(options: {
  readonly name: string;
  readonly files: readonly string[];
  readonly args?: readonly string[];
  readonly timeoutMs: number;
  readonly limitMs: number;
  readonly root?: string;
  readonly stdio?: readonly string[];
  readonly graceMs?: number;
  readonly env?: Readonly<Record<string, string>>;
}): Promise<RingCounts>;

/** Ends every part that runs now. */
export function killAll(): void;

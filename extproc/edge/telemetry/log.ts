// The process's log: one JSON object per line. Secrets are redacted by name wherever an object is
// logged whole, and repeated complaints are rate-limited so that a flood cannot fill a disk.

import { pino, type Logger, type LoggerOptions } from "pino";
import type { AdminConfig } from "../../core/model/config.js";

export type Log = Logger;

const REDACTED_NAMES = [
  ...["authorization", "proxy-authorization", "x-api-key", "api_key", "apiKey"],
  ...["x-weir-capacity-credit", "x-smg-capacity-credit"],
];

/** Lines are written in batches; a crash can lose at most this long of them. */
const FLUSH_INTERVAL_MS = 200;
const BATCH_BYTES = 4_096;

export interface LogSink {
  readonly log: Log;
  /**
   * The same log without redaction, for the line of each request: its fields are fixed and hold no
   * header, and looking through them for secrets costs as much as writing them.
   */
  readonly settlementLog: Log;
  /** Writes what is still in memory. */
  readonly flush: () => void;
}

export function createLog(level: AdminConfig["log_level"], fileDescriptor = 1): LogSink {
  const destination = pino.destination({
    fd: fileDescriptor,
    sync: false,
    minLength: BATCH_BYTES,
    periodicFlush: FLUSH_INTERVAL_MS,
  });
  const paths = REDACTED_NAMES.flatMap((name) => [`["${name}"]`, `*["${name}"]`]);
  const options: LoggerOptions = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
  };
  return {
    log: pino({ ...options, redact: { paths, censor: "[redacted]" } }, destination),
    settlementLog: pino(options, destination),
    flush: () => {
      destination.flushSync();
    },
  };
}

/** A log that writes nothing; for callers that need none. */
export const silentLog = (): Log => pino({ enabled: false });

/** Lets one message per key and period through, and says how many it swallowed. */
export class RateLimitedLog {
  readonly #periodMs: number;
  readonly #now: () => number;
  readonly #last = new Map<string, { at: number; swallowed: number }>();

  constructor(periodMs: number, now: () => number) {
    this.#periodMs = periodMs;
    this.#now = now;
  }

  /** Calls `write` with the number of messages swallowed since the last one, or swallows this one. */
  once(key: string, write: (swallowed: number) => void): void {
    const now = this.#now();
    const entry = this.#last.get(key);
    if (entry !== undefined && now - entry.at < this.#periodMs) {
      entry.swallowed += 1;
      return;
    }
    this.#last.set(key, { at: now, swallowed: 0 });
    write(entry?.swallowed ?? 0);
  }
}

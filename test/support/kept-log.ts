// A log whose text can be looked at.

import { pino } from "pino";
import type { Log } from "../../extproc/edge/telemetry/log.js";

export type KeptLine = Readonly<Record<string, unknown>>;

export interface KeptLog {
  readonly log: Log;
  readonly text: () => string;
  readonly lines: () => KeptLine[];
}

export function keptLog(): KeptLog {
  const written: string[] = [];
  const log = pino({ level: "trace" }, { write: (line: string) => written.push(line) });
  return {
    log,
    text: () => written.join(""),
    lines: () => written.map((line) => JSON.parse(line) as KeptLine),
  };
}

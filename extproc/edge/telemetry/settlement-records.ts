// Counts and logs the requests that have ended, after the replies of the same turn are on their way:
// the next request has the slot of the one that ended, and its worker should not wait for a log line.
// Whoever reads metrics or ends the process calls `drain` first.

import type { SettlementRecord } from "../../core/request/settlement-record.js";
import { DeferredQueue } from "../runtime/deferred-queue.js";
import type { Log } from "./log.js";
import type { Metrics } from "./metrics.js";
import { logSettlement } from "./request-log.js";

/** @param onFault hears of a record that could be counted or logged only in part */
export function settlementRecords(
  metrics: Metrics,
  log: Log,
  onFault: (error: unknown) => void,
): DeferredQueue<SettlementRecord> {
  return new DeferredQueue((record) => {
    metrics.settled(record);
    logSettlement(log, record);
  }, onFault);
}

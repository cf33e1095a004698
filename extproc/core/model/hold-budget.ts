// How long a request may be held, and what Envoy must allow so that the hold is never cut from
// outside. One place for the arithmetic, because Weir (which asks Envoy for time) and the bootstrap
// writer (which tells Envoy how much it may grant) must agree to the second. All values are whole
// seconds. The order that must hold: queue timeout < override budget < stream idle timeout.

import type { WeirConfig } from "./config.js";
import { RANKS, type ClassRank } from "./priority.js";

/** Time Weir keeps for itself after the queue timeout: it refuses well before Envoy gives up. */
export const HOLD_MARGIN_SECS = 5;

/** Longest silence of a running answer (queue of the engine, long prefill) that Envoy lets pass. */
export const STREAM_IDLE_MARGIN_SECS = 300;

type Scheduling = Pick<WeirConfig, "scheduler">;

/** The longest time a request of a class can wait in a queue, in seconds. */
export function queueTimeoutSecs({ scheduler }: Scheduling, rank: ClassRank): number {
  return scheduler.enabled
    ? scheduler.classes[rank].queue_timeout_secs
    : scheduler.queue_timeout_secs;
}

/** The longest time any request of this configuration can wait in a queue, in seconds. */
export function longestQueueTimeoutSecs(config: Scheduling): number {
  return Math.max(...RANKS.map((rank) => queueTimeoutSecs(config, rank)));
}

/** What is asked for with `override_message_timeout` for a held request of a class. */
export function holdBudgetSecs(config: Scheduling, rank: ClassRank): number {
  return queueTimeoutSecs(config, rank) + HOLD_MARGIN_SECS;
}

/** The least `max_message_timeout` Envoy needs: the largest of all hold budgets. */
export function overrideBudgetSecs(config: Scheduling): number {
  return longestQueueTimeoutSecs(config) + HOLD_MARGIN_SECS;
}

/** The least `stream_idle_timeout`, which also runs while a request is held: hold budget + 300 s. */
export function streamIdleTimeoutSecs(config: Scheduling): number {
  return overrideBudgetSecs(config) + STREAM_IDLE_MARGIN_SECS;
}

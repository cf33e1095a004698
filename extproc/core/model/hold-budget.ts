// How long a request may be held, and what Envoy must allow so that the hold is never cut from
// outside. One place for the arithmetic, because Weir (which asks Envoy for time) and the bootstrap
// writer (which tells Envoy how much it may grant) must agree to the second. All values are whole
// seconds. The order that must hold: queue timeout < override budget < stream idle timeout.

import type { WeirConfig } from "./config.js";

/** Time Weir keeps for itself after the queue timeout: it refuses well before Envoy gives up. */
const HOLD_MARGIN_SECS = 5;

/** Longest silence of a running answer (queue of the engine, long prefill) that Envoy lets pass. */
const STREAM_IDLE_MARGIN_SECS = 300;

/** The longest time any request of this configuration can wait in a queue, in seconds. */
export function longestQueueTimeoutSecs(config: Pick<WeirConfig, "scheduler">): number {
  return config.scheduler.queue_timeout_secs;
}

/**
 * The hold budget that is asked for with `override_message_timeout`, and Envoy's
 * `max_message_timeout`: longest queue timeout + 5 s.
 */
export function overrideBudgetSecs(config: Pick<WeirConfig, "scheduler">): number {
  return longestQueueTimeoutSecs(config) + HOLD_MARGIN_SECS;
}

/** Envoy's `stream_idle_timeout`, which also runs while a request is held: hold budget + 300 s. */
export function streamIdleTimeoutSecs(config: Pick<WeirConfig, "scheduler">): number {
  return overrideBudgetSecs(config) + STREAM_IDLE_MARGIN_SECS;
}

// Health of one worker as its active checks see it. A worker is unusable until its first check has
// ended; after that it takes `failure_threshold` failed checks in a row to leave and
// `success_threshold` passed ones to come back.

import type { HealthConfig } from "../model/config.js";

export type HealthStatus = "unknown" | "healthy" | "unhealthy";

export class Health {
  readonly #config: HealthConfig;
  #status: HealthStatus = "unknown";
  /** Checks in a row that contradict the status. */
  #streak = 0;

  constructor(config: HealthConfig) {
    this.#config = config;
  }

  get status(): HealthStatus {
    return this.#status;
  }

  /** Takes the result of one check; true when the status changed. */
  record(passed: boolean): boolean {
    if (this.#status === "unknown") {
      this.#status = passed ? "healthy" : "unhealthy";
      return true;
    }
    if (passed === (this.#status === "healthy")) {
      this.#streak = 0;
      return false;
    }
    this.#streak += 1;
    const needed = passed ? this.#config.success_threshold : this.#config.failure_threshold;
    if (this.#streak < needed) return false;
    this.#status = passed ? "healthy" : "unhealthy";
    this.#streak = 0;
    return true;
  }
}

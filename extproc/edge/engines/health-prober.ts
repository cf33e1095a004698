// Active health checks: one GET per worker and interval, the next one planned when the last one has
// ended, so that a slow worker is never asked twice at once. A check passes on any 2xx answer within
// its timeout; redirects do not count, since an engine that redirects does not serve.

import type { HealthConfig } from "../../core/model/config.js";
import { deadlineAfter, getStatus } from "./http-get.js";

export interface HealthProberOptions {
  readonly health: HealthConfig;
  readonly urls: readonly string[];
  readonly onResult: (url: string, passed: boolean) => void;
  /** Called once, when every worker's first check has ended. */
  readonly onAllChecked: () => void;
}

export class HealthProber {
  readonly #options: HealthProberOptions;
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #unchecked: Set<string>;
  readonly #abort = new AbortController();

  constructor(options: HealthProberOptions) {
    this.#options = options;
    this.#unchecked = new Set(options.urls);
  }

  start(): void {
    for (const url of this.#options.urls) void this.#check(url);
  }

  stop(): void {
    this.#abort.abort();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  async #check(url: string): Promise<void> {
    const passed = await this.#probe(url);
    if (this.#abort.signal.aborted) return;
    this.#options.onResult(url, passed);
    if (this.#unchecked.delete(url) && this.#unchecked.size === 0) this.#options.onAllChecked();
    const timer = setTimeout(
      () => void this.#check(url),
      this.#options.health.interval_secs * 1_000,
    );
    this.#timers.set(url, timer);
  }

  async #probe(url: string): Promise<boolean> {
    const { path, timeout_secs } = this.#options.health;
    const deadline = deadlineAfter(timeout_secs * 1_000, this.#abort.signal);
    const status = await getStatus(new URL(path, url), { signal: deadline.signal });
    deadline.end();
    return status !== undefined && status >= 200 && status < 300;
  }
}

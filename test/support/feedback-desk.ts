// A whole core whose engines report what a test says, published by hand.

import type { CreditsConfig } from "../../extproc/core/model/config.js";
import type { RankSample, WorkerSample } from "../../extproc/core/workers/telemetry.js";
import { Bench } from "./desk.js";

export const URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2"] as const;

/** An engine that reports this; everything else is idle, with a ceiling of 64. */
export type Report = Partial<Pick<RankSample, "running" | "waiting" | "tokenUsage" | "maxRunning">>;

export class FeedbackDesk extends Bench {
  /** Of the configured workers, in their order. */
  readonly urls: readonly string[];
  #scrapes = 0;

  constructor(adaptive: object, over: object = {}, credits: Partial<CreditsConfig> = {}) {
    const sketch = {
      adaptive_admission: adaptive,
      scheduler: { max_concurrent_requests: 100, queue_size: 100 },
      fair_share: { max_queued_requests_per_tenant: 1_000 },
      ...over,
    };
    super(sketch, 1, credits);
    this.urls = Array.from(this.registry.all(), ({ identity }) => identity.url);
  }

  /** The engines of the first workers report; one without a report could not be read. */
  report(...reports: readonly (Report | undefined)[]): void {
    this.#scrapes += 1;
    const deliveries = this.urls.flatMap((url, index) => {
      const report = reports[index];
      const worker = this.registry.get(url);
      if (report === undefined || worker === undefined) return [];
      const { identity, runtime } = worker;
      const sample = sampleOf(report, this.#scrapes);
      return [{ identity, sample, observedAt: this.now, liveLoad: runtime.liveLoad }];
    });
    this.core.telemetry?.publish(this.urls, deliveries, this.now);
  }

  get slots(): number {
    return this.desk.partitions(this.now)[0]?.capacity ?? -1;
  }
}

function sampleOf(report: Report, sequence: number): WorkerSample {
  return {
    source: "vllm_metrics",
    token: { kind: "scrape", sequence },
    ranks: [
      {
        rank: 0,
        running: 0,
        waiting: 0,
        waitingUncachedTokens: undefined,
        usedTokens: undefined,
        maxTokens: undefined,
        tokenUsage: 0.5,
        utilization: undefined,
        cacheHitRate: undefined,
        tokensPerSecond: undefined,
        maxRunning: 64,
        ...report,
      },
    ],
    invalidFields: [],
    countedTokensPerSecond: undefined,
  };
}

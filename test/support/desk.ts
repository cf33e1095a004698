// A whole core on virtual time: registry, scheduler and desk from a configuration, with everything
// it tells its owner written down.

import { testCipher } from "./prefix-hasher.js";
import type { Evidence } from "../../extproc/core/identity/evidence.js";
import type { Ledger } from "../../extproc/core/fairshare/ledger.js";
import type { CreditsConfig } from "../../extproc/core/model/config.js";
import { headersFrom } from "../../extproc/core/model/headers.js";
import { tenantKey } from "../../extproc/core/model/ids.js";
import { monotonicMs, type MonotonicMs } from "../../extproc/core/model/time.js";
import type { RequestHead, ResponseHead } from "../../extproc/core/request/heads.js";
import { assembleCore, type Core } from "../../extproc/core/request/assembly.js";
import type { RequestDesk } from "../../extproc/core/request/request-desk.js";
import type { RequestLife } from "../../extproc/core/request/request-life.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { sumOf } from "../../extproc/core/scheduler/admission.js";
import type { Verdict } from "../../extproc/core/request/verdict.js";
import type { ResponseAttributes } from "../../extproc/core/settlement/answer-origin.js";
import type { WorkerRegistry } from "../../extproc/core/workers/registry.js";
import { testConfig, type ConfigSketch } from "./config.js";
import { countingBytes } from "./credits.js";

export const NO_EVIDENCE: Evidence = {
  metadata: [],
  peerSan: undefined,
  peerIsProxy: true,
  peerSanIsProxy: false,
  sourceAddress: "203.0.113.42:443",
};

export const FROM_WORKER: ResponseAttributes = {
  codeDetails: "via_upstream",
  flags: 0,
  clusterName: "worker_1",
  upstreamAddress: "127.0.0.1:1",
  attempts: 1,
};

export const NO_ATTRIBUTES: ResponseAttributes = {
  codeDetails: undefined,
  flags: undefined,
  clusterName: undefined,
  upstreamAddress: undefined,
  attempts: undefined,
};

export interface HeadSketch {
  readonly method?: string;
  readonly target?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly contentLength?: number;
  readonly contentEncoding?: string;
  readonly endOfStream?: boolean;
  readonly evidence?: Partial<Evidence>;
}

export function requestHead(sketch: HeadSketch = {}): RequestHead {
  return {
    method: sketch.method ?? "POST",
    target: sketch.target ?? "/v1/chat/completions",
    requestId: "r-1",
    headers: headersFrom(sketch.headers ?? {}),
    contentLength: sketch.contentLength,
    contentEncoding: sketch.contentEncoding,
    endOfStream: sketch.endOfStream ?? false,
    evidence: { ...NO_EVIDENCE, ...sketch.evidence },
  };
}

export function responseHead(over: Partial<ResponseHead> = {}): ResponseHead {
  return {
    status: 200,
    contentType: "application/json",
    endOfStream: false,
    attributes: FROM_WORKER,
    ...over,
  };
}

export const bytes = (value: unknown): Uint8Array =>
  new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

export const CHAT = bytes({ model: "demo", messages: [{ role: "user", content: "hi" }] });

/** One request as a test drives it. */
export interface Driven {
  readonly request: RequestLife;
  /** Every verdict in order: the one of the headers, of the body, and those that came later. */
  readonly verdicts: Verdict[];
  readonly last: () => Verdict | undefined;
}

export class Bench {
  readonly desk: RequestDesk;
  readonly registry: WorkerRegistry;
  readonly ledger: Ledger | undefined;
  readonly settled: SettlementRecord[] = [];
  /** What was counted of capacity credits, as `partition outcome`. */
  readonly operations: string[] = [];
  /** What was decided by the feedback of the engines, in order. */
  readonly decisions: string[] = [];
  readonly core: Core;
  received = 0;
  admitted = 0;
  moreWork = 0;
  /** The earliest moment at which the desk wants to be called; tests may clear it. */
  deadline: MonotonicMs | undefined;
  now = monotonicMs(0);

  constructor(over: ConfigSketch = {}, seed = 1, credits: Partial<CreditsConfig> = {}) {
    const loaded = testConfig(over);
    const config = { ...loaded, credits: { ...loaded.credits, ...credits } };
    const core = assembleCore({
      config,
      seed,
      prefixCipher: testCipher(),
      now: () => this.now,
      credits: {
        secureRandom: countingBytes(),
        onOperation: (partition, outcome) => {
          this.operations.push(`${partition ?? "unknown"} ${outcome}`);
        },
      },
      observer: {
        received: () => {
          this.received += 1;
        },
        decided: (decision) => {
          this.decisions.push(decision.reason);
        },
        rateChecked: () => undefined,
        admitted: () => {
          this.admitted += 1;
        },
        settled: (record) => {
          this.settled.push(record);
        },
      },
      onDeadline: (at) => {
        if (this.deadline === undefined || at < this.deadline) this.deadline = at;
      },
      onMoreWork: () => {
        this.moreWork += 1;
      },
    });
    this.core = core;
    this.desk = core.desk;
    this.registry = core.workers;
    this.ledger = core.ledger;
    for (const worker of config.workers) {
      this.registry.recordHealth(worker.url, true);
    }
  }

  /** Opens a request and, where it goes on, hands it its body. */
  drive(sketch: HeadSketch = {}, body: Uint8Array | null = CHAT): Driven {
    const verdicts: Verdict[] = [];
    const listen = (verdict: Verdict): void => {
      verdicts.push(verdict);
    };
    const { request, verdict } = this.desk.open(requestHead(sketch), listen, this.now);
    verdicts.push(verdict);
    if (verdict.kind === "continue" && body !== null) {
      verdicts.push(this.desk.body(request, body, this.now));
    }
    return { request, verdicts, last: () => verdicts.at(-1) };
  }

  /** Lets a whole JSON answer pass. */
  answer(driven: Driven, body: unknown = { usage: { completion_tokens: 5 } }, status = 200): void {
    this.desk.responseHeaders(driven.request, responseHead({ status }), this.now);
    driven.request.firstByte(this.now);
    driven.request.responseBody(bytes(body));
    this.desk.end(driven.request, true, this.now);
  }

  advance(ms: number): void {
    this.now = monotonicMs(this.now + ms);
  }

  /** Charged and booked output tokens of a tenant. */
  tokens(tenant: string): readonly [number, number] {
    const account = this.ledger?.account(tenantKey(tenant));
    return [account?.charged ?? 0, account?.reserved ?? 0];
  }

  /** Slots in use, waiters, requests alive, live load and bookings of all workers: zeros when all is over. */
  leftovers(): Record<string, number> {
    let inFlight = 0;
    let load = 0;
    for (const view of this.desk.partitions(this.now)) inFlight += sumOf(view.in_flight);
    for (const worker of this.registry.all()) load += worker.runtime.liveLoad;
    const { live, queued } = this.desk.counts;
    return { inFlight, load, live, queued, booked: this.core.selector.bookings.size };
  }
}

export const NOTHING_LEFT = { inFlight: 0, load: 0, live: 0, queued: 0, booked: 0 };

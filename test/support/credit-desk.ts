// Capacity credits at a whole core: what an allocator asks of it, and the requests it lets through.

import type { CreditsConfig } from "../../extproc/core/model/config.js";
import type { CreditBinding } from "../../extproc/core/scheduler/credit-binding.js";
import type { CreditIssue } from "../../extproc/core/scheduler/credit-registry.js";
import type { ConfigSketch } from "./config.js";
import { binding, POOL } from "./credits.js";
import { CHAT, type Bench, type Driven, type HeadSketch } from "./desk.js";

export const CREDITS: Partial<CreditsConfig> = { generation: "g1" };

/** Everything that credits need beside their own section. */
export const CREDIT_TRUST = {
  tenant_id: true,
  prefer_tenant_id: true,
  request_model: true,
  output_token_estimate: true,
} as const;

/** One pool with all workers of the model `demo`, and one in which nothing serves it. */
export function creditSketch(slots: number, over: ConfigSketch = {}): ConfigSketch {
  return {
    trust: CREDIT_TRUST,
    ...over,
    scheduler: {
      max_concurrent_requests: slots + 1,
      queue_size: 20,
      admission_partitions: {
        [POOL]: { max_concurrent_requests: slots, queue_size: 10 },
        empty: { max_concurrent_requests: 1, queue_size: 10 },
      },
      default_admission_partition: POOL,
      ...(over["scheduler"] as object | undefined),
    },
  };
}

/** The headers of a request that brings a credit; `tenant` travels without its prefix. */
export function creditHeaders(token: string, bound: CreditBinding): Record<string, string> {
  return {
    "x-weir-tenant-id": bound.tenant.replace(/^header:/, ""),
    "x-weir-capacity-credit": token,
    "x-weir-capacity-credit-generation": bound.generation,
    "x-weir-fair-share-policy-epoch": String(bound.policyEpoch),
    "x-weir-admission-partition": bound.partition,
    "x-weir-request-model": bound.model,
    "x-weir-capacity-credit-request-id": bound.requestId,
    "x-weir-output-token-estimate": String(bound.estimateTokens),
  };
}

/** An allocator in front of a core that has credits on. */
export class Allocator {
  readonly #bench: Bench;

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  get credits(): NonNullable<Bench["core"]["credits"]> {
    const { credits } = this.#bench.core;
    if (credits === undefined) throw new Error("credits are off");
    return credits;
  }

  get active(): number {
    return this.credits.active(POOL);
  }

  issue(over: Partial<CreditBinding> = {}): CreditIssue {
    return this.credits.issue(binding(over), this.#bench.now);
  }

  token(over: Partial<CreditBinding> = {}): string {
    const issued = this.issue(over);
    if (!issued.ok) throw new Error(issued.failure);
    return issued.token;
  }

  /** Sends the request of a credit; `headers` replace those that belong to it, null leaves one out. */
  send(
    token: string,
    over: Partial<CreditBinding> = {},
    headers: Readonly<Record<string, string | null>> = {},
    body: Uint8Array | null = CHAT,
    sketch: HeadSketch = {},
  ): Driven {
    const all = { ...creditHeaders(token, binding(over)), ...headers };
    const sent = Object.entries(all).filter(
      (entry): entry is [string, string] => entry[1] !== null,
    );
    return this.#bench.drive({ ...sketch, headers: Object.fromEntries(sent) }, body);
  }
}

/** The code of a refusal, or what else came of a request. */
export function outcomeOf(driven: Driven): string {
  const verdict = driven.last();
  if (verdict === undefined) return "nothing";
  return verdict.kind === "refuse"
    ? `${String(verdict.rejection.status)} ${verdict.rejection.code}`
    : verdict.kind;
}

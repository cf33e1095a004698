// Whom and what a credit is for: makes the binding out of a checked request and the trusted header that
// names the tenant. It refuses what no request could ever redeem, because that would only hold a slot
// until it expires: a partition nobody configured, a model that no worker of it serves, or no tenant. The
// tenant header is read by the same rules as on the way through Envoy; the peer is the socket's own.

import type { IncomingMessage } from "node:http";
import { controlRule, type ControlRule } from "../../core/identity/control-headers.js";
import { ModelNames } from "../../core/identity/model-names.js";
import {
  findPartition,
  partitionOfWorker,
  partitionRules,
  type PartitionRules,
} from "../../core/identity/partition.js";
import { readTrusted } from "../../core/identity/trusted-header.js";
import type { WeirConfig } from "../../core/model/config.js";
import { tenantKey, type PartitionName, type TenantKey } from "../../core/model/ids.js";
import type { CreditBinding } from "../../core/scheduler/credit-binding.js";
import { PeerList } from "../runtime/peer-list.js";
import type { CreditErrorCode } from "./credit-errors.js";
import type { IssueRequest } from "./credit-schemas.js";

export type BindingReading =
  | { readonly ok: true; readonly binding: CreditBinding }
  | {
      readonly ok: false;
      readonly code: CreditErrorCode;
      readonly message: string;
      /** As far as it is known. */
      readonly partition: PartitionName | undefined;
    };

export type BinderConfig = Pick<
  WeirConfig,
  "trust" | "headers" | "scheduler" | "models" | "workers"
>;

export class CreditBinder {
  readonly #tenantHeader: ControlRule;
  readonly #peers: PeerList;
  readonly #partitions: PartitionRules;
  readonly #names: ModelNames;
  /** Models by the partition in which a worker serves them. */
  readonly #served = new Map<PartitionName, Set<string>>();

  constructor(config: BinderConfig) {
    this.#tenantHeader = controlRule("tenant_id", config.trust, config.headers);
    this.#peers = new PeerList(config.trust.peers);
    this.#partitions = partitionRules(config.scheduler);
    this.#names = new ModelNames(config);
    for (const worker of config.workers) {
      for (const model of worker.models) {
        const partition = partitionOfWorker(this.#partitions, worker.labels, model);
        const models = this.#served.get(partition) ?? new Set();
        this.#served.set(partition, models.add(model));
      }
    }
  }

  bind(request: IncomingMessage, fields: IssueRequest): BindingReading {
    const partition = findPartition(this.#partitions, fields.partition);
    if (partition === undefined) {
      const message = `partition must be one of ${[...this.#partitions.known].join(", ")}`;
      return { ok: false, code: "unknown_partition", message, partition };
    }
    const refused = (message: string): BindingReading => ({
      ok: false,
      code: "invalid_capacity_credit",
      message,
      partition,
    });
    const model = this.#names.canonical(fields.model);
    if (model === undefined) return refused("model names no model that is served here");
    if (this.#served.get(partition)?.has(model) !== true) {
      return refused("no worker of the partition serves the model");
    }
    const tenant = this.#tenant(request);
    if (!tenant.ok) return refused(tenant.problem);
    const binding = {
      generation: fields.generation,
      policyEpoch: BigInt(fields.policy_epoch),
      partition,
      model,
      tenant: tenant.key,
      requestId: fields.request_id,
      estimateTokens: fields.estimated_output_tokens,
    };
    return { ok: true, binding };
  }

  #tenant(
    request: IncomingMessage,
  ):
    | { readonly ok: true; readonly key: TenantKey }
    | { readonly ok: false; readonly problem: string } {
    const peer = request.socket.remoteAddress ?? "";
    if (!this.#peers.everybody && !this.#peers.hasAddress(peer)) {
      return {
        ok: false,
        problem: "the peer is not in trust.peers, so its tenant header is not read",
      };
    }
    const { headersDistinct } = request;
    const headers = { all: (name: string) => headersDistinct[name] ?? [] };
    const reading = readTrusted(this.#tenantHeader, headers, true);
    if (reading.kind === "value") return { ok: true, key: tenantKey(`header:${reading.value}`) };
    const [own = ""] = this.#tenantHeader.names;
    const header = reading.kind === "refused" ? reading.header : own;
    const reason = reading.kind === "refused" ? reading.reason : "missing";
    return {
      ok: false,
      problem: `the tenant header "${header}" must be there once and readable (${reason})`,
    };
  }
}

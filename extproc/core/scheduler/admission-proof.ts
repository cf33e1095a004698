// The witness of one admission: that a request redeemed a capacity credit or, where the configuration
// wants that, that the fair queue gave it its slot. Whoever spends what only such a request may spend
// claims the proof first, once, and must name the request it acts for: all holders of a proof share one
// state, so neither a copy nor a retry can use it a second time.
//
//   fresh -> claimed
//        \-> revoked (the request's permit ended unclaimed)
//
// A claim grants no capacity and settles nothing; the permit stays the owner of the slot.

import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";
import { invariant } from "../model/invariant.js";

/** Whom a proof is about. */
export interface ProofSubject {
  readonly tenant: TenantKey;
  /** Id of the HTTP request, not the allocator's. */
  readonly requestId: string;
  /** Canonical. */
  readonly model: ModelId;
  readonly partition: PartitionName;
}

/** Where a proof comes from. */
export type ProofOrigin =
  | {
      readonly source: "redeemed_credit";
      /** The allocator's id of the request. */
      readonly creditRequestId: string;
      readonly generation: string;
      readonly policyEpoch: bigint;
    }
  | { readonly source: "fair_queue" };

export type ProofFailure =
  | "tenant_mismatch"
  | "request_mismatch"
  | "model_mismatch"
  | "partition_mismatch"
  | "already_claimed"
  | "revoked";

export type ProofClaiming =
  | { readonly ok: true; readonly claim: ProofClaim }
  | { readonly ok: false; readonly failure: ProofFailure };

/** What a proof was exchanged for; it is spent once. */
export class ProofClaim {
  readonly origin: ProofOrigin;
  #spent = false;

  constructor(origin: ProofOrigin) {
    this.origin = origin;
  }

  /** Spends the claim; a second time is a bug of the caller. */
  spend(): void {
    invariant(!this.#spent, "a claim is spent once");
    this.#spent = true;
  }
}

export class AdmissionProof {
  readonly #subject: ProofSubject;
  readonly origin: ProofOrigin;
  #state: "fresh" | "claimed" | "revoked" = "fresh";

  constructor(subject: ProofSubject, origin: ProofOrigin) {
    this.#subject = subject;
    this.origin = origin;
  }

  /** Exchanges the proof for its claim. A wrong subject consumes nothing, whatever the state. */
  claim(subject: ProofSubject): ProofClaiming {
    const failure = this.#mismatch(subject) ?? this.#over();
    if (failure !== undefined) return { ok: false, failure };
    this.#state = "claimed";
    return { ok: true, claim: new ProofClaim(this.origin) };
  }

  /** The permit has ended: nobody can claim it any more. A claim that was made stands. */
  revoke(): void {
    if (this.#state === "fresh") this.#state = "revoked";
  }

  #mismatch(subject: ProofSubject): ProofFailure | undefined {
    if (subject.tenant !== this.#subject.tenant) return "tenant_mismatch";
    if (subject.requestId !== this.#subject.requestId) return "request_mismatch";
    if (subject.model !== this.#subject.model) return "model_mismatch";
    if (subject.partition !== this.#subject.partition) return "partition_mismatch";
    return undefined;
  }

  #over(): ProofFailure | undefined {
    if (this.#state === "claimed") return "already_claimed";
    return this.#state === "revoked" ? "revoked" : undefined;
  }
}

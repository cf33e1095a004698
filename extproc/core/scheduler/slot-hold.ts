// A slot and a provisional charge that belong to no request yet: what a capacity credit owns. It becomes
// the permit of the request that redeems it, or goes back whole; one of the two, once. Until then no
// work stands behind it that could give way, so it is no victim of preemption.

import type { ModelId, PartitionName, TenantKey } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { MonotonicMs } from "../model/time.js";
import type { AdmissionProof } from "./admission-proof.js";
import type { Permit } from "./permit.js";

/** Who asks for a hold. */
export interface HoldAsk {
  readonly partition: PartitionName;
  readonly tenant: TenantKey;
  /** Chooses the shares that apply. */
  readonly model: ModelId;
  /** Output tokens booked on the tenant. */
  readonly estimateTokens: number;
}

type AdmitHold<T> = (request: T, proof: AdmissionProof, now: MonotonicMs) => Permit;

export class SlotHold<T> {
  readonly tenant: TenantKey;
  readonly #admit: AdmitHold<T>;
  readonly #giveBack: () => void;
  #over = false;

  /**
   * @param admit makes the permit; slot and charge are its own from then on
   * @param giveBack gives the slot back and takes the charge back
   */
  constructor(tenant: TenantKey, admit: AdmitHold<T>, giveBack: () => void) {
    this.tenant = tenant;
    this.#admit = admit;
    this.#giveBack = giveBack;
  }

  /** Becomes the permit of a request, which carries the proof of it. */
  admit(request: T, proof: AdmissionProof, now: MonotonicMs): Permit {
    invariant(!this.#over, "a hold becomes one permit");
    this.#over = true;
    return this.#admit(request, proof, now);
  }

  /** Gives everything back; nothing to do once it has become a permit. */
  readonly release = (): void => {
    if (this.#over) return;
    this.#over = true;
    this.#giveBack();
  };
}

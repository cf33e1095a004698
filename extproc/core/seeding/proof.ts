// What gives a request the right to one seed? A proof that the scheduler admitted exactly this request,
// which can be exchanged once. What a proof is and who makes it is the scheduler's; here stands what
// seeding asks of it. A wrong subject consumes nothing, and a claim that was made is never returned: a
// request that loses afterwards has lost its right to seed, not its slot.

import type { ProofFailure, ProofSubject } from "../scheduler/admission-proof.js";

/** What a proof was exchanged for. */
export interface ClaimedProof {
  /** The request is sent; to be called once. */
  spend(): void;
}

export interface SeedProof {
  /** Exchanges the proof for its claim, or says what does not fit. */
  claim(
    subject: ProofSubject,
  ):
    | { readonly ok: true; readonly claim: ClaimedProof }
    | { readonly ok: false; readonly failure: ProofFailure };
}

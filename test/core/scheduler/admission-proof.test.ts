import { expect } from "chai";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import { InvariantError } from "../../../extproc/core/model/invariant.js";
import {
  AdmissionProof,
  type ProofSubject,
} from "../../../extproc/core/scheduler/admission-proof.js";

const SUBJECT: ProofSubject = {
  tenant: tenantKey("header:a"),
  requestId: "r-1",
  model: modelId("demo"),
  partition: partitionName("pool"),
};
const ORIGIN = {
  source: "redeemed_credit",
  creditRequestId: "req-1",
  generation: "g1",
  policyEpoch: 7n,
} as const;
const WRONG = {
  tenant: tenantKey("header:b"),
  requestId: "r-2",
  model: modelId("other"),
  partition: partitionName("other"),
};

const proof = (): AdmissionProof => new AdmissionProof(SUBJECT, ORIGIN);
const outcome = (one: AdmissionProof, subject: ProofSubject = SUBJECT): string => {
  const claiming = one.claim(subject);
  return claiming.ok ? "claimed" : claiming.failure;
};

describe("an admission proof", () => {
  it("R1 is claimed once, whoever of those that share it comes first", () => {
    const one = proof();
    const copies = Array.from({ length: 16 }, () => one);
    const outcomes = copies.map((copy) => outcome(copy));
    expect(outcomes.filter((each) => each === "claimed")).to.have.length(1);
    expect(outcomes.filter((each) => each === "already_claimed")).to.have.length(15);
  });

  const mismatches = [
    ["tenant", "tenant_mismatch"],
    ["requestId", "request_mismatch"],
    ["model", "model_mismatch"],
    ["partition", "partition_mismatch"],
  ] as const;
  for (const [field, failure] of mismatches) {
    it(`R2 a wrong ${field} is told and consumes nothing`, () => {
      const one = proof();
      expect(outcome(one, { ...SUBJECT, [field]: WRONG[field] })).to.equal(failure);
      expect(outcome(one)).to.equal("claimed");
    });
  }

  it("R2 names the first mismatch in the order tenant, request, model, partition, then the state", () => {
    const one = proof();
    expect(outcome(one, WRONG)).to.equal("tenant_mismatch");
    expect(outcome(one, { ...WRONG, tenant: SUBJECT.tenant })).to.equal("request_mismatch");
    const { tenant, requestId } = SUBJECT;
    expect(outcome(one, { ...WRONG, tenant, requestId })).to.equal("model_mismatch");
    one.revoke();
    expect(outcome(one, { ...SUBJECT, partition: WRONG.partition })).to.equal("partition_mismatch");
    expect(outcome(one)).to.equal("revoked");
  });

  it("R3 a revoked proof cannot be claimed any more", () => {
    const one = proof();
    one.revoke();
    expect(outcome(one)).to.equal("revoked");
  });

  it("leaves a claim that was made as it is when it is revoked", () => {
    const one = proof();
    expect(outcome(one)).to.equal("claimed");
    one.revoke();
    expect(outcome(one)).to.equal("already_claimed");
  });

  it("gives a claim that names its origin and is spent once", () => {
    const claiming = proof().claim(SUBJECT);
    if (!claiming.ok) throw new Error(claiming.failure);
    expect(claiming.claim.origin).to.deep.equal(ORIGIN);
    claiming.claim.spend();
    expect(() => {
      claiming.claim.spend();
    }).to.throw(InvariantError);
  });
});

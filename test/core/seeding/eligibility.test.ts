import { expect } from "chai";
import { DECISION_REASONS } from "../../../extproc/core/capacity/feedback-decision.js";
import { partitionName } from "../../../extproc/core/model/ids.js";
import {
  ineligibility,
  INELIGIBLE_REASONS,
  type RefusedRequest,
} from "../../../extproc/core/seeding/eligibility.js";
import type { SeedingRules } from "../../../extproc/core/seeding/rules.js";

const POOL = partitionName("k3");
const RULES: SeedingRules = {
  ...{ mode: "enforce", seedCap: 1, maxTokenUsage: 0.9 },
  partitions: new Set([POOL]),
};

function says(over: Partial<RefusedRequest>, rules: Partial<SeedingRules> = {}): string {
  const request: RefusedRequest = {
    ...{ partition: POOL, reason: "engine_waiting", endpoint: "chat", stream: false },
    ...{ multiplicity: 1, prompts: 1, hasProof: true, ...over },
  };
  const reason = ineligibility({ ...RULES, ...rules }, request);
  if (reason !== undefined) expect(INELIGIBLE_REASONS).to.include(reason);
  return reason ?? "yes";
}

describe("which refused requests may seed", () => {
  it("S-9 is one request for one whole answer, at every endpoint that generates", () => {
    for (const endpoint of ["chat", "completions", "responses", "messages", "generate"] as const) {
      expect(says({ endpoint }), endpoint).to.equal("yes");
      expect(says({ endpoint, stream: true }), endpoint).to.equal("streaming");
    }
    for (const endpoint of ["chat", "completions", "generate"] as const) {
      expect(says({ endpoint, multiplicity: 2 }), endpoint).to.equal("several_answers");
      expect(says({ endpoint, prompts: 2 }), endpoint).to.equal("several_prompts");
      expect(says({ endpoint, prompts: undefined }), endpoint).to.equal("several_prompts");
    }
    for (const endpoint of ["embeddings", "rerank", "score"] as const) {
      expect(says({ endpoint }), endpoint).to.equal("no_output");
    }
  });

  it("is refused for waiting requests or the running limit, never for token pressure", () => {
    const may = DECISION_REASONS.filter((reason) => says({ reason }) === "yes");
    expect(may).to.deep.equal(["engine_waiting", "running_limit"]);
    expect(says({ reason: "token_pressure" })).to.equal("other_reason");
  });

  it("has a proof, and a partition that seeds", () => {
    expect(says({ hasProof: false })).to.equal("no_proof");
    expect(says({ partition: partitionName("K3") })).to.equal("partition_off");
    for (const rules of [
      { mode: "shadow" },
      { mode: "off" },
      { seedCap: 0 },
      { seedCap: 2 },
    ] as const) {
      expect(says({}, rules)).to.equal("partition_off");
    }
  });
});

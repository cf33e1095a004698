// The registry of capacity credits on virtual time: its states, its order of checks, and its bounds.

import { expect } from "chai";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import { InvariantError } from "../../../extproc/core/model/invariant.js";
import {
  bindingProblem,
  dispatchIdProblem,
  type CreditBinding,
} from "../../../extproc/core/scheduler/credit-binding.js";
import { isCreditToken } from "../../../extproc/core/scheduler/credit-token.js";
import { binding, failure, OTHER_BINDINGS, POOL, RegistryBench } from "../../support/credits.js";

const TTL_2S = { ttlMs: 2_000 };

describe("the registry of credits", () => {
  it("issues a token for a slot, and says how long it lives", () => {
    const bench = new RegistryBench();
    const issued = bench.issue();
    expect(issued).to.deep.include({ ok: true, expiresInMs: 30_000, newlyIssued: true });
    expect(issued.ok && isCreditToken(issued.token)).to.equal(true);
    expect([bench.active, bench.slots]).to.deep.equal([1, 999]);
    expect(bench.operations).to.deep.equal(["pool issued"]);
    expect(bench.wakes.at(-1)).to.equal(30_000);
  });

  it("K2 refuses a binding with a blank before the generation, and takes no slot for it", () => {
    const bench = new RegistryBench();
    expect(failure(bench.issue({ generation: " g1" }))).to.equal("invalid_binding");
    expect([bench.acquisitions, bench.registry.remembered]).to.deep.equal([0, 0]);
    expect(bench.operations).to.deep.equal(["pool invalid_binding"]);
  });

  it("K2 cannot be built with a life or a memory of no time", () => {
    expect(() => new RegistryBench({ ttlMs: 0 })).to.throw(InvariantError);
    expect(() => new RegistryBench({ retentionMs: 0 })).to.throw(InvariantError);
  });

  it("K3 the same request twice is the same token, deadline and slot; another estimate is a conflict", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    bench.at(1);
    const again = { ok: true, token, expiresInMs: 29_000, newlyIssued: false };
    expect(bench.issue()).to.deep.equal(again);
    expect(bench.active).to.equal(1);
    expect(failure(bench.issue({ estimateTokens: 2_048 }))).to.equal("request_conflict");
    expect(bench.issue()).to.deep.equal(again);
    expect([bench.active, bench.acquisitions]).to.deep.equal([1, 1]);
    expect(bench.operations).to.deep.equal([
      "pool issued",
      "pool idempotent_retry",
      "pool request_conflict",
      "pool idempotent_retry",
    ]);
  });

  it("keeps the request ids of tenants apart, however the two texts join", () => {
    const bench = new RegistryBench();
    const tokens = new Set([
      bench.token(),
      bench.token({ tenant: tenantKey("header:b") }),
      bench.token({ tenant: tenantKey("header:b1"), requestId: "req" }),
      bench.token({ tenant: tenantKey("header:b"), requestId: "1req" }),
    ]);
    expect(tokens.size).to.equal(4);
    expect(bench.active).to.equal(4);
  });

  it("K4 asks for a slot for a new credit only, and a refused one leaves no trace", () => {
    const bench = new RegistryBench({ slots: 1 });
    bench.token();
    bench.issue();
    bench.issue({ estimateTokens: 5 });
    bench.issue({ generation: "g2", requestId: "req-2" });
    expect(bench.acquisitions).to.equal(1);
    expect(failure(bench.issue({ requestId: "req-2" }))).to.equal("no_capacity");
    expect([bench.acquisitions, bench.registry.remembered]).to.deep.equal([2, 1]);
    bench.slots = 1;
    expect(bench.issue({ requestId: "req-2" })).to.deep.include({ ok: true, newlyIssued: true });
    expect(bench.operations).to.include("pool no_capacity");
  });

  it("K5 a mismatch in any fact consumes nothing; one redeem succeeds, and no second one or re-issue", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    for (const other of OTHER_BINDINGS) {
      expect(failure(bench.redeem(token, other))).to.equal("binding_mismatch");
    }
    expect(bench.active).to.equal(1);
    const redeemed = bench.redeem(token);
    expect(redeemed.ok && redeemed.hold).to.equal(bench.holds[0]);
    expect(bench.active).to.equal(0);
    expect(failure(bench.redeem(token))).to.equal("already_redeemed");
    expect(failure(bench.issue())).to.equal("already_redeemed");
    expect(bench.holds.map(({ releases }) => releases)).to.deep.equal([0]);
    expect(bench.operations.slice(-3)).to.deep.equal([
      "pool redeemed",
      "pool replay",
      "pool replay",
    ]);
  });

  it("K6 of 16 redeems in one tick one wins", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    const answers = Array.from({ length: 16 }, () => failure(bench.redeem(token)));
    expect(answers.filter((each) => each === "ok")).to.have.length(1);
    expect(answers.filter((each) => each === "already_redeemed")).to.have.length(15);
  });

  it("K7 arming gives the life once more, once, and redeem works until then", () => {
    const bench = new RegistryBench(TTL_2S);
    const token = bench.token();
    const armed = bench.at(1).arm(token);
    expect(armed).to.deep.equal({ ok: true, expiresInMs: 2_000, newlyArmed: true });
    const retried = bench.at(1.5).arm(token);
    expect(retried).to.deep.equal({ ok: true, expiresInMs: 1_500, newlyArmed: false });
    bench.at(2).maintain();
    expect(bench.active).to.equal(1);
    expect(bench.wakes.at(-1)).to.equal(3_000);
    expect(failure(bench.at(2.5).redeem(token))).to.equal("ok");
    expect(bench.operations).to.deep.equal([
      "pool issued",
      "pool armed",
      "pool arm_idempotent_retry",
      "pool redeemed",
    ]);
  });

  it("K7 an armed credit expires at its new deadline, not one millisecond earlier", () => {
    const bench = new RegistryBench(TTL_2S);
    const token = bench.token();
    bench.at(1).arm(token);
    bench.at(2.999).maintain();
    expect(bench.active).to.equal(1);
    bench.at(3).maintain();
    expect(bench.active).to.equal(0);
  });

  it("an armed credit does not hide one that is due before it", () => {
    const bench = new RegistryBench(TTL_2S);
    const armed = bench.token();
    bench.at(0.5).token({ requestId: "req-2" });
    bench.at(1).arm(armed);
    bench.at(2.5).maintain();
    expect(bench.holds.map(({ releases }) => releases)).to.deep.equal([0, 1]);
    expect(bench.wakes).to.include(3_000);
  });

  it("K8 of 16 arms of one dispatch one is new, and all see one deadline", () => {
    const bench = new RegistryBench(TTL_2S);
    const token = bench.token();
    bench.at(1);
    const answers = Array.from({ length: 16 }, () => bench.arm(token));
    expect(answers.filter((each) => each.ok && each.newlyArmed)).to.have.length(1);
    expect(answers.map((each) => each.ok && each.expiresInMs)).to.deep.equal(
      Array.from({ length: 16 }, () => 2_000),
    );
  });

  it("K8 of 16 arms by different dispatches one succeeds, and the credit is still redeemed", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    const answers = Array.from({ length: 16 }, (_, index) =>
      failure(bench.arm(token, `d-${String(index)}`)),
    );
    expect(answers.filter((each) => each === "ok")).to.have.length(1);
    expect(answers.filter((each) => each === "already_armed")).to.have.length(15);
    expect(failure(bench.redeem(token))).to.equal("ok");
  });

  describe("K9 arming is refused", () => {
    it("for an unknown token, which is counted for no partition", () => {
      const bench = new RegistryBench();
      expect(failure(bench.arm("A".repeat(43)))).to.equal("unknown");
      expect(bench.operations).to.deep.equal(["unknown arm_rejected"]);
    });

    it("for a dispatch id that is empty, of 129 bytes, padded, or holds a control character", () => {
      const bench = new RegistryBench();
      const token = bench.token();
      const wrong = ["", "d".repeat(129), "é".repeat(65), " d", "d\t", "a\u0000b", "a\u0085b"];
      for (const id of wrong) expect(failure(bench.arm(token, id)), id).to.equal("invalid_binding");
      expect(failure(bench.arm(token, "é".repeat(64)))).to.equal("ok");
      expect(bench.operations.slice(1, -1)).to.deep.equal(wrong.map(() => "pool arm_rejected"));
    });

    it("for another generation and for any other binding, and arms nothing", () => {
      const bench = new RegistryBench(TTL_2S);
      const token = bench.token();
      bench.at(1);
      for (const other of OTHER_BINDINGS) {
        const expected = other.generation === "g1" ? "binding_mismatch" : "wrong_generation";
        expect(failure(bench.arm(token, "d-1", other))).to.equal(expected);
      }
      bench.at(2).maintain();
      expect(bench.active).to.equal(0);
    });

    it("for a dead credit, with what it died of", () => {
      const bench = new RegistryBench(TTL_2S);
      const cancelled = bench.token();
      bench.cancel(cancelled);
      expect(failure(bench.arm(cancelled))).to.equal("cancelled");
      const redeemed = binding({ requestId: "req-2" });
      const token = bench.token({ requestId: "req-2" });
      bench.redeem(token, redeemed);
      expect(failure(bench.arm(token, "d-1", redeemed))).to.equal("already_redeemed");
      const expired = bench.token({ requestId: "req-3" });
      bench.at(2);
      expect(failure(bench.arm(expired, "d-1", binding({ requestId: "req-3" })))).to.equal(
        "expired",
      );
    });

    it("before the token is looked up, for a wrong dispatch id and then for another generation", () => {
      const bench = new RegistryBench();
      const other = binding({ generation: "g2" });
      expect(failure(bench.arm("A".repeat(43), "", other))).to.equal("invalid_binding");
      expect(failure(bench.arm("A".repeat(43), "d-1", other))).to.equal("wrong_generation");
    });
  });

  it("K10 cancel and expiry release what the credit owned when nothing points to it any more", () => {
    const bench = new RegistryBench({ ttlMs: 20 });
    const cancelled = bench.token();
    bench.token({ requestId: "req-2" });
    const seen: unknown[] = [];
    for (const hold of bench.holds) {
      hold.onRelease = () => {
        // A release may lead back into the registry, which must show the credit as dead.
        bench.cancel(cancelled);
        seen.push(bench.active, bench.registry.remembered);
      };
    }
    bench.cancel(cancelled);
    expect(seen).to.deep.equal([1, 2]);
    bench.at(0.02).maintain();
    expect(seen).to.deep.equal([1, 2, 0, 2]);
    expect(bench.holds.map(({ releases }) => releases)).to.deep.equal([1, 1]);
  });

  it("K10 asks to be woken at the deadline of 20 ms, and frees the slot then", () => {
    const bench = new RegistryBench({ ttlMs: 20, slots: 1 });
    bench.token();
    expect([bench.wakes, bench.slots]).to.deep.equal([[20], 0]);
    bench.at(0.02).maintain();
    expect([bench.active, bench.slots]).to.deep.equal([0, 1]);
    expect(bench.operations).to.deep.equal(["pool issued", "pool expired"]);
  });

  it("releases what is left in the next step when a release fails", () => {
    const bench = new RegistryBench(TTL_2S);
    for (const requestId of ["req-1", "req-2", "req-3"]) bench.token({ requestId });
    const [first] = bench.holds;
    if (first === undefined) throw new Error("no hold");
    first.onRelease = () => {
      throw new Error("broken");
    };
    expect(() => {
      bench.at(2).maintain();
    }).to.throw("broken");
    bench.maintain();
    expect(bench.holds.map(({ releases }) => releases)).to.deep.equal([1, 1, 1]);
  });

  it("K11 remembers a redeemed credit for its retention, then issues the request anew", () => {
    const bench = new RegistryBench({ retentionMs: 3_000 });
    const token = bench.token();
    bench.at(1).redeem(token);
    expect(failure(bench.at(2).issue())).to.equal("already_redeemed");
    expect(failure(bench.at(3.999).issue())).to.equal("already_redeemed");
    const anew = bench.at(4).issue();
    expect(anew).to.deep.include({ ok: true, newlyIssued: true });
    expect(anew.ok && anew.token).to.not.equal(token);
    expect(failure(bench.redeem(token))).to.equal("unknown");
    expect(bench.operations.at(-1)).to.equal("unknown unknown");
  });

  it("every dead credit answers with what it died of until it is forgotten, also after its deadline", () => {
    const bench = new RegistryBench(TTL_2S);
    const dead: readonly (readonly [string, string])[] = [
      ["redeemed", "already_redeemed"],
      ["cancelled", "cancelled"],
      ["expired", "expired"],
    ];
    const tokens = dead.map(([requestId]) => bench.token({ requestId }));
    bench.redeem(tokens[0] ?? "", binding({ requestId: "redeemed" }));
    bench.cancel(tokens[1] ?? "");
    for (const seconds of [2, 100, 599]) {
      bench.at(seconds);
      for (const [index, [requestId, expected]] of dead.entries()) {
        const bound = binding({ requestId });
        expect(failure(bench.redeem(tokens[index] ?? "", bound))).to.equal(expected);
        expect(failure(bench.issue({ requestId }))).to.equal(expected);
        expect(failure(bench.arm(tokens[index] ?? "", "d-1", bound))).to.equal(expected);
      }
    }
    bench.at(602).maintain();
    expect(bench.registry.remembered).to.equal(0);
    for (const token of tokens) expect(failure(bench.redeem(token))).to.equal("unknown");
  });

  it("does what is due before it answers, so no answer depends on when the reaper came by", () => {
    const bench = new RegistryBench(TTL_2S);
    const token = bench.token();
    expect(failure(bench.at(1.999).redeem(token, binding({ policyEpoch: 1n })))).to.equal(
      "binding_mismatch",
    );
    expect(failure(bench.at(2).redeem(token))).to.equal("expired");
    expect(bench.slots).to.equal(1_000);
  });

  it("expires a credit in the issue of another one, which gets its slot", () => {
    const bench = new RegistryBench({ ...TTL_2S, slots: 1 });
    bench.token();
    expect(failure(bench.at(1.999).issue({ requestId: "req-2" }))).to.equal("no_capacity");
    expect(failure(bench.at(2).issue({ requestId: "req-2" }))).to.equal("ok");
  });

  it("cancels once, and lets unknown and dead tokens be", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    bench.cancel("A".repeat(43));
    bench.cancel(token);
    bench.cancel(token);
    expect(bench.holds[0]?.releases).to.equal(1);
    expect(bench.operations).to.deep.equal(["pool issued", "pool cancelled"]);
  });

  it("counts active credits per partition", () => {
    const bench = new RegistryBench();
    const partition = partitionName("other");
    bench.token();
    const token = bench.token({ partition, requestId: "req-2" });
    expect([bench.active, bench.registry.active(partition)]).to.deep.equal([1, 1]);
    bench.cancel(token);
    expect([bench.active, bench.registry.active(partition)]).to.deep.equal([1, 0]);
  });

  it("wakes for what it has to forget, a second late, so that one wake-up serves many", () => {
    const bench = new RegistryBench({ retentionMs: 3_000 });
    bench.cancel(bench.token());
    bench.maintain();
    expect(bench.wakes.at(-1)).to.equal(4_000);
  });

  describe("with room for three", () => {
    const full = (): RegistryBench => {
      const bench = new RegistryBench({ rememberedMax: 3 });
      for (const requestId of ["req-1", "req-2", "req-3"]) bench.token({ requestId });
      return bench;
    };

    it("takes the third, and refuses a fourth while all are active, without asking for a slot", () => {
      const bench = full();
      expect(failure(bench.issue({ requestId: "req-4" }))).to.equal("no_capacity");
      expect([bench.registry.remembered, bench.acquisitions]).to.deep.equal([3, 3]);
      expect(bench.operations.at(-1)).to.equal("pool no_capacity");
    });

    it("forgets the one that is dead for longest for a new one", () => {
      const bench = full();
      const second = bench.token({ requestId: "req-2" });
      const first = bench.token({ requestId: "req-1" });
      bench.cancel(second);
      bench.cancel(first);
      bench.token({ requestId: "req-4" });
      expect(bench.registry.remembered).to.equal(3);
      expect(failure(bench.redeem(second, binding({ requestId: "req-2" })))).to.equal("unknown");
      expect(failure(bench.redeem(first))).to.equal("cancelled");
    });

    it("forgets nobody for a credit that gets no slot", () => {
      const bench = full();
      const first = bench.token({ requestId: "req-1" });
      bench.redeem(first);
      bench.slots = 0;
      expect(failure(bench.issue({ requestId: "req-4" }))).to.equal("no_capacity");
      expect(failure(bench.redeem(first))).to.equal("already_redeemed");
    });
  });

  it("never names a token in what it counts", () => {
    const bench = new RegistryBench();
    const token = bench.token();
    bench.arm(token);
    bench.redeem(token);
    bench.redeem(token);
    expect(bench.operations.join()).to.not.include(token);
  });
});

describe("a binding", () => {
  const fine = (over: Partial<CreditBinding>): boolean =>
    bindingProblem(binding(over)) === undefined;

  it("has a generation of 1 to 128 and a request id of 1 to 256 visible characters", () => {
    expect(fine({ generation: "g".repeat(128), requestId: "r".repeat(256) })).to.equal(true);
    for (const wrong of ["", " g", "g ", "a b", "a,b", "é", "g\n"]) {
      expect(fine({ generation: wrong }), wrong).to.equal(false);
      expect(fine({ requestId: wrong }), wrong).to.equal(false);
    }
    expect(fine({ generation: "g".repeat(129) })).to.equal(false);
    expect(fine({ requestId: "r".repeat(257) })).to.equal(false);
  });

  it("has an epoch from 0 to 2^64 - 1", () => {
    expect([fine({ policyEpoch: 0n }), fine({ policyEpoch: 2n ** 64n - 1n })]).to.deep.equal([
      true,
      true,
    ]);
    expect([fine({ policyEpoch: -1n }), fine({ policyEpoch: 2n ** 64n })]).to.deep.equal([
      false,
      false,
    ]);
  });

  it("has an estimate from 1 to 2^32 - 1", () => {
    for (const right of [1, 4_294_967_295]) {
      expect(fine({ estimateTokens: right }), String(right)).to.equal(true);
    }
    for (const wrong of [0, -1, 1.5, Number.NaN, 4_294_967_296]) {
      expect(fine({ estimateTokens: wrong }), String(wrong)).to.equal(false);
    }
  });

  it("names tenant, model and partition, none of them empty or padded", () => {
    for (const wrong of ["", " a", "a "]) {
      expect(fine({ tenant: tenantKey(wrong) }), wrong).to.equal(false);
      expect(fine({ model: modelId(wrong) }), wrong).to.equal(false);
      expect(fine({ partition: partitionName(wrong) }), wrong).to.equal(false);
    }
    expect(fine({ partition: POOL })).to.equal(true);
  });

  it("says what is wrong and what is allowed", () => {
    expect(bindingProblem(binding({ estimateTokens: 0 }))).to.equal(
      "estimated_output_tokens must be an integer from 1 to 4294967295",
    );
    expect(dispatchIdProblem("")).to.match(/^dispatch_id must have 1 to 128 bytes/);
    expect(dispatchIdProblem("d".repeat(128))).to.equal(undefined);
  });
});

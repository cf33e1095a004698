// A request that brings a capacity credit, at a whole core on virtual time.

import { expect } from "chai";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import type { CreditsConfig } from "../../../extproc/core/model/config.js";
import type { Rejection } from "../../../extproc/core/model/rejection.js";
import { redeemCredit } from "../../../extproc/core/request/credit-gate.js";
import { SlotHold } from "../../../extproc/core/scheduler/slot-hold.js";
import { Allocator, CREDITS, creditSketch, outcomeOf } from "../../support/credit-desk.js";
import { binding, failure, OTHER_BINDINGS, POOL } from "../../support/credits.js";
import { Bench, bytes, CHAT, NOTHING_LEFT, type Driven } from "../../support/desk.js";
import { FeedbackDesk } from "../../support/feedback-desk.js";
import type { ConfigSketch } from "../../support/config.js";

const TENANT = "header:a";

class CreditBench extends Bench {
  readonly allocator = new Allocator(this);

  constructor(slots = 4, over: ConfigSketch = {}, credits: Partial<CreditsConfig> = {}) {
    super(creditSketch(slots, over), 1, { ...CREDITS, ...credits });
  }
}

function rejection(driven: Driven): Rejection {
  const verdict = driven.last();
  if (verdict?.kind !== "refuse") throw new Error(`not refused: ${String(verdict?.kind)}`);
  return verdict.rejection;
}

const usage = (tokens: number): object => ({ usage: { completion_tokens: tokens } });
const SUBJECT = {
  tenant: tenantKey(TENANT),
  requestId: "r-1",
  model: modelId("demo"),
  partition: POOL,
};

describe("a request with a capacity credit", () => {
  it("K15 runs at once on its own slot, and is charged what it used: 37 of an estimate of 1024", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    expect(bench.tokens(TENANT)).to.deep.equal([0, 1_024]);
    const driven = bench.allocator.send(token);
    expect(driven.last()).to.deep.include({ kind: "route" });
    expect(bench.leftovers()).to.deep.equal({
      inFlight: 1,
      load: 1,
      live: 1,
      queued: 0,
      booked: 1,
    });
    expect([bench.allocator.active, bench.tokens(TENANT)]).to.deep.equal([0, [0, 1_024]]);
    bench.answer(driven, usage(37));
    expect(bench.tokens(TENANT)).to.deep.equal([37, 0]);
    expect(bench.ledger?.account(tenantKey(TENANT))?.active).to.equal(0);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(bench.settled.at(-1)).to.deep.include({
      credit: true,
      class: "default",
      partition: POOL,
      estimateTokens: 1_024,
      outcome: "success",
    });
  });

  it("K16 is refused with a wrong request id, which consumes nothing, and served with the right one", () => {
    const bench = new CreditBench();
    const token = bench.allocator.token();
    const wrong = bench.allocator.send(token, { requestId: "req-2" });
    expect(outcomeOf(wrong)).to.equal("409 capacity_credit_binding_mismatch");
    expect(bench.allocator.active).to.equal(1);
    expect(outcomeOf(bench.allocator.send(token))).to.equal("route");
    expect(bench.allocator.active).to.equal(0);
  });

  it("K6 is one of 16 that bring the same credit in one tick", () => {
    const bench = new CreditBench();
    const token = bench.allocator.token();
    const outcomes = Array.from({ length: 16 }, () => outcomeOf(bench.allocator.send(token)));
    expect(outcomes.filter((each) => each === "route")).to.have.length(1);
    expect(
      outcomes.filter((each) => each === "409 capacity_credit_already_redeemed"),
    ).to.have.length(15);
    expect(bench.leftovers()).to.deep.equal({
      inFlight: 1,
      load: 1,
      live: 1,
      queued: 0,
      booked: 1,
    });
  });

  for (const other of OTHER_BINDINGS) {
    const [field] = Object.entries(other).find(
      ([name, value]) => binding()[name as keyof typeof other] !== value,
    ) ?? [""];
    if (field === "model" || field === "partition") continue;

    it(`is refused when its ${field} is another, and its credit stays active`, () => {
      const bench = new CreditBench();
      const token = bench.allocator.token();
      const refused = bench.allocator.send(token, other);
      expect(outcomeOf(refused)).to.equal("409 capacity_credit_binding_mismatch");
      expect(rejection(refused).retryAfterS).to.equal(undefined);
      expect(bench.allocator.active).to.equal(1);
      expect(bench.operations.at(-1)).to.equal("pool binding_mismatch");
      expect(bench.leftovers()).to.deep.equal({ ...NOTHING_LEFT, inFlight: 1, load: 0, live: 0 });
    });
  }

  it("is told of a credit that is unknown, expired or cancelled", () => {
    const bench = new CreditBench();
    const cancelled = bench.allocator.token();
    bench.allocator.credits.cancel(cancelled, bench.now);
    const expired = bench.allocator.token({ requestId: "req-2" });
    bench.advance(30_000);
    const outcomes = [
      bench.allocator.send("A".repeat(43)),
      bench.allocator.send(cancelled),
      bench.allocator.send(expired, { requestId: "req-2" }),
    ].map(outcomeOf);
    expect(outcomes).to.deep.equal([
      "409 capacity_credit_unknown",
      "409 capacity_credit_cancelled",
      "409 capacity_credit_expired",
    ]);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(bench.tokens(TENANT)).to.deep.equal([0, 0]);
  });

  it("is refused when body, header and credit do not name one model, whichever of them differs", () => {
    const workers = [
      { url: "http://127.0.0.1:1", cluster: "worker_1", models: ["demo", "second"] },
    ];
    const bench = new CreditBench(4, { workers });
    const token = bench.allocator.token();
    const second = bytes({ model: "second", messages: [] });
    const asBound = bench.allocator.send(token, {}, {}, second);
    const asBody = bench.allocator.send(token, {}, { "x-weir-request-model": "second" }, second);
    const inHeader = bench.allocator.send(token, {}, { "x-weir-request-model": "second" });
    for (const refused of [asBound, asBody, inHeader]) {
      expect(outcomeOf(refused)).to.equal("409 capacity_credit_binding_mismatch");
      expect(bench.operations.at(-1)).to.equal("pool binding_mismatch");
    }
    expect(bench.operations).to.have.length(4);
    expect(bench.allocator.active).to.equal(1);
    expect(outcomeOf(bench.allocator.send(token))).to.equal("route");
  });

  it("may name its model by an alias, in the header and in the body", () => {
    const bench = new CreditBench();
    const aliased = bytes({ model: "demo-latest", messages: [] });
    const header = { "x-weir-request-model": "demo-latest" };
    expect(outcomeOf(bench.allocator.send(bench.allocator.token(), {}, header, aliased))).to.equal(
      "route",
    );
  });

  it("is not served in another partition than the one it names: no fallback, nothing consumed", () => {
    const bench = new CreditBench();
    const token = bench.allocator.token();
    const unknown = bench.allocator.send(token, {}, { "x-weir-admission-partition": "nowhere" });
    expect(outcomeOf(unknown)).to.equal("400 invalid_capacity_credit");
    expect(rejection(unknown).message).to.include('"nowhere"');
    const unserved = bench.allocator.send(token, {}, { "x-weir-admission-partition": "empty" });
    expect(outcomeOf(unserved)).to.equal("404 model_not_found");
    expect(bench.allocator.active).to.equal(1);
  });

  it("is refused with 400 for any header that is missing, blank or unreadable, and consumes nothing", () => {
    const bench = new CreditBench();
    const token = bench.allocator.token();
    const wrong: readonly Readonly<Record<string, string | null>>[] = [
      { "x-weir-capacity-credit": "" },
      { "x-weir-capacity-credit": "junk" },
      { "x-weir-capacity-credit": `${token}=` },
      { "x-weir-capacity-credit-generation": null },
      { "x-weir-fair-share-policy-epoch": "18446744073709551616" },
      { "x-weir-admission-partition": null },
      { "x-weir-request-model": " " },
      { "x-weir-capacity-credit-request-id": null },
      { "x-weir-output-token-estimate": "0" },
      { "x-weir-tenant-id": null },
      { "x-weir-tenant-id": " " },
      { "x-weir-tenant-id": "a,b" },
    ];
    for (const headers of wrong) {
      const refused = bench.allocator.send(token, {}, headers);
      const [name = ""] = Object.keys(headers);
      expect(outcomeOf(refused), name).to.equal("400 invalid_capacity_credit");
      expect(rejection(refused).message).to.not.include(token.slice(0, 20));
      expect(bench.operations.at(-1)).to.equal("unknown invalid_binding");
    }
    expect(bench.allocator.active).to.equal(1);
    expect(outcomeOf(bench.allocator.send(token))).to.equal("route");
  });

  it("never has its token in a record, a refusal or a counter", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    const all = [
      bench.allocator.send(token, { requestId: "req-2" }),
      bench.allocator.send(token),
      bench.allocator.send(token),
      bench.allocator.send(token, {}, { "x-weir-admission-partition": "nowhere" }),
    ];
    const told = all
      .flatMap(({ verdicts }) => verdicts)
      .map((verdict) => (verdict.kind === "refuse" ? verdict.rejection : verdict.kind));
    const texts = JSON.stringify([told, bench.settled, bench.operations]);
    expect(texts).to.not.include(token);
  });

  it("ignores its priority header and the ceiling of its tenant", () => {
    const bench = new CreditBench(1, {
      scheduler: { default_max_class: "bulk", tenant_policies: {} },
    });
    const token = bench.allocator.token();
    const driven = bench.allocator.send(token, {}, { "x-weir-priority": "urgent" });
    expect(outcomeOf(driven)).to.equal("route");
    expect(bench.desk.partitions(bench.now)[0]?.in_flight).to.deep.equal([0, 1, 0, 0]);
    bench.answer(driven);
    expect(bench.settled.at(-1)).to.deep.include({
      class: "default",
      requestedClass: "default",
      unknownPriorityValue: false,
      queuedMs: 0,
      waited: false,
    });
  });

  it("passes the queue, whose order stays as it is", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    const waiting = [bench.drive(), bench.drive()];
    expect(waiting.map(outcomeOf)).to.deep.equal(["hold", "hold"]);
    const driven = bench.allocator.send(token);
    expect(outcomeOf(driven)).to.equal("route");
    bench.answer(driven);
    expect(waiting.map(outcomeOf)).to.deep.equal(["route", "hold"]);
  });

  it("is ordinary when a peer that is no proxy sends it, and when credits are off", () => {
    const bench = new CreditBench(2);
    const token = bench.allocator.token();
    const forged = bench.allocator.send(token, {}, {}, CHAT, { evidence: { peerIsProxy: false } });
    expect(outcomeOf(forged)).to.equal("route");
    expect([bench.allocator.active, forged.request.proof]).to.deep.equal([1, undefined]);
    const off = new Bench(creditSketch(2));
    expect(off.core.credits).to.equal(undefined);
    const headers = { "x-weir-capacity-credit": "junk" };
    expect(outcomeOf(off.drive({ headers }))).to.equal("route");
  });

  it("takes the estimate, not the default, from a request whose own estimate header is not read", () => {
    const bench = new CreditBench(1);
    const driven = bench.allocator.send(bench.allocator.token());
    bench.desk.end(driven.request, false, bench.now);
    expect(bench.tokens(TENANT)).to.deep.equal([1_024, 0]);
  });

  describe("K17 once redeemed, and then refused", () => {
    const SLOT_OF_100 = {
      scheduler: {
        max_concurrent_requests: 100,
        queue_size: 100,
        admission_partitions: { [POOL]: { max_concurrent_requests: 1, queue_size: 10 } },
        default_admission_partition: POOL,
        adaptive_capacity: false,
      },
    };

    it("by the engines' feedback, gives slot and charge back; the credit stays redeemed", () => {
      const sketch = creditSketch(1, SLOT_OF_100);
      const bench = new FeedbackDesk({ mode: "enforce" }, sketch, CREDITS);
      const allocator = new Allocator(bench);
      bench.report({ waiting: 5 }, { waiting: 5 });
      const token = allocator.token();
      expect(failure(allocator.issue({ requestId: "req-2" }))).to.equal("no_capacity");
      const refused = allocator.send(token);
      expect(outcomeOf(refused)).to.equal("429 adaptive_admission_saturated");
      expect([allocator.active, bench.tokens(TENANT)]).to.deep.equal([0, [0, 0]]);
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
      expect(failure(allocator.issue({ requestId: "req-2" }))).to.equal("ok");
      expect(outcomeOf(allocator.send(token))).to.equal("409 capacity_credit_already_redeemed");
      expect(bench.settled[0]).to.deep.include({ credit: true, admitted: false });
    });

    it("by the rate check, gives slot and charge back; the credit stays redeemed", () => {
      const bench = new CreditBench(1, { scheduler: { rate_limit_tokens_per_second: 1 } });
      const allocator = bench.allocator;
      const token = allocator.token();
      // The burst of the check is the two slots of the fleet; requests of an unknown credit take none.
      for (let index = 0; index < 4; index += 1) {
        expect(outcomeOf(allocator.send("A".repeat(43)))).to.equal("409 capacity_credit_unknown");
      }
      bench.desk.end(bench.drive().request, false, bench.now);
      bench.desk.end(bench.drive().request, false, bench.now);
      const refused = allocator.send(token);
      expect(outcomeOf(refused)).to.equal("429 rate_limited");
      expect(rejection(refused).retryAfterS).to.equal(1);
      expect([allocator.active, bench.tokens(TENANT)]).to.deep.equal([0, [0, 0]]);
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
      expect(failure(allocator.issue({ requestId: "req-2" }))).to.equal("ok");
      expect(outcomeOf(allocator.send(token))).to.equal("409 capacity_credit_already_redeemed");
    });

    it("because no worker is usable, gives slot and charge back", () => {
      const bench = new CreditBench(1);
      const token = bench.allocator.token();
      for (const { identity } of [...bench.registry.all(), ...bench.registry.all()]) {
        bench.registry.recordHealth(identity.url, false);
      }
      expect(outcomeOf(bench.allocator.send(token))).to.equal("503 no_worker");
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
      expect(bench.tokens(TENANT)).to.deep.equal([0, 0]);
    });
  });

  it("K18 issues nothing at a learned capacity of 0, and exactly one credit at 1", () => {
    const sketch = creditSketch(100, {
      scheduler: {
        max_concurrent_requests: 101,
        queue_size: 100,
        admission_partitions: { [POOL]: { max_concurrent_requests: 100, queue_size: 10 } },
      },
    });
    const bench = new FeedbackDesk({ mode: "enforce" }, sketch, CREDITS);
    const allocator = new Allocator(bench);
    const busy = { running: 1, waiting: 9 };
    bench.report(busy, busy);
    expect(bench.slots).to.equal(0);
    expect(failure(allocator.issue())).to.equal("no_capacity");
    expect([allocator.active, bench.leftovers()]).to.deep.equal([0, NOTHING_LEFT]);
    bench.report({ waiting: 9 }, {});
    expect(bench.slots).to.equal(1);
    expect(failure(allocator.issue())).to.equal("ok");
    expect(failure(allocator.issue({ requestId: "req-2" }))).to.equal("no_capacity");
    expect(allocator.active).to.equal(1);
  });

  it("R5 can claim its proof once, with its own tenant, request id, model and partition", () => {
    const bench = new CreditBench();
    const { proof } = bench.allocator.send(bench.allocator.token()).request;
    const other = { ...SUBJECT, partition: partitionName("empty") };
    expect(proof?.claim(other)).to.deep.equal({ ok: false, failure: "partition_mismatch" });
    expect(proof?.claim(SUBJECT).ok).to.equal(true);
    expect(proof?.claim(SUBJECT)).to.deep.equal({ ok: false, failure: "already_claimed" });
  });

  it("R3 leaves no proof to claim when it has ended, however it ended", () => {
    const bench = new CreditBench();
    const ends: readonly ((driven: Driven) => void)[] = [
      (driven) => {
        bench.answer(driven);
      },
      (driven) => {
        bench.desk.end(driven.request, false, bench.now);
      },
      (driven) => {
        bench.desk.fail(driven.request, bench.now);
      },
    ];
    for (const [index, end] of ends.entries()) {
      const requestId = `req-${String(index)}`;
      const driven = bench.allocator.send(bench.allocator.token({ requestId }), { requestId });
      end(driven);
      expect(driven.request.proof?.claim(SUBJECT)).to.deep.equal({
        ok: false,
        failure: "revoked",
      });
    }
  });

  it("R4 is alone in having a proof: no ordinary request has one", () => {
    const bench = new CreditBench();
    const driven = bench.drive();
    expect([outcomeOf(driven), driven.request.proof]).to.deep.equal(["route", undefined]);
    bench.answer(driven);
    expect(bench.settled.at(-1)).to.deep.include({ credit: false });
  });

  it("is refused as an internal fault when its slot belongs to another tenant, and the slot goes back", () => {
    const bench = new CreditBench();
    const { request } = bench.drive({}, null);
    let released = 0;
    const hold = new SlotHold<unknown>(
      tenantKey("header:b"),
      () => {
        throw new Error("no permit is made");
      },
      () => {
        released += 1;
      },
    );
    const redemption = redeemCredit<unknown>(
      {
        credits: {
          registry: { redeem: () => ({ ok: true, hold }) },
          required: false,
          onOperation: () => undefined,
        },
        rules: { names: { canonical: () => modelId("demo") } } as never,
      },
      {
        request,
        requestId: "r-1",
        caller: {
          tenant: tenantKey(TENANT),
          credit: { kind: "presented", ...binding(), token: "A".repeat(43) },
        } as never,
        plan: { model: modelId("demo"), partition: POOL } as never,
      },
      bench.now,
    );
    expect(redemption).to.have.nested.property("rejection.code", "capacity_credit_internal");
    expect(redemption).to.have.nested.property("rejection.status", 500);
    expect(released).to.equal(1);
  });

  it("gives way to a request of a higher class like any other of its class, at no cost", () => {
    const bench = new CreditBench(1, {
      scheduler: { classes: {}, default_max_class: "system", reserved_share_max: 0 },
    });
    const driven = bench.allocator.send(bench.allocator.token());
    const urgent = bench.drive({ headers: { "x-weir-priority": "interactive" } });
    expect(outcomeOf(driven)).to.equal("503 scheduler_preempted");
    bench.desk.end(driven.request, false, bench.now);
    bench.desk.turn(bench.now);
    expect(outcomeOf(urgent)).to.equal("route");
    expect(bench.tokens(TENANT)).to.deep.equal([0, 0]);
    expect(bench.settled.at(-1)).to.deep.include({ credit: true, preemptedBy: "interactive" });
  });
});

describe("a credit that nobody redeems", () => {
  it("K10 gives its slot to those who wait when it expires, woken by the desk's own deadline", () => {
    const bench = new CreditBench(1);
    bench.allocator.token();
    expect(bench.deadline).to.equal(30_000);
    const waiting = bench.drive();
    expect(outcomeOf(waiting)).to.equal("hold");
    bench.advance(29_999);
    bench.desk.expire(bench.now);
    expect(outcomeOf(waiting)).to.equal("hold");
    bench.advance(1);
    bench.desk.expire(bench.now);
    expect(outcomeOf(waiting)).to.equal("route");
    expect([bench.allocator.active, bench.tokens(TENANT)]).to.deep.equal([0, [0, 0]]);
  });

  it("K19 frees its slot when it is cancelled, and asks for a turn to give it to those who wait", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    const waiting = bench.drive();
    const asked = bench.moreWork;
    bench.allocator.credits.cancel(token, bench.now);
    expect(outcomeOf(waiting), "granted outside the registry's step").to.equal("hold");
    expect(bench.moreWork).to.equal(asked + 1);
    bench.desk.turn(bench.now);
    expect(outcomeOf(waiting)).to.equal("route");
  });

  it("is no victim of a higher class that waits", () => {
    const bench = new CreditBench(1, {
      scheduler: { classes: {}, default_max_class: "system", reserved_share_max: 0 },
    });
    bench.allocator.token();
    const urgent = bench.drive({ headers: { "x-weir-priority": "system" } });
    expect([outcomeOf(urgent), bench.allocator.active]).to.deep.equal(["hold", 1]);
  });

  it("is issued only after those who wait for a slot that is already free have it", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    const waiting = bench.drive();
    bench.allocator.credits.cancel(token, bench.now);
    expect(outcomeOf(waiting), "its turn has not come").to.equal("hold");
    const issued = bench.allocator.issue({ requestId: "another" });
    expect(issued).to.deep.include({ ok: false, failure: "no_capacity" });
    expect(outcomeOf(waiting)).to.equal("route");
  });

  it("does not get the slot of a request that had to give way to a waiter", () => {
    const bench = new CreditBench(1, {
      scheduler: { classes: {}, default_max_class: "system", reserved_share_max: 0 },
    });
    const victim = bench.drive();
    const urgent = bench.drive({ headers: { "x-weir-priority": "system" } });
    bench.desk.turn(bench.now);
    expect(outcomeOf(victim)).to.equal("503 scheduler_preempted");
    bench.desk.end(victim.request, false, bench.now);
    const issued = bench.allocator.issue({ requestId: "another" });
    expect(issued).to.deep.include({ ok: false, failure: "no_capacity" });
    expect(outcomeOf(urgent)).to.equal("route");
  });

  it("ends when the server drains: its slot goes to those who wait, and its request is refused", () => {
    const bench = new CreditBench(1);
    const token = bench.allocator.token();
    const waiting = bench.drive();
    bench.desk.drain();
    expect(bench.allocator.active).to.equal(0);
    bench.desk.turn(bench.now);
    expect(outcomeOf(waiting)).to.equal("route");
    expect(outcomeOf(bench.allocator.send(token))).to.equal("503 draining");
    bench.answer(waiting);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });
});

describe("credits that are required", () => {
  const required = (): CreditBench => new CreditBench(1, {}, { required: true });

  it("K14 refuse inference without one before its body is read: 429, Retry-After 1", () => {
    const bench = required();
    const refused = bench.drive({}, null);
    expect(rejection(refused)).to.deep.include({
      code: "capacity_credit_required",
      status: 429,
      retryAfterS: 1,
    });
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(bench.settled.at(-1)).to.deep.include({ rejection: "capacity_credit_required" });
  });

  it("K14 refuse a credit from a peer that is no proxy, which is none", () => {
    const bench = required();
    const token = bench.allocator.token();
    const evidence = { peerIsProxy: false };
    const forged = bench.allocator.send(token, {}, {}, CHAT, { evidence });
    expect(outcomeOf(forged)).to.equal("429 capacity_credit_required");
    expect(bench.allocator.active).to.equal(1);
  });

  it("let a request with one through, and pass-through requests too", () => {
    const bench = required();
    expect(outcomeOf(bench.allocator.send(bench.allocator.token()))).to.equal("route");
    const models = bench.drive({ method: "GET", target: "/v1/models", endOfStream: true }, null);
    expect(outcomeOf(models)).to.equal("route");
  });

  it("refuse a malformed one as what it is, not as a missing one", () => {
    const bench = required();
    const refused = bench.allocator.send("", {}, {});
    expect(outcomeOf(refused)).to.equal("400 invalid_capacity_credit");
  });
});

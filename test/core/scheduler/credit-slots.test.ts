// What a credit holds: a real slot of the class `default` and a provisional charge.

import { expect } from "chai";
import { GLOBAL_PARTITION } from "../../../extproc/core/model/config.js";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import { InvariantError } from "../../../extproc/core/model/invariant.js";
import { AdmissionProof } from "../../../extproc/core/scheduler/admission-proof.js";
import { sumOf } from "../../../extproc/core/scheduler/admission.js";
import { Limiter } from "../../../extproc/core/scheduler/limiter.js";
import type { Permit } from "../../../extproc/core/scheduler/permit.js";
import type { HoldAsk, SlotHold } from "../../../extproc/core/scheduler/slot-hold.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench, type PartitionSketch } from "../../support/scheduler.js";

const TENANT = tenantKey("header:a");
const SUBJECT = {
  tenant: TENANT,
  requestId: "r-1",
  model: modelId("demo"),
  partition: GLOBAL_PARTITION,
};

function holdAsk(over: Partial<HoldAsk> = {}): HoldAsk {
  return {
    partition: GLOBAL_PARTITION,
    tenant: TENANT,
    model: modelId("demo"),
    estimateTokens: 100,
    ...over,
  };
}

class HoldBench extends SchedulerBench {
  readonly fair;

  constructor(sketch: PartitionSketch) {
    const fair = fairQueueing();
    super({ fair, ...sketch });
    this.fair = fair;
  }

  hold(over: Partial<HoldAsk> = {}): SlotHold<string> | undefined {
    return this.scheduler.hold(holdAsk(over), this.now);
  }

  taken(): SlotHold<string> {
    const hold = this.hold();
    if (hold === undefined) throw new Error("no slot");
    return hold;
  }

  redeem(hold: SlotHold<string>, request = "redeemed"): Permit {
    const origin = {
      source: "redeemed_credit",
      creditRequestId: "req-1",
      generation: "g1",
      policyEpoch: 1n,
    } as const;
    const permit = hold.admit(request, new AdmissionProof(SUBJECT, origin), this.now);
    this.permits.set(request, permit);
    return permit;
  }

  /** Charged, booked and running of the tenant. */
  get tokens(): readonly number[] {
    const account = this.fair.ledger.account(TENANT);
    return [account?.charged ?? 0, account?.reserved ?? 0, account?.active ?? 0];
  }

  get inFlight(): number {
    return sumOf(this.view().in_flight);
  }
}

describe("a hold", () => {
  it("K19 is refused at once without a free slot and queues nothing; a released one frees its slot", () => {
    const bench = new HoldBench({ capacity: 1 });
    const hold = bench.taken();
    expect(bench.hold()).to.equal(undefined);
    expect(sumOf(bench.view().queued)).to.equal(0);
    expect([bench.inFlight, bench.tokens]).to.deep.equal([1, [0, 100, 1]]);
    hold.release();
    expect([bench.inFlight, bench.tokens]).to.deep.equal([0, [0, 0, 0]]);
    expect(bench.hold()).to.not.equal(undefined);
  });

  it("K20 may borrow reserved slots: at 138 of 200 with 102 in flight one more, and back to 102", () => {
    const bench = new HoldBench({ capacity: 200, queueSize: 0, reserved: [0, 0, 35, 4] });
    for (let index = 0; index < 102; index += 1) bench.admit(String(index));
    bench.resize(138);
    expect(bench.view().in_flight).to.deep.equal([0, 102, 0, 0]);
    expect(bench.view().reserved).to.deep.equal([0, 0, 35, 4]);
    expect(bench.admit("ordinary")).to.equal("queue_full");
    const hold = bench.taken();
    expect(bench.view().in_flight).to.deep.equal([0, 103, 0, 0]);
    hold.release();
    expect(bench.view().in_flight).to.deep.equal([0, 102, 0, 0]);
    expect(bench.admit("ordinary")).to.equal("queue_full");
  });

  it("takes every slot there is and no more, reservations or not", () => {
    const bench = new HoldBench({ capacity: 5, reserved: [0, 0, 2, 1] });
    const holds = Array.from({ length: 6 }, () => bench.hold());
    expect(holds.map((hold) => hold !== undefined)).to.deep.equal([
      ...Array.from({ length: 5 }, () => true),
      false,
    ]);
  });

  it("is released once, and not at all once it has become a permit", () => {
    const bench = new HoldBench({ capacity: 2 });
    const hold = bench.taken();
    hold.release();
    hold.release();
    expect([bench.inFlight, bench.tokens]).to.deep.equal([0, [0, 0, 0]]);
    const redeemed = bench.taken();
    bench.redeem(redeemed);
    redeemed.release();
    expect([bench.inFlight, bench.tokens]).to.deep.equal([1, [0, 100, 1]]);
    expect(() => bench.redeem(redeemed)).to.throw(InvariantError);
    expect(() => bench.redeem(hold)).to.throw(InvariantError);
  });

  it("becomes an ordinary permit of the class default that is settled like any other", () => {
    const bench = new HoldBench({ capacity: 1 });
    const permit = bench.redeem(bench.taken());
    expect(permit).to.deep.include({ rank: 1, queuedMs: 0, promoted: false });
    expect(permit.standing).to.not.equal(undefined);
    permit.settle({ tokens: 37, clockTokens: 37 });
    permit.release();
    expect([bench.inFlight, bench.tokens]).to.deep.equal([0, [37, 0, 0]]);
  });

  it("serves those who wait, in their order, when it is released", () => {
    const bench = new HoldBench({ capacity: 1 });
    const hold = bench.taken();
    for (const request of ["first", "second"]) bench.admit(request);
    expect(bench.granted).to.deep.equal([]);
    hold.release();
    bench.scheduler.dispatch(bench.now);
    expect(bench.granted).to.deep.equal(["first"]);
    bench.release("first");
    expect(bench.granted).to.deep.equal(["first", "second"]);
  });

  it("counts as turnover: an hour of held slots does not make waiters look hopeless", () => {
    const bench = new HoldBench({ capacity: 1, queueTimeoutSecs: 60 });
    for (let second = 0; second < 10; second += 1) {
      bench.taken().release();
      bench.advance(1_000);
    }
    bench.taken();
    expect(bench.view().retry_after_secs[1]).to.equal(1);
  });

  it("is no victim; the request that redeems it is one until its first byte", () => {
    const bench = new HoldBench({ capacity: 1, canPreempt: ["interactive"] });
    const hold = bench.taken();
    expect(bench.admit("i", "interactive")).to.equal("queued");
    expect(bench.preempted).to.deep.equal([]);
    bench.scheduler.dispatch(bench.now);
    expect(bench.preempted).to.deep.equal([]);
    bench.redeem(hold);
    bench.scheduler.dispatch(bench.now);
    expect(bench.preempted).to.deep.equal([{ victim: "redeemed", by: 2 }]);
    bench.release("redeemed");
    expect(bench.granted).to.deep.equal(["i"]);
  });

  it("is no victim any more once its answer has begun", () => {
    const bench = new HoldBench({ capacity: 1, canPreempt: ["interactive"] });
    bench.redeem(bench.taken()).firstByte(bench.now);
    bench.admit("i", "interactive");
    expect(bench.preempted).to.deep.equal([]);
  });

  it("R3 revokes an unclaimed proof when its permit ends, and R4 an ordinary permit has none", () => {
    const bench = new HoldBench({ capacity: 2 });
    const permit = bench.redeem(bench.taken());
    const { proof } = permit;
    permit.release();
    expect(proof?.claim(SUBJECT)).to.deep.equal({ ok: false, failure: "revoked" });
    bench.admit("ordinary");
    expect(bench.permits.get("ordinary")?.proof).to.equal(undefined);
  });

  it("is not given without accounts, in an unknown partition, or by the plain limiter", () => {
    const unfair = new SchedulerBench({ capacity: 1 });
    expect(unfair.scheduler.hold(holdAsk(), unfair.now)).to.equal(undefined);
    const bench = new HoldBench({ capacity: 1 });
    expect(bench.hold({ partition: partitionName("nowhere") })).to.equal(undefined);
    const nothing = (): undefined => undefined;
    const limiter = new Limiter<string>(
      { maxConcurrent: 1, tokensPerSecond: 0, queueSize: 0, queueTimeoutSecs: 1 },
      {
        onGranted: nothing,
        onTimedOut: nothing,
        onDisplaced: nothing,
        onPreempted: nothing,
        onWake: nothing,
      },
      monotonicMs(0),
    );
    expect(limiter.hold()).to.equal(undefined);
    expect(bench.inFlight).to.equal(0);
  });
});

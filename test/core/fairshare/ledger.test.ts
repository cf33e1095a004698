// Accounts and profiles: what a request charges whom, and what is forgotten when.

import { expect } from "chai";
import {
  Ledger,
  OVERFLOW_KEY,
  SWEEP_AT_CAP_EVERY_MS,
  SWEEP_EVERY_MS,
} from "../../../extproc/core/fairshare/ledger.js";
import type { FairTicket } from "../../../extproc/core/fairshare/ticket.js";
import { modelId, tenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { fairConfig, type FairSketch } from "../../support/fair.js";

class LedgerBench {
  readonly ledger: Ledger;
  nowMs = 0;

  constructor(sketch: FairSketch = {}) {
    this.ledger = new Ledger(fairConfig(sketch), monotonicMs(0));
  }

  enter(tenant: string, model?: string): FairTicket {
    const accounting = model === undefined ? undefined : modelId(model);
    return this.ledger.enter(tenantKey(tenant), accounting, monotonicMs(this.nowMs));
  }

  /** Waits and runs at once. */
  run(tenant: string, estimateTokens: number, model?: string): FairTicket {
    const ticket = this.enter(tenant, model);
    ticket.reserve(estimateTokens);
    return ticket;
  }

  /** Runs and ends at once, at its estimate. */
  serve(tenant: string, tokens: number, model?: string): void {
    this.run(tenant, tokens, model).settle({ tokens, clockTokens: tokens });
  }

  /** Charged, reserved and running of a tenant. */
  totals(tenant: string): readonly [number, number, number] | undefined {
    const account = this.ledger.account(tenantKey(tenant));
    return account === undefined ? undefined : [account.charged, account.reserved, account.active];
  }

  finish(tenant: string): number | undefined {
    return this.ledger.account(tenantKey(tenant))?.existingEntry(this.ledger.flat.clock)
      ?.virtualFinish;
  }
}

const tokens = (count: number): { tokens: number; clockTokens: number } => ({
  tokens: count,
  clockTokens: Math.max(1, count),
});

describe("Ledger", () => {
  it("F1 books an estimate of 100, settles 37, and a second settlement changes nothing", () => {
    const bench = new LedgerBench();
    const ticket = bench.run("a", 100);
    expect(bench.totals("a")).to.deep.equal([0, 100, 1]);
    ticket.settle(tokens(37));
    expect(bench.totals("a")).to.deep.equal([37, 0, 0]);
    ticket.settle(tokens(999));
    ticket.cancel();
    ticket.drop();
    expect(bench.totals("a")).to.deep.equal([37, 0, 0]);
  });

  it("F2 charges nothing for cancelled work, and the estimate for a request that was dropped", () => {
    const bench = new LedgerBench();
    bench.run("a", 100).cancel();
    expect(bench.totals("a")).to.deep.equal([0, 0, 0]);
    expect(bench.finish("a")).to.equal(0);
    bench.run("a", 100).drop();
    expect(bench.totals("a")).to.deep.equal([100, 0, 0]);
    expect(bench.finish("a")).to.equal(100);
  });

  it("F14 does the same in the profile of a model", () => {
    const bench = new LedgerBench({ profiles: { m: { weights: { named: 3 }, other: 1 } } });
    for (const tenant of ["named", "unlisted"]) {
      bench.run(tenant, 100, "m").cancel();
      expect(bench.totals(tenant)).to.deep.equal([0, 0, 0]);
      bench.run(tenant, 100, "m").drop();
      expect(bench.totals(tenant)).to.deep.equal([100, 0, 0]);
    }
    expect(bench.finish("named"), "the flat clock has not moved").to.equal(undefined);
  });

  it("books at least one token, and charges the clock one for an answer of none", () => {
    const bench = new LedgerBench();
    const ticket = bench.run("a", 0);
    expect(bench.totals("a")).to.deep.equal([0, 1, 1]);
    ticket.settle(tokens(0));
    expect(bench.totals("a")).to.deep.equal([0, 0, 0]);
    expect(bench.finish("a")).to.equal(1);
  });

  it("does not let a request run that has left the queue, nor leave when it runs", () => {
    const bench = new LedgerBench();
    const left = bench.enter("a");
    left.leave();
    left.leave();
    expect(() => {
      left.reserve(1);
    }).to.throw(/waiting/);
    const running = bench.run("a", 5);
    running.leave();
    expect(bench.totals("a")).to.deep.equal([0, 5, 1]);
  });

  it("uses the flat weights for a model without a profile, and the profile's own otherwise", () => {
    const { ledger } = new LedgerBench({
      weights: { flat: 2 },
      profiles: { m: { weights: { named: 3 }, other: 1 } },
    });
    const standing = (tenant: string, model?: string): unknown =>
      ledger.standing(tenantKey(tenant), model === undefined ? undefined : modelId(model));
    const flat = { profile: undefined, bucket: "flat" };
    expect(standing("flat")).to.deep.equal({ ...flat, weighted: true });
    expect(standing("named")).to.deep.equal({ ...flat, weighted: false });
    expect(standing("named", "elsewhere")).to.deep.equal({ ...flat, weighted: false });
    const profile = { profile: "m" };
    expect(standing("named", "m")).to.deep.equal({
      ...profile,
      bucket: "explicit",
      weighted: true,
    });
    expect(standing("flat", "m")).to.deep.equal({ ...profile, bucket: "other", weighted: false });
  });

  describe("with more tenants than it may track", () => {
    const MAX = 1_000;

    it("gives each of 1,000 an account, and the next ones one together, while none can be forgotten", () => {
      const bench = new LedgerBench({ maxTracked: MAX });
      const waiting = Array.from({ length: MAX }, (_, index) => bench.enter(`t${String(index)}`));
      expect([bench.ledger.tracked, bench.ledger.overflowed]).to.deep.equal([MAX, 0]);
      const late = [bench.run("late-1", 7), bench.run("late-2", 9)];
      expect([bench.ledger.tracked, bench.ledger.overflowed]).to.deep.equal([MAX, 2]);
      expect(bench.totals("late-1")).to.equal(undefined);
      expect(bench.ledger.overflow.reserved).to.equal(16);
      for (const ticket of late) ticket.drop();
      expect([bench.ledger.overflow.charged, bench.ledger.overflow.reserved]).to.deep.equal([
        16, 0,
      ]);
      for (const ticket of waiting) ticket.leave();
    });

    it("forgets those idle for longest to make room, and loses no token by it", () => {
      const bench = new LedgerBench({ maxTracked: MAX });
      for (let index = 0; index < MAX; index += 1) bench.serve(`t${String(index)}`, 3);
      bench.serve("t0", 3);
      bench.nowMs = SWEEP_AT_CAP_EVERY_MS;
      bench.serve("new", 5);
      expect(bench.ledger.tracked).to.equal(901);
      expect(bench.totals("t1"), "idle for longest").to.equal(undefined);
      expect(bench.totals("t0"), "served again since").to.deep.equal([6, 0, 0]);
      let charged = bench.ledger.overflow.charged;
      for (const account of bench.ledger.accounts()) charged += account.charged;
      expect(charged).to.equal(3 * MAX + 3 + 5);
    });

    it("looks for room once a second at most", () => {
      const bench = new LedgerBench({ maxTracked: MAX });
      const waiting = Array.from({ length: MAX }, (_, index) => bench.enter(`t${String(index)}`));
      bench.serve("late-1", 1);
      for (const ticket of waiting) ticket.leave();
      bench.nowMs = SWEEP_AT_CAP_EVERY_MS - 1;
      bench.serve("late-2", 1);
      expect(bench.ledger.overflowed).to.equal(2);
      bench.nowMs = SWEEP_AT_CAP_EVERY_MS;
      bench.serve("late-3", 1);
      expect(bench.ledger.overflowed).to.equal(2);
    });

    it("always has an account for a configured tenant, and never forgets it", () => {
      const bench = new LedgerBench({ maxTracked: MAX, weights: { vip: 2 } });
      const waiting = Array.from({ length: MAX }, (_, index) => bench.enter(`t${String(index)}`));
      bench.serve("vip", 4);
      expect(bench.totals("vip")).to.deep.equal([4, 0, 0]);
      for (const ticket of waiting) ticket.leave();
      bench.nowMs = 10 * SWEEP_EVERY_MS;
      bench.serve("x", 1);
      expect(bench.totals("vip")).to.deep.equal([4, 0, 0]);
      expect(bench.ledger.tracked).to.equal(2);
    });

    it("keeps an account whose tenant is ahead of the clock, which would gain by being forgotten", () => {
      const bench = new LedgerBench();
      const waiting = bench.enter("patient");
      bench.serve("ahead", 100);
      bench.nowMs = 2 * SWEEP_EVERY_MS;
      bench.enter("x").leave();
      expect(bench.finish("ahead")).to.equal(100);
      waiting.leave();
    });

    it("sweeps once a minute, and only who was idle for a minute", () => {
      const bench = new LedgerBench();
      bench.serve("early", 1);
      bench.nowMs = 1;
      bench.serve("later", 1);
      bench.nowMs = SWEEP_EVERY_MS;
      bench.enter("x").leave();
      expect([bench.totals("early"), bench.totals("later")]).to.deep.equal([undefined, [1, 0, 0]]);
      bench.nowMs = 2 * SWEEP_EVERY_MS - 1;
      bench.enter("x").leave();
      expect(bench.totals("later")).to.deep.equal([1, 0, 0]);
      expect(bench.ledger.forgotten).to.equal(1);
    });

    it("bounds 100,000 tenants named anew with each request, and counts every token of them", () => {
      const bench = new LedgerBench();
      for (let index = 0; index < 150_000; index += 1) {
        bench.nowMs = index;
        bench.serve(`header:${String(index)}-é😀`, 1 + (index % 7));
      }
      expect(bench.ledger.tracked).to.be.at.most(100_000);
      let charged = bench.ledger.overflow.charged;
      for (const account of bench.ledger.accounts()) charged += account.charged;
      let due = 0;
      for (let index = 0; index < 150_000; index += 1) due += 1 + (index % 7);
      expect(charged).to.equal(due);
    });
  });

  it("counts 10^15 tokens of one tenant exactly, one more included", () => {
    const bench = new LedgerBench();
    const most = 4_294_967_295;
    const times = Math.ceil(1e15 / most);
    for (let index = 0; index < times; index += 1) bench.serve("a", most);
    bench.serve("a", 1);
    expect(BigInt(bench.totals("a")?.[0] ?? 0)).to.equal(BigInt(most) * BigInt(times) + 1n);
  });

  it("keeps the turns of the heaviest and the lightest tenant right after 10^15 tokens", () => {
    const bench = new LedgerBench({ weights: { heavy: 10_000, light: 0.001 } });
    bench.enter("heavy");
    bench.enter("light");
    for (let index = 0; index < 100; index += 1) {
      bench.enter("heavy");
      bench.serve("heavy", 4_294_967_295);
    }
    const before = bench.finish("heavy") ?? 0;
    const clock = bench.ledger.flat.clock;
    for (let index = 0; index < 1_000; index += 1) bench.serve("heavy", 1);
    expect((bench.finish("heavy") ?? 0) - before).to.be.closeTo(1_000 / 10_000, 0.001);
    expect(clock.virtualTime, "the light one waits at 0").to.equal(0);
  });

  it("spells the overflow account as no tenant key is spelled", () => {
    for (const prefix of ["auth:", "header:", "ip:"]) expect(OVERFLOW_KEY).not.to.contain(prefix);
    expect(OVERFLOW_KEY).not.to.equal("anonymous");
  });
});

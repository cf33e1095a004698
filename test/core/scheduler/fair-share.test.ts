// Who is served next when tenants share: the scheduler with its ledger, one request after the other.

import { expect } from "chai";
import fc from "fast-check";
import { partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import type { PriorityClass } from "../../../extproc/core/model/priority.js";
import { fairQueueing, type FairSketch } from "../../support/fair.js";
import { SchedulerBench, type PartitionSketch } from "../../support/scheduler.js";

const POOL_2 = partitionName("pool-2");

interface Asking {
  readonly model?: string;
  readonly estimateTokens?: number;
  readonly className?: PriorityClass;
  readonly partition?: ReturnType<typeof partitionName>;
}

/** One slot per partition; requests are named `tenant#n` in the order in which the tenant asks. */
class FairBench extends SchedulerBench {
  readonly fair;
  readonly #asked = new Map<string, number>();

  constructor(sketch: FairSketch = {}, over: Partial<PartitionSketch> = {}, pools = 1) {
    const fair = fairQueueing({ maxQueuedPerTenant: 10_000, ...sketch });
    const second: PartitionSketch = { name: POOL_2, capacity: 1, queueSize: 10_000 };
    const first = { capacity: 1, queueSize: 10_000, ...over, fair };
    if (pools === 1) super(first);
    else super(first, second);
    this.fair = fair;
  }

  /** Lets a tenant ask `count` times; returns what came of the last. */
  asks(tenant: string, count = 1, how: Asking = {}): string {
    let kind = "";
    for (let index = 0; index < count; index += 1) {
      const at = (this.#asked.get(tenant) ?? 0) + 1;
      this.#asked.set(tenant, at);
      const share = { tenant, model: how.model, estimateTokens: how.estimateTokens };
      const partition = how.partition ?? "global";
      kind = this.admit(
        `${tenant}#${String(at)}`,
        how.className ?? "default",
        partition as never,
        Object.fromEntries(Object.entries(share).filter(([, value]) => value !== undefined)),
      );
    }
    return kind;
  }

  /** Ends the running request and names the tenants that are served one after the other. */
  serve(running: string, count: number, tokens: number): string[] {
    const served: string[] = [];
    let current = running;
    for (let index = 0; index < count; index += 1) {
      const before = this.granted.length;
      this.settle(current, tokens);
      const next = this.granted[before];
      if (next === undefined) break;
      served.push(next.replace(/#.*/, ""));
      current = next;
    }
    return served;
  }

  totals(tenant: string): readonly [number, number] {
    const account = this.fair.ledger.account(tenantKey(tenant));
    return [account?.charged ?? 0, account?.reserved ?? 0];
  }
}

const count = (served: readonly string[], tenant: string): number =>
  served.filter((one) => one === tenant).length;

const DEEPSEEK = {
  deepseek: { weights: { a: 30, b: 40, c: 10 }, other: 20 },
  kimi: { weights: { a: 80 }, other: 20 },
};

describe("fair sharing", () => {
  it("F3 weights 2 and 1 give 20 and 10 of 30 requests of ten tokens", () => {
    const bench = new FairBench({ weights: { a: 2, b: 1 } });
    bench.asks("x");
    bench.asks("a", 31);
    bench.asks("b", 31);
    const served = bench.serve("x#1", 30, 10);
    expect([count(served, "a"), count(served, "b")]).to.deep.equal([20, 10]);
    expect(served.slice(0, 9).join("")).to.equal("abaabaaba");
  });

  it("F4 a lone tenant is served whatever it has cost", () => {
    const bench = new FairBench();
    bench.asks("a", 4);
    expect(bench.serve("a#1", 3, 10)).to.deep.equal(["a", "a", "a"]);
    bench.settle("a#4", 10);
    expect(bench.totals("a")).to.deep.equal([40, 0]);
  });

  it("F5 a settlement far above the estimate gives the turn to the other tenant", () => {
    const bench = new FairBench();
    bench.asks("x");
    bench.asks("a", 2);
    bench.asks("b", 2);
    expect(bench.serve("x#1", 1, 10)).to.deep.equal(["a"]);
    expect(bench.serve("a#1", 1, 50)).to.deep.equal(["b"]);
    expect(bench.serve("b#1", 1, 10), "b is at 10, a at 50").to.deep.equal(["b"]);
  });

  it("F6 a hundred requests served alone make no debt: the tie goes by the key", () => {
    const bench = new FairBench();
    bench.asks("a", 100);
    bench.serve("a#1", 99, 10);
    bench.settle("a#100", 10);
    bench.asks("x");
    bench.asks("b", 2);
    bench.asks("a", 2);
    expect(bench.serve("x#1", 4, 10).join("")).to.equal("abab");
  });

  it("F7 twenty requests alone, then four each: they take turns", () => {
    const bench = new FairBench();
    bench.asks("a", 20);
    bench.serve("a#1", 19, 10);
    bench.settle("a#20", 10);
    bench.asks("x");
    bench.asks("a", 4);
    bench.asks("b", 4);
    expect(bench.serve("x#1", 8, 10).slice(0, 4).join("")).to.equal("abab");
  });

  it("F8 a tenant that waits in another partition only keeps nobody waiting here", () => {
    const bench = new FairBench({}, {}, 2);
    bench.asks("x", 1, { partition: POOL_2 });
    bench.asks("b", 1, { partition: POOL_2 });
    bench.asks("a", 3);
    expect(bench.serve("a#1", 2, 500)).to.deep.equal(["a", "a"]);
  });

  it("F9 what a tenant got in one pool, while another waited there, counts in the other pool", () => {
    const bench = new FairBench({}, {}, 2);
    bench.asks("x", 1, { partition: POOL_2 });
    bench.asks("a", 1, { estimateTokens: 50 });
    bench.asks("b", 2);
    bench.settle("a#1", 50);
    expect(bench.granted, "b still waits here").to.deep.equal(["b#1"]);
    bench.asks("a", 1, { partition: POOL_2 });
    bench.asks("b", 1, { partition: POOL_2 });
    expect(bench.serve("x#1", 1, 10)).to.deep.equal(["b"]);
    expect(bench.totals("a")[0]).to.equal(50);
  });

  it("F10 what a tenant got as bulk counts when it asks as interactive", () => {
    const bench = new FairBench();
    bench.asks("a", 1, { className: "bulk", estimateTokens: 50 });
    bench.asks("b", 1, { className: "bulk" });
    bench.asks("a", 1, { className: "interactive" });
    bench.asks("b", 1, { className: "interactive" });
    const served = bench.serve("a#1", 3, 50);
    expect(served[0]).to.equal("b");
    expect(bench.granted[0], "the interactive lane goes first").to.equal("b#2");
  });

  it("F11 a profile of 30, 40, 10 and 20 for others gives two others ten each of a hundred", () => {
    const bench = new FairBench({ profiles: DEEPSEEK });
    const model = "deepseek";
    bench.asks("x");
    for (const tenant of ["a", "b", "c", "o1", "o2"]) bench.asks(tenant, 100, { model });
    const served = bench.serve("x#1", 100, 10);
    expect(["a", "b", "c", "o1", "o2"].map((tenant) => count(served, tenant))).to.deep.equal([
      30, 40, 10, 10, 10,
    ]);
  });

  it("F12 a profile of 80 and 20 for others gives two others ten each of a hundred", () => {
    const bench = new FairBench({ profiles: DEEPSEEK });
    const model = "kimi";
    bench.asks("x");
    for (const tenant of ["a", "o1", "o2"]) bench.asks(tenant, 100, { model });
    const served = bench.serve("x#1", 100, 10);
    expect(["a", "o1", "o2"].map((tenant) => count(served, tenant))).to.deep.equal([80, 10, 10]);
  });

  it("F12 a hundred names inside the bucket of others divide its part and take no other's", () => {
    const bench = new FairBench({ profiles: DEEPSEEK });
    const model = "kimi";
    bench.asks("x");
    bench.asks("a", 200, { model });
    for (let index = 0; index < 100; index += 1) bench.asks(`o${String(index)}`, 1, { model });
    const served = bench.serve("x#1", 100, 10);
    expect(count(served, "a")).to.equal(80);
  });

  it("F13 debt made with one model does not count with another, the totals do", () => {
    const bench = new FairBench({
      profiles: {
        deepseek: { weights: { a: 1, b: 1 }, other: 1 },
        kimi: { weights: { a: 1, b: 1 }, other: 1 },
      },
    });
    bench.asks("a", 1, { model: "deepseek", estimateTokens: 50 });
    bench.asks("a", 1, { model: "kimi" });
    bench.asks("b", 1, { model: "kimi" });
    expect(bench.serve("a#1", 1, 50)).to.deep.equal(["a"]);
    bench.settle("a#2", 10);
    expect(bench.totals("a")).to.deep.equal([60, 0]);
  });

  it("lets a tenant begin one request per slot behind the others of its lane at most, whoever holds the clock", () => {
    const bench = new FairBench({}, {}, 2);
    // One waiter behind a long stream of the second pool is never served: the clock stands at 0.
    bench.asks("long", 1, { partition: POOL_2 });
    bench.asks("holder", 1, { partition: POOL_2 });
    bench.asks("a", 40);
    bench.asks("b", 40);
    bench.serve("a#1", 40, 100);
    expect(bench.fair.ledger.flat.clock.virtualTime).to.equal(0);
    bench.asks("new", 40);
    const current = bench.granted.at(-1) ?? "";
    const served = bench.serve(current, 30, 100);
    // 256 tokens behind the 2,000 of each: three requests of 100, then in turn.
    const [first] = served.filter((tenant) => tenant !== "new");
    expect(served.indexOf(first ?? "")).to.be.at.most(3);
    expect(count(served, "new")).to.be.within(10, 14);
  });

  it("does not let one request to a busy pool, refused or withdrawn, cost a tenant its share elsewhere", () => {
    const bench = new FairBench({}, {}, 2);
    bench.asks("h", 60, { partition: POOL_2 });
    bench.asks("a", 40);
    bench.asks("b", 40);
    bench.serve("h#1", 50, 100);
    bench.asks("a", 1, { partition: POOL_2 });
    bench.leave("a#41");
    const served = bench.serve("a#1", 30, 100);
    expect(count(served, "a")).to.be.within(14, 16);
  });

  it("does not starve a tenant that comes and goes, whatever goes on in a faster pool", () => {
    const bench = new FairBench({}, {}, 2);
    bench.asks("a", 60);
    for (let visit = 1; visit <= 50; visit += 1) {
      bench.asks("h", 1, { partition: POOL_2 });
      bench.settle(`h#${String(visit)}`, 500);
    }
    bench.serve("a#1", 10, 100);
    bench.asks("b", 10);
    const served = bench.serve(bench.granted.at(-1) ?? "", 10, 100);
    expect(count(served, "b")).to.be.within(4, 6);
  });

  it("gives no advantage to who comes at a moment at which nobody else waits", () => {
    const bench = new FairBench({}, {}, 2);
    bench.asks("long", 1, { partition: POOL_2 });
    bench.asks("holder", 1, { partition: POOL_2 });
    for (let index = 1; index <= 50; index += 1) {
      bench.asks("a");
      bench.settle(`a#${String(index)}`, 100);
    }
    bench.asks("a");
    bench.asks("b", 40);
    bench.asks("a", 40);
    const served = bench.serve("a#51", 40, 100);
    expect(count(served, "b")).to.be.within(18, 22);
  });

  it("lets nobody bank by keeping one waiter in a lane that is not served", () => {
    const bench = new FairBench({}, { reserved: [0, 0, 0, 0] });
    bench.asks("a", 40, { className: "interactive" });
    bench.asks("b", 40, { className: "interactive" });
    bench.asks("x", 1, { className: "bulk" });
    bench.serve("a#1", 40, 100);
    bench.asks("x", 40, { className: "interactive" });
    const served = bench.serve(bench.granted.at(-1) ?? "", 30, 100);
    expect(count(served, "x")).to.be.within(10, 14);
  });

  it("does not leave the turn with a profile whose oldest waiter is in debt", () => {
    const bench = new FairBench({
      profiles: { m: { weights: { debtor: 1, fresh: 1 }, other: 1 } },
    });
    bench.asks("w");
    bench.asks("debtor", 1, { model: "m", estimateTokens: 5_000 });
    bench.asks("fresh", 1, { model: "m" });
    expect(bench.serve("w#1", 1, 1)).to.deep.equal(["debtor"]);
    bench.asks("debtor", 1, { model: "m" });
    bench.asks("victim", 10);
    bench.asks("fresh", 20, { model: "m" });
    // The debtor waits in front of everybody and is never the next of its profile.
    const served = bench.serve("debtor#1", 12, 5_000 / 12);
    expect(count(served, "victim")).to.be.at.least(9);
  });

  it("Q5 of two models in one lane, the one of the older waiter has the turn", () => {
    const bench = new FairBench({ profiles: DEEPSEEK });
    bench.asks("x");
    bench.asks("b", 1, { model: "kimi" });
    bench.asks("c", 1, { model: "deepseek" });
    bench.asks("a", 1, { model: "deepseek" });
    // kimi is older; then deepseek, in which a comes before c by its key.
    expect(bench.serve("x#1", 3, 10)).to.deep.equal(["b", "a", "c"]);
  });

  it("Q6 a tenant has two places of three, the next has the third, and debt decides who goes first", () => {
    const bench = new FairBench({ maxQueuedPerTenant: 2 }, { queueSize: 3 }, 2);
    bench.asks("w", 1);
    // In the second pool a is served 100 while b waits there, and goes on waiting.
    bench.asks("a", 1, { partition: POOL_2, estimateTokens: 100 });
    bench.asks("b", 2, { partition: POOL_2 });
    bench.settle("a#1", 100);
    expect([bench.asks("a"), bench.asks("a"), bench.asks("a"), bench.asks("b")]).to.deep.equal([
      "queued",
      "queued",
      "queue_full",
      "queued",
    ]);
    expect(bench.serve("w#1", 1, 1)).to.deep.equal(["b"]);
  });

  it("Q7 a tenant's places are counted over all classes, and given back by leaving, timing out and serving", () => {
    const bench = new FairBench({ maxQueuedPerTenant: 2 }, { queueTimeoutSecs: 10 });
    bench.asks("w");
    bench.asks("a", 1, { className: "bulk" });
    bench.asks("a", 1, { className: "system" });
    expect(bench.asks("a")).to.equal("queue_full");
    bench.leave("a#1");
    expect(bench.asks("a")).to.equal("queued");
    expect(bench.asks("a")).to.equal("queue_full");
    bench.settle("w#1", 1);
    expect(bench.asks("a")).to.equal("queued");
    bench.advance(10_000);
    expect(bench.timedOut).to.have.length(2);
    expect([bench.asks("a"), bench.asks("a"), bench.asks("a")]).to.deep.equal([
      "queued",
      "queued",
      "queue_full",
    ]);
  });

  it("Q7 a full queue leaves no trace of the refused request in its tenant's count", () => {
    const bench = new FairBench({ maxQueuedPerTenant: 1 }, { queueSize: 1 });
    bench.asks("w");
    bench.asks("b");
    const refused = bench.ask("a", "default", undefined, { tenant: "a" });
    expect(refused).to.include({ kind: "queue_full", limit: "global_limit" });
    bench.leave("b#1");
    expect(bench.ask("a", "default", undefined, { tenant: "a" }).kind).to.equal("queued");
    const second = bench.ask("a2", "default", undefined, { tenant: "a" });
    expect(second).to.include({ kind: "queue_full", limit: "tenant_limit" });
    expect(bench.fair.ledger.account(tenantKey("a"))?.queued).to.equal(1);
  });

  it("a full queue makes room for who has fewer waiters: the newest of whoever has the most gives way", () => {
    const bench = new FairBench({}, { queueSize: 4 });
    bench.asks("w");
    bench.asks("a", 3);
    bench.asks("b");
    expect(bench.asks("c"), "a has three, c comes for its first").to.equal("queued");
    expect(bench.displaced).to.deep.equal(["a#3"]);
    expect(bench.asks("b"), "a has two, b would have as many").to.equal("queue_full");
    expect(bench.asks("a"), "nobody has more").to.equal("queue_full");
    expect(bench.displaced).to.deep.equal(["a#3"]);
    expect(bench.view().queued[1]).to.equal(4);
    expect(bench.fair.ledger.account(tenantKey("a"))?.queued).to.equal(2);
    const served = bench.serve("w#1", 4, 10);
    expect(served.sort().join("")).to.equal("aabc");
  });

  it("nobody gives up its place to a lower class, and the lowest class of a tenant goes first", () => {
    const bench = new FairBench({}, { queueSize: 3 });
    bench.asks("w", 1, { className: "system" });
    bench.asks("a", 3, { className: "interactive" });
    expect(bench.asks("b", 1, { className: "bulk" })).to.equal("queue_full");
    expect(bench.asks("b", 1, { className: "interactive" })).to.equal("queued");
    expect(bench.displaced).to.deep.equal(["a#3"]);
    bench.leave("b#2");
    bench.asks("a", 1, { className: "bulk" });
    expect(bench.asks("c", 1, { className: "system" })).to.equal("queued");
    expect(bench.displaced).to.deep.equal(["a#3", "a#4"]);
  });

  it("a flood of names in a profile's bucket has its places together, so that it cannot fill the queue", () => {
    const bench = new FairBench({ profiles: DEEPSEEK }, { queueSize: 10 });
    const model = "kimi";
    bench.asks("w");
    for (let index = 0; index < 10; index += 1) bench.asks(`o${String(index)}`, 1, { model });
    for (let index = 0; index < 5; index += 1) {
      expect(bench.asks("a", 1, { model }), String(index)).to.equal("queued");
    }
    expect(bench.asks("a", 1, { model }), "five and five").to.equal("queue_full");
    expect(bench.displaced).to.deep.equal(["o9#1", "o8#1", "o7#1", "o6#1", "o5#1"]);
  });

  it("tenants that share the overflow account share its places too", () => {
    const bench = new FairBench({ maxTracked: 1_000, maxQueuedPerTenant: 2 });
    bench.asks("w");
    for (let index = 0; index < 999; index += 1) bench.asks(`t${String(index)}`);
    expect([bench.asks("late-1"), bench.asks("late-2"), bench.asks("late-3")]).to.deep.equal([
      "queued",
      "queued",
      "queue_full",
    ]);
  });

  it("Q8 a lone tenant gets a free slot at once, and the slot is free after settling and after a drop", () => {
    const bench = new FairBench();
    expect(bench.asks("a")).to.equal("granted");
    expect(bench.totals("a")).to.deep.equal([0, 10]);
    bench.settle("a#1", 7);
    expect([bench.view().in_flight[1], ...bench.totals("a")]).to.deep.equal([0, 7, 0]);
    expect(bench.asks("a")).to.equal("granted");
    bench.release("a#2");
    expect([bench.view().in_flight[1], ...bench.totals("a")]).to.deep.equal([0, 17, 0]);
  });

  it("Q9 a tenant in debt waits behind the other, and is served when that leaves", () => {
    const bench = new FairBench();
    bench.asks("a", 1, { estimateTokens: 50 });
    bench.asks("b", 2);
    bench.asks("a", 1);
    expect(bench.serve("a#1", 1, 50)).to.deep.equal(["b"]);
    bench.leave("b#2");
    expect(bench.serve("b#1", 1, 10)).to.deep.equal(["a"]);
  });

  it("promotes a lane for its oldest waiter, and serves whose turn it is in it", () => {
    const bench = new FairBench({}, { capacity: 2, starvationSecs: 1, reserved: [0, 0, 0, 2] }, 2);
    // A slot is free for a starved lane only.
    bench.asks("w", 1, { className: "system" });
    bench.asks("b", 1, { partition: POOL_2, estimateTokens: 100 });
    bench.asks("a", 1, { partition: POOL_2 });
    bench.asks("b", 1, { className: "bulk" });
    bench.asks("a", 1, { className: "bulk" });
    bench.advance(1_001);
    expect(bench.granted).to.deep.equal(["a#2"]);
  });

  it("says who is next and why: alone, by the lowest finish, or first of equals", () => {
    const bench = new FairBench({ profiles: DEEPSEEK });
    bench.asks("x");
    const next = (): unknown =>
      bench.view().next[1].map(({ entry, reason, runnerUp }) => [entry.key, reason, runnerUp?.key]);
    expect(next()).to.deep.equal([]);
    bench.asks("b", 1, { model: "kimi" });
    expect(next()).to.deep.equal([
      ["other", "only", undefined],
      ["b", "only", undefined],
    ]);
    bench.asks("a", 2, { model: "kimi" });
    expect(next()).to.deep.equal([["a", "tie", "other"]]);
    bench.settle("x#1", 1);
    expect(next()).to.deep.equal([
      ["other", "lowest", "a"],
      ["b", "only", undefined],
    ]);
  });

  it("does not depend on the order in which tenants were first seen", () => {
    const tenants = ["a", "b", "c", "d", "z", "é", "😀"];
    const order = fc.shuffledSubarray(tenants, { minLength: tenants.length });
    const run = (seen: readonly string[]): string[] => {
      const bench = new FairBench();
      bench.asks("x");
      for (const tenant of seen) bench.asks(tenant, 3);
      return bench.serve("x#1", 21, 10);
    };
    const expected = run(tenants);
    expect(expected.slice(0, 7)).to.deep.equal(tenants);
    fc.assert(
      fc.property(order, (seen) => {
        expect(run(seen)).to.deep.equal(expected);
      }),
    );
  });
});

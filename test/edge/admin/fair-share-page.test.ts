// The page of fair sharing: totals, standings, and why the next one is next.

import { expect } from "chai";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { fairSharePage, TENANTS_ON_PAGE_MAX } from "../../../extproc/edge/admin/fair-share-page.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench } from "../../support/scheduler.js";

interface Page {
  readonly tenants_shown: number;
  readonly tenants_total: number;
  readonly profiles: readonly object[];
  readonly next: readonly object[];
  readonly tenants: readonly { readonly tenant: string }[];
  readonly overflow: object;
}

describe("fairSharePage", () => {
  it("says so when fair sharing is off", () => {
    expect(fairSharePage(undefined, [], undefined)).to.deep.equal({ enabled: false });
  });

  it("shows totals and standing of each tenant, and why the next one is next", () => {
    const fair = fairQueueing({
      weights: { a: 2 },
      profiles: { m: { weights: { a: 4 }, other: 1 } },
    });
    const bench = new SchedulerBench({ capacity: 1, fair });
    bench.ask("a1", "default", undefined, { tenant: "a", estimateTokens: 10 });
    bench.ask("b1", "default", undefined, { tenant: "b", estimateTokens: 10 });
    bench.ask("b2", "default", undefined, { tenant: "b", estimateTokens: 10 });
    bench.ask("a2", "default", undefined, { tenant: "a", estimateTokens: 10 });
    bench.settle("a1", 40);
    const page = fairSharePage(
      fair.ledger,
      bench.scheduler.view(bench.now),
      undefined,
    ) as unknown as Page;
    // b1 runs on 10; a has had 40 / 2 = 20, so b goes again.
    expect(page.tenants).to.deep.equal([
      {
        tenant: "a",
        charged: 40,
        reserved: 0,
        queued: 1,
        active: 0,
        shares: [
          { model: "global", bucket: "flat", weight: 2, virtual_finish: 20, queued: 1, active: 0 },
        ],
      },
      {
        tenant: "b",
        charged: 0,
        reserved: 10,
        queued: 1,
        active: 1,
        shares: [
          { model: "global", bucket: "flat", weight: 1, virtual_finish: 10, queued: 1, active: 1 },
        ],
      },
    ]);
    expect(page.next).to.deep.equal([
      {
        partition: "global",
        class: "default",
        choice: [
          {
            contender: "b",
            position: 10,
            reason: "lowest",
            runner_up: "a",
            runner_up_position: 20,
            why: "b has had less service per weight than a",
          },
        ],
      },
    ]);
    expect(page.profiles).to.deep.equal([
      { model: "global", virtual_time: 0 },
      {
        model: "m",
        virtual_time: 0,
        other: { weight: 1, virtual_finish: 0, queued: 0, active: 0 },
      },
    ]);
    const only = fairSharePage(fair.ledger, [], "b") as unknown as Page;
    expect(only.tenants.map(({ tenant }) => tenant)).to.deep.equal(["b"]);
    const none = fairSharePage(fair.ledger, [], "nobody") as unknown as Page;
    expect(none.tenants).to.deep.equal([]);
  });

  describe("of more tenants than fit on a page", () => {
    const NOW = monotonicMs(0);
    type Fair = ReturnType<typeof fairQueueing>;

    /** A request of the tenant that cost so many tokens and is over. */
    function charge({ ledger }: Fair, tenant: string, tokens: number): void {
      const ticket = ledger.enter(tenantKey(tenant), undefined, NOW);
      ticket.reserve(1);
      ticket.settle({ tokens, clockTokens: tokens });
    }

    const pageOf = ({ ledger }: Fair, only?: string): Page =>
      fairSharePage(ledger, [], only) as unknown as Page;
    const namesOf = ({ tenants }: Page): string[] => tenants.map(({ tenant }) => tenant);

    it("shows a thousand, and says how many there are", () => {
      const fair = fairQueueing();
      for (let index = 0; index < TENANTS_ON_PAGE_MAX; index += 1) {
        charge(fair, `t${String(index)}`, 1);
      }
      const full = pageOf(fair);
      expect(full.tenants).to.have.length(1_000);
      expect(full).to.include({ tenants_shown: 1_000, tenants_total: 1_000 });
      charge(fair, "one more", 1);
      const beyond = pageOf(fair);
      expect(beyond.tenants).to.have.length(1_000);
      expect(beyond).to.include({ tenants_shown: 1_000, tenants_total: 1_001 });
      expect(pageOf(fair, "t7")).to.include({ tenants_shown: 1, tenants_total: 1_001 });
      expect(pageOf(fair, "nobody")).to.include({ tenants_shown: 0, tenants_total: 1_001 });
    });

    it("left out a tenant of the configuration, and one with requests, that came after a thousand others", () => {
      const fair = fairQueueing({ weights: { vip: 5 }, maxTracked: 100_000 });
      for (let index = 0; index < 1_500; index += 1) charge(fair, `t${String(index)}`, 1 + index);
      charge(fair, "vip", 1);
      fair.ledger.enter(tenantKey("waits"), undefined, NOW);
      const runs = fair.ledger.enter(tenantKey("runs"), undefined, NOW);
      runs.reserve(1);
      const page = pageOf(fair);
      // Then the most charged: of t0 to t1499 with 1 to 1,500 tokens the last 997.
      const most = Array.from({ length: 997 }, (_, index) => `t${String(1_499 - index)}`);
      expect(namesOf(page)).to.deep.equal(["vip", "runs", "waits", ...most]);
      expect(page).to.include({ tenants_shown: 1_000, tenants_total: 1_503 });
    });

    it("shows the same ones in whichever order they came", () => {
      const tenants = Array.from({ length: 2_500 }, (_, index) => {
        // Many have the same charge; of these the smaller keys are shown.
        return { name: `t${String(index).padStart(4, "0")}`, tokens: (index * 7) % 5 };
      });
      const best = [...tenants]
        .sort((one, other) => other.tokens - one.tokens || (one.name < other.name ? -1 : 1))
        .slice(0, TENANTS_ON_PAGE_MAX)
        .map(({ name }) => name);
      for (const order of [tenants, [...tenants].reverse()]) {
        const fair = fairQueueing();
        for (const { name, tokens } of order) charge(fair, name, tokens);
        expect(namesOf(pageOf(fair))).to.deep.equal(best);
      }
    });

    it("shows only tenants of the configuration when these are too many already, busy ones first", () => {
      const names = Array.from({ length: 1_200 }, (_, index) => `t${String(index)}`);
      const fair = fairQueueing({ weights: Object.fromEntries(names.map((name) => [name, 2])) });
      fair.ledger.enter(tenantKey("unlisted"), undefined, NOW);
      for (const [index, name] of names.entries()) charge(fair, name, 10 + index);
      fair.ledger.enter(tenantKey("t3"), undefined, NOW);
      const page = namesOf(pageOf(fair));
      expect(page).to.have.length(1_000).and.not.include("unlisted");
      expect(page.slice(0, 3)).to.deep.equal(["t3", "t1199", "t1198"]);
    });
  });
});

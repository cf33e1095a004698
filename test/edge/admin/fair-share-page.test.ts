// The page of fair sharing: totals, standings, and why the next one is next.

import { expect } from "chai";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { fairSharePage, TENANTS_ON_PAGE_MAX } from "../../../extproc/edge/admin/fair-share-page.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench } from "../../support/scheduler.js";

interface Page {
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
            virtual_finish: 10,
            reason: "lowest",
            runner_up: "a",
            runner_up_virtual_finish: 20,
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

  it("shows at most a thousand tenants, those with requests before all others", () => {
    const fair = fairQueueing();
    for (let index = 0; index < TENANTS_ON_PAGE_MAX + 1; index += 1) {
      const ticket = fair.ledger.enter(tenantKey(`t${String(index)}`), undefined, monotonicMs(0));
      ticket.reserve(1);
      ticket.drop();
    }
    fair.ledger.enter(tenantKey("waits"), undefined, monotonicMs(0));
    const page = fairSharePage(fair.ledger, [], undefined) as unknown as Page;
    expect(page.tenants).to.have.length(TENANTS_ON_PAGE_MAX);
    expect(page.tenants.map(({ tenant }) => tenant)).to.include("waits");
  });
});

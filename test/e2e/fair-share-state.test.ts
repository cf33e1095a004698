// Goal: an operator who asks why a tenant waits finds the answer on the admin port while it waits.
// Method: one slot, a worker that produces tokens only when it is told to, two tenants of weights 3
// and 1, and the page after each step. Virtual finish is tokens per weight.
import { expect } from "chai";
import { adminPage, openQueued, openRunning, type ClassChat } from "../support/class-chat.js";
import { PACED, produceTokens } from "../support/slots.js";
import { startStack, type Stack } from "../support/stack.js";
import { tenantLine, TENANT_TRUST } from "../support/tenant-load.js";

interface Page {
  readonly enabled: boolean;
  readonly profiles: readonly { readonly model: string; readonly virtual_time: number }[];
  readonly next: readonly {
    readonly class: string;
    readonly choice: readonly Readonly<Record<string, unknown>>[];
  }[];
  readonly tenants: readonly {
    readonly tenant: string;
    readonly charged: number;
    readonly reserved: number;
    readonly queued: number;
    readonly active: number;
    readonly shares: readonly { readonly weight: number; readonly virtual_finish: number }[];
  }[];
}

async function pageOf(stack: Stack): Promise<Page> {
  return JSON.parse(await adminPage(stack, "/state/fair-share")) as Page;
}

/** A tenant's line: [charged, reserved, queued, active, weight, virtual finish]. */
function lineOf({ tenants }: Page, tenant: string): readonly number[] | undefined {
  const found = tenants.find((line) => line.tenant === `header:${tenant}`);
  if (found === undefined) return undefined;
  const { charged, reserved, queued, active, shares } = found;
  const [share] = shares;
  return [charged, reserved, queued, active, share?.weight ?? 0, share?.virtual_finish ?? 0];
}

const chatOf = (tenant: string, tokens: number): ClassChat => ({
  headers: [tenantLine(tenant)],
  body: { max_tokens: tokens, ignore_eos: true },
});

describe("GET /state/fair-share while tenants of weights 3 and 1 share one slot", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: PACED,
      config: {
        trust: TENANT_TRUST,
        fair_share: { tenant_weights: { "header:gold": 3 } },
        scheduler: { max_concurrent_requests: 1, queue_size: 10 },
      },
    });
  });
  after(() => stack.stop());

  it("says what each tenant has, and why the next one is the next", async () => {
    await openRunning(stack, chatOf("gold", 300));
    await openQueued(stack, chatOf("gold", 30));
    await openQueued(stack, chatOf("iron", 5));

    // gold is booked 256: 256 / 3 of its virtual finish.
    const waiting = await pageOf(stack);
    expect(waiting).to.include({ enabled: true });
    expect(waiting.profiles).to.deep.equal([{ model: "global", virtual_time: 0 }]);
    expect(lineOf(waiting, "gold")).to.deep.equal([0, 256, 1, 1, 3, 256 / 3]);
    expect(lineOf(waiting, "iron")).to.deep.equal([0, 0, 1, 0, 1, 0]);
    expect(waiting.next).to.have.length(1);
    expect(waiting.next[0]?.class).to.equal("default");
    expect(waiting.next[0]?.choice).to.deep.equal([
      {
        contender: "header:iron",
        position: 0,
        reason: "lowest",
        runner_up: "header:gold",
        runner_up_position: 256 / 3,
        why: "header:iron has had less service per weight than header:gold",
      },
    ]);

    // It produced 300, so it stands at 100; iron runs on its estimate of 256.
    await produceTokens(stack, 300);
    await stack.settlements(1);
    await stack.until("iron runs", () => stack.workers[0]?.state().last_requests.length === 2);
    const second = await pageOf(stack);
    expect(second.profiles[0]?.virtual_time).to.equal(100);
    expect(lineOf(second, "gold")).to.deep.equal([300, 0, 1, 0, 3, 100]);
    expect(lineOf(second, "iron")).to.deep.equal([0, 256, 0, 1, 1, 256]);
    expect(second.next[0]?.choice[0]).to.include({ contender: "header:gold", reason: "only" });

    await stack.until("all are served", async () => {
      await produceTokens(stack, 30);
      return stack.settled.length === 3;
    });
    const last = await pageOf(stack);
    expect(last.next).to.deep.equal([]);
    expect(lineOf(last, "gold")).to.deep.equal([330, 0, 0, 0, 3, 110]);
    expect(lineOf(last, "iron")).to.deep.equal([5, 0, 0, 0, 1, 5]);
  });
});

// Goal: an external allocator can keep the backlogs and drive credits through the real API; when it dies, its
// slots come back by themselves, and when Weir dies, it goes on. Method: the reference allocator, in this
// process and as a process of its own, a real Envoy, and Weir in this process or in one that can be killed.

import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { BacklogAllocator, type AllocatorOptions, type Work } from "../support/allocator.js";
import { SERVICE_KEY, SERVICE_KEY_VARIABLE } from "../support/credit-server.js";
import { startCreditStack, type CreditStack } from "../support/credit-stack.js";
import { POOL } from "../support/credits.js";
import { startProcess, type RunningProcess } from "../support/process.js";
import { NOTHING_HELD } from "../support/stack.js";
import { startWeir, type WeirProcess } from "../support/weir-process.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const TOKENS = 5;
const SLOTS = 4;
/** The longest time between two looks of the reaper. */
const REAPER_PERIOD_MS = 1_000;
/** A machine that does other things too may come this late. */
const BUSY_MACHINE_MS = 1_000;

const work = (tenant: string): Work => ({
  tenant,
  partition: POOL,
  model: "demo",
  estimateTokens: TOKENS,
  body: JSON.stringify({
    model: "demo",
    max_tokens: TOKENS,
    ignore_eos: true,
    messages: [{ role: "user", content: tenant }],
  }),
});

describe("an external allocator", () => {
  let credits: CreditStack;
  let weir: WeirProcess | undefined;
  afterEach(async () => {
    await weir?.stop();
    weir = undefined;
    await credits.stop();
  });

  function allocator(over: Partial<AllocatorOptions> = {}): BacklogAllocator {
    return new BacklogAllocator({
      admin: `http://127.0.0.1:${String(credits.adminPort)}`,
      gateway: `http://127.0.0.1:${String(credits.stack.port)}`,
      serviceKey: SERVICE_KEY,
      generation: () => Promise.resolve("g1"),
      outstanding: SLOTS,
      retryMaxMs: 200,
      ...over,
    });
  }

  /** The allocator as a process of its own. */
  function command(more: Readonly<Record<string, string>>): RunningProcess {
    const args = ["--import", "tsx", "test/support/allocator-command.ts"];
    const options = {
      admin: `http://127.0.0.1:${String(credits.adminPort)}`,
      url: `http://127.0.0.1:${String(credits.stack.port)}`,
      "key-env": SERVICE_KEY_VARIABLE,
      generation: "g1",
      partition: POOL,
      model: "demo",
      outstanding: String(SLOTS),
      ...more,
    };
    for (const [name, value] of Object.entries(options)) args.push(`--${name}`, value);
    return startProcess(process.execPath, args, { name: "allocator", cwd: REPOSITORY });
  }

  it("gets its backlogs served in turn, and nobody ever waits inside of Weir", async () => {
    credits = await startCreditStack({ slots: SLOTS, credits: { required: true } });
    // Two more hands than there are slots: some of them always meet a full pool.
    const driving = allocator({ outstanding: SLOTS + 2 });
    const tenants = ["red", "blue", "green"];
    const order: string[] = [];
    const results = tenants.flatMap((tenant) =>
      Array.from({ length: 12 }, async () => {
        const result = await driving.submit(work(tenant));
        order.push(tenant);
        return result.status;
      }),
    );
    expect([...new Set(await Promise.all(results))]).to.deep.equal([200]);
    await driving.stop();
    for (const tenant of tenants) {
      expect(driving.counts.get(tenant)).to.include({
        served: 12,
        failed: 0,
        issued: 12,
        replaced: 0,
      });
      // One of three takes a third of the first half, give or take the requests that are out.
      const early = order.slice(0, 18).filter((each) => each === tenant);
      expect(early.length).to.be.within(6 - SLOTS, 6 + SLOTS);
      await credits.stack.settlements(36);
      expect(await credits.tokens(`header:${tenant}`)).to.deep.equal([12 * TOKENS, 0, 0]);
    }
    for (const record of credits.stack.settled) {
      expect(record).to.include({ credit: true, waited: false, queuedMs: 0 });
    }
    await credits.stack.idle();
    expect(await credits.active()).to.equal(0);
    const operations = await credits.operations();
    expect(operations).to.include({ "pool issued": 36, "pool armed": 36, "pool redeemed": 36 });
  });

  it("started from the command line drives its backlogs to the end and tells what each tenant got", async () => {
    credits = await startCreditStack({ slots: SLOTS });
    const child = command({ tenants: "red=5,blue=3", tokens: "4" });
    expect(await child.ended, child.describe()).to.deep.equal({ code: 0, signal: null });
    const lines = child.stdout.trim().split("\n").slice(-2);
    expect(lines.map((line) => JSON.parse(line) as object)).to.deep.equal([
      { tenant: "red", served: 5, failed: 0, issued: 5, refused: 0, replaced: 0 },
      { tenant: "blue", served: 3, failed: 0, issued: 3, refused: 0, replaced: 0 },
    ]);
    const wrong = command({ outstanding: "0" });
    expect(await wrong.ended).to.deep.equal({ code: 2, signal: null });
    expect(wrong.stderr).to.contain("--outstanding must be a whole number of at least 1, got 0");
    await credits.stack.idle();
  });

  it("that is killed leaves no slot behind: all are back at the reaper's next look after 2 s", async () => {
    const ttlMs = 2_000;
    credits = await startCreditStack({ slots: SLOTS, credits: { ttl_ms: ttlMs } });
    const { stack } = credits;
    // Long enough to be killed with all credits in hand.
    const child = command({ tenants: "red=50,blue=50", "dispatch-delay-ms": "60000" });
    // Loading its sources may take a while.
    for (let look = 0; look < 3_000 && (await credits.active()) < SLOTS; look += 1) {
      if (child.end !== undefined) throw new Error(child.describe());
      await new Promise((done) => setTimeout(done, 10));
    }
    expect(stack.held()).to.include({ inFlight: SLOTS, live: 0 });
    child.signal("SIGKILL");
    const killedAt = performance.now();
    await child.ended;
    await stack.until("every slot is back", () => stack.held()["inFlight"] === 0);
    const tookMs = performance.now() - killedAt;
    expect(tookMs).to.be.below(ttlMs + REAPER_PERIOD_MS + BUSY_MACHINE_MS);
    expect(await credits.active()).to.equal(0);
    for (const tenant of ["header:red", "header:blue"]) {
      expect(await credits.tokens(tenant)).to.deep.equal([0, 0, 0]);
    }
    expect(await credits.operations()).to.deep.equal({
      "pool issued": SLOTS,
      "pool expired": SLOTS,
    });
    // The slots are good for whoever comes next.
    const next = allocator();
    const results = await Promise.all(
      Array.from({ length: SLOTS }, () => next.submit(work("red"))),
    );
    expect(results.map(({ status }) => status)).to.deep.equal([200, 200, 200, 200]);
    await next.stop();
    await stack.idle();
  });

  it("goes on when Weir is killed and started again, and replaces the credits that went with it", async () => {
    credits = await startCreditStack({ slots: SLOTS, withoutWeir: true });
    weir = await startWeir(credits.stack);
    const driving = allocator({ dispatchDelayMs: 1_500 });
    const results = Array.from({ length: 8 }, () => driving.submit(work("red")));
    await credits.stack.until(
      "all credits are out",
      async () => (await credits.active()) === SLOTS,
    );
    await weir.stop();
    weir = await startWeir(credits.stack);
    const statuses = (await Promise.all(results)).map(({ status }) => status);
    expect(statuses).to.deep.equal(Array.from({ length: 8 }, () => 200));
    expect(driving.counts.get("red")?.replaced).to.be.at.least(1);
    await driving.stop();
    await credits.stack.until("nothing held", async () => {
      const held = await weir?.held();
      return JSON.stringify(held) === JSON.stringify(NOTHING_HELD);
    });
  });

  it("stops when Weir serves another generation, and goes on when it is told the new one", async () => {
    credits = await startCreditStack({ slots: SLOTS, credits: { generation: "g2" } });
    const old = allocator();
    const refused = await old.submit(work("red"));
    expect(refused).to.deep.equal({ status: 409, code: "capacity_credit_wrong_generation" });
    await old.stop();
    expect(old.stopReason).to.contain("capacity_credit_wrong_generation");
    expect((await old.submit(work("red"))).code).to.equal("allocator_stopped");
    let asked = 0;
    const generation = (): Promise<string> => {
      asked += 1;
      return Promise.resolve(asked === 1 ? "g1" : "g2");
    };
    const told = allocator({ generation });
    expect((await told.submit(work("red"))).status).to.equal(200);
    await told.stop();
    expect(told.stopReason).to.equal(undefined);
    await credits.stack.idle();
  });
});

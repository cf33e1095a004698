// Goal: where slots do not follow the engines, a request above their limit is refused as the gateway's
// own answer and costs nobody anything; in mode shadow the same request passes and is only counted.
// Method: an engine that says it runs two requests at once, and produces tokens only when the test says
// so, under six static slots.
import { expect } from "chai";
import { expectError } from "../support/chat.js";
import {
  expectServed,
  openChat,
  openRunning,
  scrape,
  untilRunning,
  type OpenChat,
} from "../support/class-chat.js";
import {
  adminText,
  partitionOf,
  startFleet,
  untilPartition,
  type Fleet,
} from "../support/feedback-fleet.js";
import { request } from "../support/http-client.js";
import { PACED, produceTokens } from "../support/slots.js";
import { chatBody, JSON_HEADERS, type Stack } from "../support/stack.js";

const CEILING = 2;
const STATIC_SLOTS = 3 * CEILING;
const DECISIONS = "weir_adaptive_admission_decisions_total";
const SATURATED = { status: 429, code: "adaptive_admission_saturated", retryAfter: "1" };

function startSmall(mode: "enforce" | "shadow"): Promise<Fleet> {
  return startFleet({
    engines: [{ engine: "sglang", mock: { ...PACED, slots: CEILING } }],
    slots: { demo: STATIC_SLOTS },
    adaptive: { mode },
    adaptiveCapacity: false,
  });
}

/** Takes all the engine runs, with Weir knowing that its ceiling is two. */
async function fill({ stack, workers }: Fleet): Promise<readonly OpenChat[]> {
  await untilPartition(stack, "the ceiling is known", ({ limits }) => limits["engine"] === CEILING);
  const taken: OpenChat[] = [];
  while (taken.length < CEILING) taken.push(await openRunning(stack, {}));
  await untilRunning(stack, CEILING, workers);
  return taken;
}

async function tenantTotals(stack: Stack): Promise<Record<string, unknown>> {
  const page = JSON.parse(await adminText(stack, "/state/fair-share")) as {
    tenants: Record<string, unknown>[];
  };
  const [tenant, ...more] = page.tenants;
  if (tenant === undefined || more.length > 0) throw new Error("one tenant was expected");
  return tenant;
}

describe("refusals by engine feedback through Envoy", () => {
  let fleet: Fleet;
  let stack: Stack;
  let taken: readonly OpenChat[];
  beforeEach(async () => {
    fleet = await startSmall("enforce");
    stack = fleet.stack;
    taken = await fill(fleet);
  });
  afterEach(() => fleet.stop());

  async function untilIdle(): Promise<void> {
    await produceTokens(fleet, 5);
    for (const { answer } of taken) expectServed(await answer);
    await untilPartition(stack, "the engine is idle", ({ engines }) => engines["running"] === 0);
  }

  it("above the limit are 429 with Retry-After, charge nothing, and reach no worker", async () => {
    const refused = await openChat(stack, { name: "third" }).answer;
    expectError(refused, SATURATED);
    // Slots were free: the engines refused, not the scheduler.
    expect(stack.held()).to.include({ inFlight: CEILING, queued: 0, load: CEILING });

    const [record] = await stack.settlements(1);
    expect(record).to.include({
      outcome: "rejected",
      rejection: "adaptive_admission_saturated",
      feedbackReason: "running_limit",
      worker: undefined,
      admitted: false,
    });
    expect(record?.charge?.tokens).to.equal(0);
    expect(await tenantTotals(stack)).to.include({ charged: 0, active: CEILING, queued: 0 });

    const series = await scrape(stack);
    const labels = { partition: "demo", mode: "enforce", strategy: "engine_feedback" };
    const decided = (reason: string, outcome: string): number =>
      series(DECISIONS, { ...labels, reason, outcome });
    expect(decided("within_feedback_limit", "would_admit")).to.equal(CEILING);
    expect(decided("running_limit", "would_reject")).to.equal(1);
    expect(series(DECISIONS)).to.equal(CEILING + 1);
    expect(series("weir_rejections_total", { code: SATURATED.code })).to.equal(1);

    await untilIdle();
    const [worker] = fleet.workers;
    expect(worker?.state()).to.include({ served: CEILING, peak_running: CEILING });
    const names = worker?.state().last_requests.map(({ headers }) => headers["x-test-name"]);
    expect(names).to.deep.equal([undefined, undefined]);
    expectServed(await served());
    await stack.idle();
  });

  async function served(): Promise<Awaited<OpenChat["answer"]>> {
    const last = openChat(stack, {});
    await untilRunning(stack, 1, fleet.workers);
    await produceTokens(fleet, 5);
    return last.answer;
  }

  it("never look like a worker's answer, to clients, to Envoy and to the breaker", async () => {
    // More in a row than failures that open the breaker.
    for (let count = 0; count < 6; count += 1) {
      const refused = await openChat(stack, {}).answer;
      expectError(refused, SATURATED);
      for (const name of ["x-mock-worker", "x-envoy-upstream-service-time", "x-weir-cluster"]) {
        expect(refused.headers).to.not.have.property(name);
      }
    }
    const entries = (await stack.envoy.waitForAccessLog(6)).slice(0, 6);
    for (const entry of entries) {
      expect(JSON.stringify(entry)).to.not.include("via_upstream").and.to.not.include("worker_1");
    }
    await untilIdle();
    // The only worker would be out of service for ten seconds.
    expectServed(await served());
  });

  it("cover everybody while the engines' own queue is long, whoever filled it", async () => {
    const [worker] = fleet.workers;
    if (worker === undefined) throw new Error("there is a worker");
    // Three that came past Weir, one more than is tolerated.
    const strangers = Array.from({ length: 3 }, () =>
      request({
        port: worker.port,
        path: "/v1/chat/completions",
        headers: JSON_HEADERS,
        body: chatBody(),
      }),
    );
    await stack.until("they wait", () => worker.state().waiting === 3);
    // The sample before has the same time stamp as long as the engine's clock stands still.
    worker.advance(1);
    const state = await untilPartition(
      stack,
      "the queue is seen",
      ({ limits }) => limits["pressure"] === "engine_waiting",
    );
    expect(state.engines).to.include({ running: CEILING, waiting: 3 });
    expectError(await openChat(stack, {}).answer, SATURATED);
    expect((await partitionOf(stack)).last_reason).to.equal("engine_waiting");
    for (let round = 0; round < 3; round += 1) await produceTokens(fleet, 5);
    for (const answer of strangers) expect((await answer).status).to.equal(200);
    await untilIdle();
    expectServed(await served());
  });
});

describe("engine feedback in mode shadow through Envoy", () => {
  let fleet: Fleet;
  before(async () => {
    fleet = await startSmall("shadow");
  });
  after(() => fleet.stop());

  it("refuses nobody, leaves the slots alone and counts what it would have refused", async () => {
    const { stack, workers } = fleet;
    const chats = [...(await fill(fleet))];
    while (chats.length < STATIC_SLOTS) chats.push(await openRunning(stack, {}));
    await stack.until("all are at the worker", () => {
      const { running, waiting } = workers[0]?.state() ?? { running: 0, waiting: 0 };
      return running === CEILING && waiting === STATIC_SLOTS - CEILING;
    });
    const state = await partitionOf(stack);
    expect(state.slots).to.include({ static: STATIC_SLOTS, granted: STATIC_SLOTS });
    const refusals = state.decisions.running_limit + state.decisions.engine_waiting;
    expect(refusals).to.equal(STATIC_SLOTS - CEILING);
    const series = await scrape(stack);
    expect(series(DECISIONS, { mode: "shadow", outcome: "would_reject" })).to.equal(refusals);
    expect(series(DECISIONS, { outcome: "would_admit" })).to.equal(CEILING);

    for (let round = 0; round < STATIC_SLOTS / CEILING; round += 1) {
      await produceTokens(fleet, 5);
      await stack.settlements((round + 1) * CEILING);
    }
    for (const { answer } of chats) expectServed(await answer);
    expect(workers[0]?.state()).to.include({ served: STATIC_SLOTS });
  });
});

// Goal: a Weir that was started anew does not fill slots that requests of the last process still use.
// Method: a worker that produces tokens only when the test says so, a Weir that is killed while three
// requests run, and a second one that is asked what it makes of them.
import { expect } from "chai";
import {
  adminText,
  partitionOf,
  startFleet,
  untilPartition,
  type Fleet,
} from "../support/feedback-fleet.js";
import { PACED, produceTokens, runningAtWorkers, startChat } from "../support/slots.js";
import { startWeir, type WeirProcess } from "../support/weir-process.js";

const STATIC_SLOTS = 4;
const ORPHANS = 3;

describe("a Weir that starts while its workers still run requests of the last one", function () {
  this.timeout(60_000);
  let fleet: Fleet;
  let weir: WeirProcess;
  before(async () => {
    fleet = await startFleet({
      engines: [{ engine: "vllm", mock: { ...PACED, slots: 8 } }],
      slots: { demo: STATIC_SLOTS },
      adaptive: { mode: "enforce" },
      withoutWeir: true,
    });
    weir = await startWeir(fleet.stack);
  });
  after(async () => {
    await weir.stop();
    await fleet.stop();
  });

  const untilRunning = (count: number): Promise<void> =>
    fleet.stack.until(`${String(count)} run`, () => runningAtWorkers(fleet) === count);

  const untilHeld = (queued: number, inFlight: number): Promise<void> =>
    fleet.stack.until(`${String(queued)} held, ${String(inFlight)} in flight`, async () => {
      const held = await weir.held();
      return held["queued"] === queued && held["inFlight"] === inFlight;
    });

  it("leaves their slots to them, and has these back when they have ended", async () => {
    const { stack } = fleet;
    const orphans = Array.from({ length: ORPHANS }, () => startChat(stack));
    await untilRunning(ORPHANS);
    await weir.stop();
    weir = await startWeir(stack);

    const before = await untilPartition(
      stack,
      "the orphans are seen",
      ({ slots }) => slots.orphans === ORPHANS,
    );
    expect(before.slots).to.include({ static: STATIC_SLOTS, adaptive: STATIC_SLOTS, granted: 1 });
    expect(await adminText(stack, "/metrics")).to.match(/^weir_worker_orphan_requests\{.*\} 3$/m);

    const fresh = Array.from({ length: 2 }, () => startChat(stack, [], { max_tokens: 50 }));
    await untilRunning(ORPHANS + 1);
    await untilHeld(1, 1);

    // Ends those of the last process; the new ones have 45 tokens to go.
    await produceTokens(fleet, 5);
    for (const { answer } of orphans) expect((await answer).status).to.equal(200);
    const later = await untilPartition(stack, "no orphans", ({ slots }) => slots.orphans === 0);
    expect(later.slots.granted).to.equal(STATIC_SLOTS);
    await untilRunning(2);
    await untilHeld(0, 2);

    await produceTokens(fleet, 50);
    for (const { answer } of fresh) expect((await answer).status).to.equal(200);
    await untilHeld(0, 0);
    expect((await partitionOf(stack)).slots.orphans).to.equal(0);
  });
});

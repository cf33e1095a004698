// Goal: the part of row X-2 that takes half a minute. A sample that an engine repeats does not become
// younger by that: 30 s after it was first seen its engine is unknown, and nothing seeds, although the
// engines answer every poll and admission goes on refusing by what they say. Method: engines whose clock,
// and with it the time of their samples, stands still until the test moves it.

import { expect } from "chai";
import { SAMPLE_AGE_MAX_MS } from "../../extproc/core/workers/telemetry-store.js";
import { expectError } from "../support/chat.js";
import { admissionOf } from "../support/feedback-fleet.js";
import { SATURATED, startSeedFleet, type SeedFleet } from "../support/seed-fleet.js";

const LOOK_EVERY_MS = 200;

describe("engines that repeat an old sample, through Envoy", function () {
  this.timeout(90_000);
  let fleet: SeedFleet;
  before(async () => {
    // The owner alone is enough to go on refusing.
    fleet = await startSeedFleet({ adaptive: { min_load_coverage: 0.3 } });
    await fleet.warm(0, 1);
    await fleet.fill(0);
  });
  after(() => fleet.stop());

  /** Why each engine has no room, in their order; null = it has. */
  async function reasons(): Promise<readonly (string | null)[]> {
    const { headroom } = await fleet.page();
    return fleet.fleet.workers.map(({ url }) => {
      return headroom.find((one) => one.url === url)?.reason ?? null;
    });
  }

  async function expectRefused(refusal: string): Promise<void> {
    const { answer, record, seed } = await fleet.refused(fleet.question(1, 1));
    expectError(answer, SATURATED);
    expect(record.feedbackReason).to.equal("engine_waiting");
    expect(seed).to.deep.equal({ kind: "refused", refusal });
  }

  it("X-2 stale telemetry seeds nobody, and the first new sample ends that", async () => {
    expect(await reasons()).to.deep.equal(["not_clean", null, null]);
    const startedAt = performance.now();
    while ((await reasons()).includes(null)) {
      if (performance.now() - startedAt > 2 * SAMPLE_AGE_MAX_MS) throw new Error("nothing ages");
      // The owner reports anew all the time: that it is full stays known.
      fleet.worker(0).advance(1);
      await new Promise((done) => setTimeout(done, LOOK_EVERY_MS));
    }
    await expectRefused("plan_no_clean_peer");
    // Two more polls repeat the old samples, which makes them no younger.
    const { revision } = await admissionOf(fleet.stack);
    await fleet.stack.until("the engines are asked", async () => {
      fleet.worker(0).advance(1);
      return (await admissionOf(fleet.stack)).revision >= revision + 2;
    });
    const [owner, ...peers] = await reasons();
    expect(owner).to.equal("not_clean");
    for (const peer of peers) expect(peer).to.be.oneOf(["stale", "no_sample"]);
    await expectRefused("plan_no_clean_peer");

    // Of two idle peers the one that reports anew gets it.
    fleet.worker(2).advance(1);
    await fleet.untilKnown(2);
    const sent = await fleet.send(fleet.question(1, 2));
    expect(await fleet.untilPlaced(sent)).to.equal(2);
    const { answer, seed } = await fleet.finish(sent, 2);
    expect(answer.status).to.equal(200);
    expect(seed).to.include({ kind: "seeded", outcome: "succeeded", published: true });
  });
});

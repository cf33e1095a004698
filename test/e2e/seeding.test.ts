// Goal: row X-1. The engine that holds a prompt is full, a clean peer has room, and the feedback of the
// engines refuses: one request with a proof makes the peer an owner, a second one is refused, and until
// the first has succeeded nobody else gets to the peer. Method: a real Envoy, engines that produce tokens
// only when they are told to, both ways in which owners are known, and both sources of proofs.

import { expect } from "chai";
import { expectError, type HeaderLines } from "../support/chat.js";
import { scrape } from "../support/class-chat.js";
import type { Question } from "../support/cached-chat.js";
import { keptLog } from "../support/kept-log.js";
import {
  CEILING,
  SATURATED,
  SHARED_BLOCKS,
  startSeedFleet,
  type SeedFleet,
} from "../support/seed-fleet.js";

/** Part of the log line of a request. */
type SeedLine = Readonly<Record<string, unknown>>;

const VARIANTS = [
  { ownership: "committed", proofSource: "credits" },
  { ownership: "events", proofSource: "credits" },
  { ownership: "committed", proofSource: "scheduler" },
] as const;

for (const { ownership, proofSource } of VARIANTS) {
  describe(`a seed through Envoy, owners by ${ownership}, proofs by ${proofSource}`, function () {
    this.timeout(60_000);
    const { log, lines } = keptLog();
    let fleet: SeedFleet;
    before(async () => {
      fleet = await startSeedFleet({ ownership, proofSource, log });
      await fleet.warm(0, 1);
      await fleet.warm(0, 2);
    });
    after(() => fleet.stop());

    const url = (index: number): string => fleet.worker(index).url;

    /** A request with a right to seed that is refused for this reason. */
    async function expectRefused(question: Question, refusal: string): Promise<void> {
      const { answer, record, seed, worker } = await fleet.refused(question);
      expectError(answer, SATURATED);
      expect(seed).to.deep.equal({ kind: "refused", refusal });
      expect(record.charge?.tokens).to.equal(0);
      expect(worker).to.equal(undefined);
    }

    /** An ordinary request whose headers leave it nothing but the seed's worker. */
    async function expectKeptAway(question: Question, headers: HeaderLines): Promise<void> {
      const { answer, seed, worker } = await fleet.refused(question, {
        headers,
        credit: false,
      });
      expectError(answer, SATURATED);
      expect(seed).to.equal(undefined);
      expect(worker).to.equal(undefined);
    }

    it("X-1 makes a clean peer an owner: one at a time, and for itself until it has succeeded", async () => {
      await fleet.fill(0);
      const seed = await fleet.send(fleet.question(1, 11));
      const peer = await fleet.untilPlaced(seed);
      expect([1, 2]).to.include(peer);
      const other = 3 - peer;
      const during = await fleet.page();
      expect(during.leases.map((lease) => lease.url)).to.deep.equal([url(peer)]);
      expect(during.protections.map(({ phase }) => phase)).to.deep.equal(["active"]);
      // The cap is one, on this prompt and on every other one.
      await expectRefused(fleet.question(1, 12), "plan_prefix_protected");
      await expectRefused(fleet.question(2, 13), "plan_no_clean_peer");

      // Ordinary requests are let through again, and still none of them gets to the peer.
      await fleet.drain();
      const same = await fleet.send(fleet.question(1, 14), { credit: false });
      expect(await fleet.untilPlaced(same)).to.equal(0);
      const held = await fleet.finish(same, 0);
      expect(held.record.selection?.result).to.equal("active_distribution_seed_hold");
      await expectKeptAway(fleet.question(1, 15), [["x-weir-excluded-worker-urls", url(0)]]);
      await expectKeptAway(fleet.question(1, 16), [["x-weir-target-worker-url", url(peer)]]);
      await expectKeptAway(fleet.question(30, 17), [["x-weir-target-worker-url", url(peer)]]);
      for (let stranger = 31; stranger < 39; stranger += 1) {
        const sent = await fleet.send(fleet.question(stranger, 17), { credit: false });
        expect([0, other]).to.include(await fleet.untilPlaced(sent));
        await fleet.finish(sent, 0, other);
      }
      expect(fleet.worker(peer).state()).to.include({ running: 1, waiting: 0, peak_running: 1 });

      const ended = await fleet.finish(seed, peer);
      expect(ended.answer.status, ended.answer.body.toString()).to.equal(200);
      expect(ended.seed).to.deep.include({
        kind: "seeded",
        outcome: "succeeded",
        uncommitted: undefined,
        // Where the engines tell who holds what, nobody else may.
        published: ownership === "committed",
      });
      expect(ended.seed?.kind === "seeded" ? ended.seed.story : {}).to.deep.include({
        kind: "cache_aware_distribution_seed",
        workerUrl: url(peer),
        ownership,
        owners: 1,
        matchedBlocks: SHARED_BLOCKS,
        occupied: 0,
        slots: CEILING,
      });
      const after = await fleet.page();
      expect(after.leases).to.deep.equal([]);
      expect(after.protections.map(({ phase }) => phase)).to.deep.equal(["success_cooldown"]);

      // From now on the peer serves the prompt, and from its cache.
      await fleet.untilHolds(peer);
      const headers = [["x-weir-excluded-worker-urls", url(0)]] as const;
      const served = await fleet.ask(fleet.question(1, 18), { headers, credit: false });
      expect(served.worker).to.equal(peer);
      expect(served.record.selection).to.include({ ownership, matchedBlocks: SHARED_BLOCKS });
      expect(served.record.cachedTokens).to.be.above(0);
      await fleet.stack.idle();
    });

    it("tells its whole story in one line, and is counted", async () => {
      const told = lines().map(({ seed }) => seed as SeedLine | undefined);
      const stories = told.filter((seed) => seed?.["result"] === "succeeded");
      expect(stories).to.have.length(1);
      expect(stories[0]).to.include({
        ownership,
        kind: "cache_aware_distribution_seed",
        owners: 1,
      });
      const series = await scrape(fleet.stack);
      const partition = "demo";
      expect(series("weir_seed_leases", { partition })).to.equal(0);
      const leases = (event: string): number =>
        series("weir_seed_leases_total", { partition, event });
      expect(leases("acquired")).to.equal(1);
      expect(leases("voided")).to.equal(0);
      expect(series("weir_seeds_total", { partition })).to.equal(1);
      const outcome = { kind: "cache_aware_distribution_seed", outcome: "succeeded" };
      expect(series("weir_seeds_total", { partition, ...outcome })).to.equal(1);
      expect(series("weir_seed_refusals_total", { partition })).to.equal(2);
    });
  });
}

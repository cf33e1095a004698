// Hours of virtual time against Weir's core and sessions, with checkers after every event. The seed
// is printed; SIM_SEED=n replays a run.

import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { CACHE_SABOTAGES } from "./cache-sabotage.js";
import { chosenSeed } from "./chosen-seed.js";
import { FAIR_SABOTAGES } from "./fair-sabotage.js";
import { FLEETS, type FleetPlan } from "./fleet.js";
import { SABOTAGES } from "./sabotage.js";
import { World, type RunResult } from "./world.js";

const MINUTE_MS = 60_000;
/** Of each fleet. A machine that tests every change runs a shorter day. */
const LENGTH_MINUTES = process.env["CI"] === undefined ? 120 : 30;
const CANARY_MINUTES = 30;
const IN_ORDER_OF_ARRIVAL = FLEETS.find(({ fair }) => fair === undefined);
const BY_CACHE = FLEETS.find(({ policy }) => policy !== undefined);
const FAIR = FLEETS.find(({ fair }) => fair !== undefined);

/** What a run met, for its log. */
function summary({ requests, events, outcomes, rejections, stats }: RunResult): string {
  const counts = [...outcomes, ...rejections, ...Object.entries(stats)];
  const list = counts.map(([name, count]) => `${name} ${String(count)}`).join(", ");
  return `      ${String(requests)} requests in ${String(events)} events: ${list}`;
}

function canary(
  fleet: FleetPlan | undefined,
  tamper?: ConstructorParameters<typeof World>[3],
): World {
  if (fleet === undefined) throw new Error("no fleet");
  return new World(fleet, 11, CANARY_MINUTES * MINUTE_MS, tamper);
}

describe("the simulated fleet", function () {
  this.timeout(240_000);

  for (const fleet of FLEETS) {
    it(`keeps every promise for ${String(LENGTH_MINUTES)} virtual minutes ${fleet.title}`, () => {
      const seed = chosenSeed();
      console.log(`      simulation: SIM_SEED=${String(seed)}, ${String(LENGTH_MINUTES)} minutes`);
      const result = new World(fleet, seed, LENGTH_MINUTES * MINUTE_MS).run();
      console.log(summary(result));
      // A run that never met a busy queue, a crash or a leaving client would prove little.
      expect([...result.outcomes.keys()]).to.include.members([
        "success",
        "http_5xx",
        "interrupted",
        "pre_admission_interrupted",
        "rejected",
      ]);
      expect([...result.rejections.keys()]).to.include.members([
        "scheduler_queue_full",
        "scheduler_queue_timeout",
        "scheduler_preempted",
        // Rare: a short run may meet none.
        ...(LENGTH_MINUTES < 120 ? [] : ["no_worker", "model_not_found"]),
      ]);
      for (const [what, count] of Object.entries(result.stats)) {
        // Rare as well.
        if (what === "passedOver" && LENGTH_MINUTES < 120) continue;
        expect(count, `the run met no ${what}`).to.be.greaterThan(0);
      }
      expect(result.outcomes.get("success")).to.be.greaterThan(result.requests / 3);
    });

    it(`gives the same trace for the same seed, and another one for another seed, ${fleet.title}`, () => {
      const run = (seed: number): string => new World(fleet, seed, 5 * MINUTE_MS).run().trace;
      expect(run(7)).to.equal(run(7));
      expect(run(7)).not.to.equal(run(8));
    });
  }

  for (const [fleet, sabotages] of [
    [IN_ORDER_OF_ARRIVAL, SABOTAGES],
    [FAIR, FAIR_SABOTAGES],
    [BY_CACHE, CACHE_SABOTAGES],
  ] as const) {
    for (const { title, apply, violation } of sabotages) {
      it(`catches ${title}`, () => {
        const world = canary(fleet);
        const mend = apply();
        try {
          expect(() => world.run()).to.throw(violation);
        } finally {
          mend();
        }
      });
    }
  }

  it("catches a request that is settled twice", () => {
    const world = canary(IN_ORDER_OF_ARRIVAL, (settle) => {
      let count = 0;
      return (record: SettlementRecord) => {
        count += 1;
        settle(record);
        if (count === 100) settle(record);
      };
    });
    expect(() => world.run()).to.throw(/is settled twice/);
  });
});

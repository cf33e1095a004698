// Goal: with limits that are three times too high, requests pile up inside the engines, where nobody
// orders them; where the slots follow what the engines report, they wait in Weir instead, and no
// throughput is lost for it. Method: engines that run eight requests at once and queue the rest, more
// clients than there are slots, a poll every second. All fleets run at the same time, so that a slow
// machine is equally slow for all of them, and only the engines' own figures of the second half count:
// by then the first eight polls have been learned from.
import { expect } from "chai";
import {
  partitionOf,
  ReturningClients,
  startFleet,
  watchEngines,
  type EngineSketch,
  type Fleet,
  type PartitionState,
  type Stretch,
} from "../support/feedback-fleet.js";

const RUNS_AT_ONCE = 8;
const REPLICAS = 2;
const STATIC_SLOTS = 3 * RUNS_AT_ONCE * REPLICAS;
/** More than there are slots, so that somebody always waits in Weir too. */
const CLIENTS = STATIC_SLOTS + 12;
/**
 * At 50 ms a token a request runs for 1.5 to 3.5 seconds. A slot is empty between an answer's end and the
 * next request's arrival; on a slow machine that is a large part of a short request.
 */
const TOKENS = [30, 70] as const;
const PACE = { slots: RUNS_AT_ONCE, msPerToken: 50 } as const;
/** The first half takes the flood of the first second, and drains it from the engines. */
const HALF_MS = 8_000;
/** The tolerated line at an engine, `feedback_max_waiting_requests_per_healthy_replica`. */
const WAITING_TOLERATED = 2;

interface Plan {
  readonly dress: string;
  readonly mode: "off" | "enforce";
  readonly engine: EngineSketch;
  /** Mean line at one engine: more than a request in two engines is not near zero. */
  readonly waitingMax: number;
}

/**
 * vLLM does not say how many requests it runs at most, so its limit is the learned knee and a margin of
 * two, which by design may stand in its line. SGLang says it, and no margin goes beyond that.
 */
const PLANS: readonly Plan[] = [
  {
    dress: "vLLM",
    mode: "enforce",
    engine: { engine: "vllm", mock: PACE },
    waitingMax: WAITING_TOLERATED,
  },
  {
    dress: "SGLang with /v1/loads",
    mode: "enforce",
    engine: { engine: "sglang", mock: PACE },
    waitingMax: 0.5,
  },
  {
    dress: "SGLang with /get_load",
    mode: "enforce",
    engine: { engine: "sglang", mock: PACE, faults: { loads_status: 404 } },
    waitingMax: 0.5,
  },
];

/** With mode off nobody asks the engines, so one dress stands for all. */
const STATIC: Plan = {
  dress: "vLLM",
  mode: "off",
  engine: { engine: "vllm", mock: PACE },
  waitingMax: Number.POSITIVE_INFINITY,
};

interface Run {
  readonly stretch: Stretch;
  readonly clients: ReturningClients;
  readonly state: PartitionState | undefined;
}

async function runUnder(fleet: Fleet, { mode }: Plan): Promise<Run> {
  const clients = new ReturningClients(fleet.stack, CLIENTS, TOKENS);
  await watchEngines(fleet.workers, HALF_MS);
  const stretch = await watchEngines(fleet.workers, HALF_MS);
  const state = mode === "off" ? undefined : await partitionOf(fleet.stack);
  await clients.leave();
  return { stretch, clients, state };
}

describe("engines under static limits three times too high", function () {
  this.timeout(60_000);
  const fleets = new Map<Plan, Fleet>();
  const runs = new Map<Plan, Run>();

  before(async () => {
    const all = [STATIC, ...PLANS];
    for (const plan of all) {
      const fleet = await startFleet({
        engines: Array.from({ length: REPLICAS }, () => plan.engine),
        slots: { demo: STATIC_SLOTS },
        adaptive: { mode: plan.mode },
      });
      fleets.set(plan, fleet);
    }
    await Promise.all(
      Array.from(fleets, async ([plan, fleet]) => {
        runs.set(plan, await runUnder(fleet, plan));
      }),
    );
  });
  after(() => Promise.all(Array.from(fleets.values(), (fleet) => fleet.stop())));

  function runOf(plan: Plan): Run {
    const run = runs.get(plan);
    if (run === undefined) throw new Error(`${plan.dress} did not run`);
    return run;
  }

  it("pile up requests inside, with mode off", () => {
    const { stretch, clients } = runOf(STATIC);
    console.log(`      mode off: ${figures(stretch)}`);
    // 48 slots for 16 running requests: 16 in each engine's line.
    expect(stretch.waiting).to.be.at.least(10);
    clients.expectServed();
  });

  for (const plan of PLANS) {
    const { dress, waitingMax } = plan;
    it(`hold none or few of them while slots follow ${dress}, as fast, and refuse nobody`, () => {
      const { stretch, clients, state } = runOf(plan);
      console.log(`      ${dress}: ${figures(stretch)}, slots ${String(state?.slots.adaptive)}`);
      expect(stretch.waiting).to.be.at.most(waitingMax);
      const fixed = runOf(STATIC).stretch.tokensPerSecond;
      expect(stretch.tokensPerSecond).to.be.at.least(0.9 * fixed);
      clients.expectServed();
      expect(state?.slots.static).to.equal(STATIC_SLOTS);
      expect(state?.slots.adaptive).to.be.at.most((RUNS_AT_ONCE + WAITING_TOLERATED) * REPLICAS);
    });
  }
});

function figures({ waiting, tokensPerSecond }: Stretch): string {
  return `${waiting.toFixed(2)} waiting per engine, ${tokensPerSecond.toFixed(0)} tokens per second`;
}

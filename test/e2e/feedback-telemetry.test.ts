// Goal: without telemetry, or with too little of it, Weir does what it did before there was any, and
// says so; a worker that is gone takes its figures with it; an API key shows up nowhere. Method: engines
// whose telemetry paths fail in one way each, and the admin pages, the metrics and the log read as an
// operator reads them.
import { expect } from "chai";
import {
  expectServed,
  openChat,
  openRunning,
  scrape,
  untilRunning,
} from "../support/class-chat.js";
import {
  adminText,
  admissionOf,
  startFleet,
  untilPartition,
  type EngineSketch,
  type Fleet,
} from "../support/feedback-fleet.js";
import { keptLog } from "../support/kept-log.js";
import { PACED, produceTokens } from "../support/slots.js";
import type { Stack } from "../support/stack.js";

const failures = async (stack: Stack, reason: string): Promise<number> =>
  (await scrape(stack))("weir_worker_telemetry_failures_total", { reason });

describe("engines that report nothing, through Envoy", function () {
  this.timeout(60_000);
  /** The reason each is counted under, and what it does. */
  const DEAD: readonly (readonly [reason: string, engine: EngineSketch])[] = [
    ["status_other", { engine: "vllm", faults: { metrics_status: 500 } }],
    ["status_401", { engine: "vllm", faults: { telemetry_key: "another" } }],
    ["not_text", { engine: "vllm", faults: { metrics_body: "<html>sign in</html>" } }],
    ["status_404", { engine: "vllm", faults: { metrics_status: 404 } }],
    // In a partition of its own: the others of a group are published when its five seconds are over.
    ["timeout", { engine: "vllm", faults: { telemetry_hang: true }, mock: { models: ["slow"] } }],
  ];
  const SLOTS = 6;
  /** Complaints come again after ten seconds; a slow machine may see the second one. */
  const QUIET_MS = 9_900;
  const kept = keptLog();
  let fleet: Fleet;
  before(async () => {
    fleet = await startFleet({
      engines: DEAD.map(([, engine]) => engine),
      slots: { demo: SLOTS, slow: SLOTS },
      adaptive: { mode: "enforce" },
      log: kept.log,
    });
  });
  after(() => fleet.stop());

  it("get their traffic within the static limits, and each decision says why", async () => {
    const { stack } = fleet;
    for (const model of ["demo", "slow"]) {
      const chats = Array.from({ length: 2 * SLOTS }, () => openChat(stack, { body: { model } }));
      for (const { answer } of chats) expectServed(await answer);
    }
    await stack.idle();
    const { adaptive_capacity, partitions, workers } = await admissionOf(stack);
    expect(adaptive_capacity).to.equal(true);
    expect(workers).to.deep.equal([]);
    expect(partitions.map(({ partition }) => partition)).to.deep.equal(["demo", "slow"]);
    for (const { slots, decisions, last_reason, limits } of partitions) {
      expect(slots).to.include({ static: SLOTS, adaptive: SLOTS, granted: SLOTS });
      expect(limits).to.include({ coverage: 0, usable: false });
      expect(last_reason).to.equal("telemetry_fallback");
      expect(decisions).to.include({ telemetry_fallback: 2 * SLOTS, within_feedback_limit: 0 });
    }
    const decisions = "weir_adaptive_admission_decisions_total";
    const series = await scrape(stack);
    expect(series(decisions)).to.equal(4 * SLOTS);
    expect(series(decisions, { outcome: "telemetry_fallback" })).to.equal(4 * SLOTS);
  });

  it("are counted by reason, with one line in the log per worker and reason", async () => {
    const { stack, workers } = fleet;
    for (const [index, [reason]] of DEAD.entries()) {
      // The one that hangs fails every five seconds, the others every second.
      const polls = reason === "timeout" ? 1 : 2;
      await stack.until(
        `${reason} is counted`,
        async () => (await failures(stack, reason)) >= polls,
      );
      const { url } = workers[index] ?? { url: "" };
      const lines = kept.lines().filter((line) => JSON.stringify(line).includes(`${url}"`));
      const complaints = lines.filter((line) => line["msg"] !== "request settled");
      const since = Number(complaints[0]?.["time"]);
      const told = complaints.filter(({ time }) => Number(time) - since < QUIET_MS);
      expect(
        told.map((line) => line["reason"]),
        JSON.stringify(told),
      ).to.deep.equal([reason]);
    }
  });
});

describe("half a fleet that reports, through Envoy", () => {
  const CEILING = 2;
  const STATIC_SLOTS = 12;
  for (const adaptiveCapacity of [true, false]) {
    const acting = adaptiveCapacity ? "slots would follow" : "requests would be refused";
    it(`is too little to act upon: the static limit holds and nobody is refused where ${acting}`, async () => {
      const mock = { ...PACED, slots: CEILING };
      const { stack, workers, stop } = await startFleet({
        engines: [
          { engine: "sglang", mock },
          { engine: "sglang", mock, faults: { telemetry_key: "another" } },
        ],
        slots: { demo: STATIC_SLOTS },
        adaptive: { mode: "enforce" },
        adaptiveCapacity,
      });
      try {
        await untilPartition(stack, "half is seen", ({ engines }) => engines["observed"] === 1);
        const chats = Array.from({ length: STATIC_SLOTS + 1 }, () => openChat(stack, {}));
        await stack.until("the static slots are taken", () => {
          const { inFlight, queued } = stack.held();
          return inFlight === STATIC_SLOTS && queued === 1;
        });
        // The reporting engine has four in its queue: pressure, if it counted.
        workers[0]?.advance(1);
        const state = await untilPartition(
          stack,
          "its queue is seen",
          ({ engines }) => (engines["waiting"] ?? 0) > CEILING,
        );
        expect(state.limits).to.include({ coverage: 0.5, usable: false });
        expect(state.slots).to.include({ static: STATIC_SLOTS, granted: STATIC_SLOTS });
        await stack.until("all are served", async () => {
          await produceTokens({ workers }, 5);
          return stack.settled.length === chats.length;
        });
        for (const { answer } of chats) expectServed(await answer);
        const series = await scrape(stack);
        const decisions = "weir_adaptive_admission_decisions_total";
        expect(series(decisions, { reason: "telemetry_fallback" })).to.equal(chats.length);
        expect(series(decisions)).to.equal(chats.length);
      } finally {
        await stop();
      }
    });
  }
});

describe("a worker that dies, through Envoy", () => {
  it("takes its figures with it at once, and the rest go on", async () => {
    const { stack, workers, stop } = await startFleet({
      engines: [{ engine: "sglang" }, { engine: "vllm" }],
      slots: { demo: 8 },
      // Asked once a minute: it is its end, not the next poll, that takes the entry away.
      adaptive: { mode: "enforce", load_monitor_interval_secs: 30 },
      config: { health: { interval_secs: 0.5, timeout_secs: 0.45 } },
    });
    try {
      await untilPartition(stack, "both are seen", ({ engines }) => engines["observed"] === 2);
      const [alive, dead] = workers;
      await dead?.close(0);
      await stack.until("it is out", () =>
        [...stack.app.workers.all()].some(({ healthy }) => !healthy),
      );
      const page = await admissionOf(stack);
      expect(page.workers.map(({ url }) => url)).to.deep.equal([alive?.url]);
      expect(page.partitions[0]?.engines).to.include({ healthy: 1, observed: 1 });
      expect(page.partitions[0]?.limits).to.include({ coverage: 1, usable: true });
      const chats = Array.from({ length: 16 }, () => openChat(stack, {}));
      for (const { answer } of chats) expectServed(await answer);
      expect(alive?.state().served).to.equal(16);
    } finally {
      await stop();
    }
  });
});

describe("engines that want an API key, through Envoy", () => {
  const KEY = "weir-test-key-7f3a";
  const WRONG = "weir-test-key-wrong";
  const VARIABLES = { WEIR_E2E_KEY: KEY, WEIR_E2E_WRONG_KEY: WRONG } as const;
  const kept = keptLog();
  let fleet: Fleet;
  before(async () => {
    Object.assign(process.env, VARIABLES);
    const faults = { telemetry_key: KEY };
    fleet = await startFleet({
      engines: [
        { engine: "vllm", faults, config: { api_key_env: "WEIR_E2E_KEY" } },
        { engine: "sglang", faults, config: { api_key_env: "WEIR_E2E_KEY" } },
        { engine: "vllm", faults, config: { api_key_env: "WEIR_E2E_WRONG_KEY" } },
        { engine: "sglang", faults, config: { api_key_env: "WEIR_E2E_NO_KEY" } },
      ],
      slots: { demo: 8 },
      adaptive: { mode: "shadow" },
      log: kept.log,
    });
  });
  after(async () => {
    for (const name of Object.keys(VARIABLES)) Reflect.deleteProperty(process.env, name);
    await fleet.stop();
  });

  it("are asked with the one from the environment; a wrong one is a failure; none shows anywhere", async () => {
    const { stack, workers } = fleet;
    await untilPartition(stack, "two are seen", ({ engines }) => engines["observed"] === 2);
    await stack.until("both failures are counted", async () => {
      return (await failures(stack, "status_401")) >= 2;
    });
    expectServed(await openChat(stack, {}).answer);
    await stack.settlements(1);

    const page = await admissionOf(stack);
    const seen = page.workers.map(({ url }) => url);
    expect(seen).to.have.members([workers[0]?.url, workers[1]?.url]);
    expect(kept.text()).to.include("WEIR_E2E_NO_KEY is not set");
    const pages = ["/metrics", "/state", "/state/admission", "/state/fair-share"];
    const texts = await Promise.all(pages.map((path) => adminText(stack, path)));
    for (const text of [kept.text(), ...texts]) {
      expect(text).to.have.length.above(100);
      expect(text).to.not.include(KEY).and.to.not.include(WRONG);
    }
    // It is for telemetry: requests carry what their clients sent.
    const carried = workers.flatMap((worker) => worker.state().last_requests);
    expect(carried).to.have.length(1);
    expect(JSON.stringify(carried)).to.not.include(KEY);
  });
});

describe("what Weir makes of its engines, through Envoy", () => {
  it("stands on /state/admission: inputs, knee, limits, slots and the last reason", async () => {
    const { stack, workers, stop } = await startFleet({
      engines: [{ engine: "sglang", mock: { ...PACED, slots: 2, kvBlocks: 10, blockChars: 64 } }],
      slots: { demo: 6 },
      adaptive: { mode: "enforce" },
    });
    try {
      const [worker] = workers;
      if (worker === undefined) throw new Error("there is a worker");
      await untilPartition(stack, "the ceiling is known", ({ limits }) => limits["engine"] === 2);
      const body = { max_tokens: 32, ignore_eos: true };
      const chats = [await openRunning(stack, { body }), await openRunning(stack, { body })];
      const third = openChat(stack, { body });
      await untilRunning(stack, 2, workers);
      await stack.until("the third one is held", () => stack.held()["queued"] === 1);
      // Two requests, five tokens each, within the last second of the engine's clock.
      await produceTokens({ workers }, 5);
      const seen = (rate: unknown): boolean => typeof rate === "number" && rate > 0;
      await untilPartition(stack, "work is seen", (one) => seen(one.engines["tokens_per_second"]));

      const page = await admissionOf(stack);
      const [state] = page.partitions;
      const [reported] = page.workers;
      expect(page).to.include({ mode: "enforce", adaptive_capacity: true });
      expect(page.revision).to.be.at.least(2);
      // Each holds 1 prompt block and 32 x 4 / 64 = 2 output blocks of ten.
      expect(reported).to.deep.include({
        url: worker.url,
        source: "sglang_loads",
        running: 2,
        waiting: 0,
        token_usage: 0.6,
        tokens_per_second: 10,
        max_running: 2,
        unreadable_fields: [],
      });
      expect(reported?.["age_ms"]).to.be.within(0, 10_000);
      expect(state).to.deep.include({
        partition: "demo",
        slots: { static: 6, adaptive: 2, orphans: 0, granted: 2 },
        outstanding: 2,
        last_reason: "within_feedback_limit",
        engines: {
          healthy: 1,
          observed: 1,
          held_readings: 0,
          running: 2,
          waiting: 0,
          waiting_uncached_tokens: 0,
          mean_token_usage: 0.6,
          max_token_usage: 0.6,
          tokens_per_second: 10,
          max_running: 2,
        },
      });
      expect(state?.decisions).to.include({ within_feedback_limit: 2, running_limit: 0 });
      // The first busy sample is the knee; the margin is the least one, two requests per worker.
      expect(state?.learned).to.deep.include({
        knee_per_replica: 2,
        pressure_seen: false,
        offset: 2,
        last_sample: "first",
      });
      // Both lose half their value in 15 minutes; a minute costs less than five percent.
      for (const name of ["knee_tokens_per_second", "capacity_tokens_per_second"]) {
        expect(state?.learned[name], name).to.be.within(9.5, 10);
      }
      expect(state?.limits).to.deep.equal({
        coverage: 1,
        max_running_coverage: 1,
        usable: true,
        engine: 2,
        learned: 4,
        running: 2,
        pressure: null,
      });

      await produceTokens({ workers }, 32);
      await untilRunning(stack, 1, workers);
      await produceTokens({ workers }, 32);
      for (const { answer } of [...chats, third]) expectServed(await answer);
    } finally {
      await stop();
    }
  });
});

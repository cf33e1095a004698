// Goal: a prefix whose owners are hot by their engines' word gets one more owner, and only one, whatever
// arrives at once; at its ceiling it gets none. Engine load is polled for this also while adaptive
// admission is off. Method: workers that report the KV usage that the test sets and produce tokens only
// when they are told to, so that everything that arrives is under way at once.
import { expect } from "chai";
import type { SelectionDecision } from "../../extproc/core/selection/decision.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import {
  ask,
  chatOf,
  countsOf,
  message,
  selectionOf,
  send,
  workerOf,
  type Asked,
  type Question,
} from "../support/cached-chat.js";
import { scrape, untilRunning } from "../support/class-chat.js";
import { startFleet, type Fleet } from "../support/feedback-fleet.js";
import { PACED, produceTokens } from "../support/slots.js";
import type { Stack } from "../support/stack.js";

const BLOCK_CHARS = 256;
const WORKERS = 4;
const SHARED_BLOCKS = 4;
const OWN_BLOCKS = 1;
const BURST = 16;

const HOT = 0.95;
const COOL = 0.2;

/** What a vLLM engine reports that is this full. */
function metricsOf(kvUsage: number): string {
  const gauges = [
    ["num_requests_running", 1],
    ["num_requests_waiting", 0],
    ["kv_cache_usage_perc", kvUsage],
  ] as const;
  return gauges
    .map(([name, value]) => `vllm:${name}{engine="0",model_name="demo"} ${String(value)}\n`)
    .join("");
}

/** A shared beginning of four blocks, and a question of its own behind it. */
function question(shared: string, own: string): Question {
  return chatOf([
    message("system", shared, SHARED_BLOCKS, BLOCK_CHARS),
    message("user", own, OWN_BLOCKS, BLOCK_CHARS),
  ]);
}

describe("a prefix whose owner is hot, through Envoy", function () {
  this.timeout(60_000);
  let fleet: Fleet;
  let stack: Stack;
  let asked = 0;
  /** Urls of the workers that each shared beginning was sent to. */
  const places = new Map<string, Set<string>>();
  before(async () => {
    fleet = await startFleet({
      engines: Array.from({ length: WORKERS }, () => ({
        engine: "vllm",
        mock: { ...PACED, blockChars: BLOCK_CHARS },
        faults: { metrics_body: metricsOf(COOL) },
      })),
      slots: { demo: 64 },
      adaptive: { mode: "off" },
      config: {
        models: { demo: { policy: "cache_aware" } },
        selection: {
          engine_load: true,
          max_cached_owners_per_prefix: 2,
          cache_owner_spill_cooldown_secs: 60,
        },
      },
    });
    stack = fleet.stack;
  });
  after(() => fleet.stop());

  const report = (url: string | undefined, kvUsage: number): void => {
    workerAt(url).setFaults({ metrics_body: metricsOf(kvUsage) });
  };

  function workerAt(url: string | undefined): MockWorker {
    const worker = fleet.workers.find((candidate) => candidate.url === url);
    if (worker === undefined) throw new Error(`no worker at ${String(url)}`);
    return worker;
  }

  /** Lets the workers work until the promise is kept. */
  async function working<Value>(promise: Promise<Value>): Promise<Value> {
    let settled = false;
    const done = promise.finally(() => {
      settled = true;
    });
    await stack.until("the work is done", async () => {
      await produceTokens(fleet, 5);
      return settled;
    });
    return done;
  }

  /** A question on a shared beginning, answered. */
  async function askOn(shared: string): Promise<Asked> {
    asked += 1;
    const answered = await working(ask(stack, question(shared, `question ${String(asked)}`)));
    expect(answered.answer.status).to.equal(200);
    note(shared, answered.worker);
    return answered;
  }

  function note(shared: string, url: string | undefined): void {
    places.set(shared, (places.get(shared) ?? new Set<string>()).add(url ?? ""));
  }

  /** Asks until Weir has heard of the engines' new load: until a question is decided like this. */
  async function askUntil(
    shared: string,
    wanted: Pick<Partial<SelectionDecision>, "result" | "engineLoad">,
  ): Promise<Asked> {
    let last: Asked | undefined;
    await stack.until(`${shared}: ${JSON.stringify(wanted)}`, async () => {
      last = await askOn(shared);
      const { result, engineLoad } = last.decision ?? {};
      return (
        (wanted.result ?? result) === result && (wanted.engineLoad ?? engineLoad) === engineLoad
      );
    });
    if (last === undefined) throw new Error("nothing was asked");
    return last;
  }

  /** Two prefixes at one worker: the herald tells when Weir knows of its load, before the subject is asked. */
  async function pairAtOneWorker(herald: string): Promise<{ owner: string; subject: string }> {
    for (const { url } of fleet.workers) report(url, COOL);
    await askOn(herald);
    const known = { result: "cached_owner_hold", engineLoad: "cached_owner_scoped" } as const;
    const { worker: owner = "" } = await askUntil(herald, known);
    let subject = "";
    await stack.until("a prefix at the same worker", async () => {
      subject = `subject ${String(asked)}`;
      return (await askOn(subject)).worker === owner;
    });
    expect((await askOn(subject)).decision).to.include({
      ...known,
      owners: 1,
      matchedBlocks: SHARED_BLOCKS,
    });
    return { owner, subject };
  }

  /** So many questions on a shared beginning, all under way at once; the urls and the results. */
  async function burst(shared: string): Promise<{
    readonly urls: readonly (string | undefined)[];
    readonly results: Readonly<Record<string, number>>;
  }> {
    stack.clear();
    const answers = Array.from({ length: BURST }, (_, index) => {
      asked += 1;
      return send(stack, question(shared, `question ${String(asked)} of ${String(index)}`));
    });
    await untilRunning(stack, BURST, fleet.workers);
    const served = await working(Promise.all(answers));
    for (const { status } of served) expect(status).to.equal(200);
    for (const answer of served) note(shared, workerOf(answer));
    const records = await stack.settlements(BURST);
    return {
      urls: served.map(workerOf),
      results: countsOf(records.map(({ selection }) => selection?.result)),
    };
  }

  it("gets exactly one more owner while sixteen requests arrive, and none beyond its ceiling", async () => {
    const { owner, subject } = await pairAtOneWorker("herald");
    report(owner, HOT);
    const { worker: refuge } = await askUntil("herald", { result: "owner_pressure_spill" });
    expect(refuge).to.not.equal(owner);

    const spilled = await burst(subject);
    const [second] = spilled.urls;
    expect(new Set(spilled.urls)).to.deep.equal(new Set([second]));
    expect(second).to.not.equal(owner);
    expect(spilled.results).to.deep.equal({
      owner_pressure_spill: 1,
      spill_cooldown_hold: BURST - 1,
    });
    // Both are proven now, and the calm one takes what comes.
    const { worker, decision } = await askOn(subject);
    expect(worker).to.equal(second);
    expect(decision).to.include({ result: "cached_owner_hold", owners: 2 });

    // Now all owners of both prefixes are hot, and two are all there may be.
    for (const url of new Set([refuge, second])) report(url, HOT);
    const ceiling = await askUntil("herald", { result: "owner_ceiling_hold" });
    expect([owner, refuge]).to.include(ceiling.worker);
    await askUntil(subject, { result: "owner_ceiling_hold" });
    const held = await burst(subject);
    expect(held.results).to.deep.equal({ owner_ceiling_hold: BURST });
    // Equal requests under way at once are shared out evenly.
    expect(countsOf(held.urls)).to.deep.equal({
      [owner]: BURST / 2,
      [second ?? ""]: BURST / 2,
    });
    // Nobody else was ever asked about either.
    expect(places.get("herald")).to.deep.equal(new Set([owner, refuge]));
    expect(places.get(subject)).to.deep.equal(new Set([owner, second]));
    const page = await selectionOf(stack);
    expect(page.protected_prefixes).to.equal(2);
    const series = await scrape(stack);
    const replications = "weir_cache_aware_replication_decisions_total";
    expect(series(replications, { result: "owner_pressure_spill" })).to.equal(2);
    expect(series(replications, { result: "spill_cooldown_hold" })).to.equal(BURST - 1);
    expect(series(replications, { result: "owner_ceiling_hold" })).to.be.at.least(BURST + 2);
  });

  it("stays with the worker it was spilled to for the cooldown, though the first answer from there failed", async () => {
    const { owner, subject } = await pairAtOneWorker("bard");
    report(owner, HOT);
    await askUntil("bard", { result: "owner_pressure_spill" });
    const failed = await working(
      ask(stack, { ...question(subject, "in vain"), headers: [["x-mock", "status=500"]] }),
    );
    expect(failed.answer.status).to.equal(500);
    expect(failed.worker).to.not.equal(owner);
    expect(failed.decision).to.include({ result: "owner_pressure_spill", owners: 1 });
    const next = await askOn(subject);
    expect(next.worker).to.equal(failed.worker);
    expect(next.decision).to.include({ result: "spill_cooldown_hold", owners: 2 });
    // It has computed the prompt now, and is an owner like the first one.
    const proven = await askOn(subject);
    expect(proven.worker).to.equal(failed.worker);
    expect(proven.decision).to.include({ result: "cached_owner_hold", owners: 2 });
  });

  it("stays at its owner while the load of any engine is unknown", async () => {
    const { owner, subject } = await pairAtOneWorker("crier");
    report(owner, HOT);
    await askUntil("crier", { result: "owner_pressure_spill" });
    const silent = fleet.workers.find(({ url }) => url !== owner);
    silent?.setFaults({ metrics_status: 500 });
    await askUntil("crier", { engineLoad: "telemetry_fallback" });
    const { worker, decision } = await askOn(subject);
    expect(worker).to.equal(owner);
    expect(decision).to.include({ result: "cached_owner_hold", engineLoad: "telemetry_fallback" });
    report(silent?.url, COOL);
    await askUntil("crier", { engineLoad: "cached_owner_scoped" });
    const spilled = await askOn(subject);
    expect(spilled.worker).to.not.equal(owner);
    expect(spilled.decision).to.include({ result: "owner_pressure_spill" });
    const series = await scrape(stack);
    const engine = "weir_cache_aware_engine_decisions_total";
    expect(series(engine, { result: "telemetry_fallback" })).to.be.at.least(2);
  });
});

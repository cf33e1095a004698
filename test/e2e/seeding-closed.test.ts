// Goal: row X-2. A request that is refused does not seed when anything about it or about the engines is in
// doubt, and of those that want the same only one wins: incomplete telemetry, a replaced worker, a
// replayed proof, a stream, several answers or prompts, an engine that fails after it has told of the
// prompt, and a spill beside a seed. Telemetry that is stale has a file of its own, because it takes half a
// minute. Method: a real Envoy, and engines that produce tokens only when they are told to.

import { expect } from "chai";
import { expectError, type HeaderLines } from "../support/chat.js";
import type { Question } from "../support/cached-chat.js";
import {
  CEILING,
  SATURATED,
  startSeedFleet,
  WAITING,
  type SeedFleet,
  type Sent,
} from "../support/seed-fleet.js";

/** What an SGLang engine reports that tells no ceiling. */
function metricsOf(running: number, waiting: number): string {
  const gauges = [
    ["num_running_reqs", running],
    ["num_queue_reqs", waiting],
    ["token_usage", 0.1],
  ] as const;
  return gauges.map(([name, value]) => `sglang:${name} ${String(value)}\n`).join("");
}

const withoutCeiling = (running: number, waiting: number): object => ({
  loads_status: 404,
  get_load_status: 404,
  metrics_body: metricsOf(running, waiting),
});
const SILENT = { loads_status: 503, get_load_status: 503, metrics_status: 503 };
const PEERS = [1, 2];

/** A refusal that left nothing behind and that no engine has seen. */
async function expectRefused(
  fleet: SeedFleet,
  question: Question,
  seed: object,
  headers: HeaderLines = [],
): Promise<void> {
  const { answer, record, seed: told, worker } = await fleet.refused(question, { headers });
  expectError(answer, SATURATED);
  expect(told).to.deep.equal(seed);
  expect(record.charge?.tokens).to.equal(0);
  expect(worker).to.equal(undefined);
}

const refusedFor = (refusal: string): object => ({ kind: "refused", refusal });
const ineligible = (reason: string): object => ({ kind: "ineligible", reason });

describe("what keeps a refused request from seeding, through Envoy", function () {
  this.timeout(60_000);
  let fleet: SeedFleet;
  /** Documents of the full engine; each test takes its own. */
  let document = 0;
  before(async () => {
    fleet = await startSeedFleet({ adaptive: { min_load_coverage: 0.3 } });
    for (let held = 1; held <= 12; held += 1) await fleet.warm(0, held);
    await fleet.fill(0);
  });
  after(() => fleet.stop());
  beforeEach(() => {
    document += 1;
  });
  afterEach(async () => {
    expect((await fleet.page()).leases).to.deep.equal([]);
    for (const peer of PEERS) {
      expect(fleet.worker(peer).state()).to.include({ running: 0, waiting: 0 });
    }
  });

  /** The same request would seed, were it not for what the test has done: it does so now. */
  async function expectSeeds(question: Question): Promise<void> {
    const sent = await fleet.send(question);
    const peer = await fleet.untilPlaced(sent);
    expect(PEERS).to.include(peer);
    const { answer, seed } = await fleet.finish(sent, peer);
    expect(answer.status).to.equal(200);
    expect(seed).to.include({ kind: "seeded", outcome: "succeeded", published: true });
  }

  it("X-2 streaming, several answers and several prompts are refused as before", async () => {
    const stream = fleet.question(document, 1, { stream: true });
    await expectRefused(fleet, stream, ineligible("streaming"));
    const two = fleet.question(document, 1, { n: 2 });
    await expectRefused(fleet, two, ineligible("several_answers"));
    const completion = (body: object): Question => ({
      path: "/v1/completions",
      body: { model: "demo", max_tokens: 5, ...body },
    });
    const text = "once upon a time ".repeat(40);
    const best = completion({ prompt: text, best_of: 2 });
    await expectRefused(fleet, best, ineligible("several_answers"));
    const batch = completion({ prompt: [text, text] });
    await expectRefused(fleet, batch, ineligible("several_prompts"));
    const { answer, seed } = await fleet.refused(fleet.question(document, 1), { credit: false });
    expectError(answer, SATURATED);
    expect(seed).to.deep.equal(ineligible("no_proof"));
    await expectSeeds(fleet.question(document, 1));
  });

  it("X-2 incomplete telemetry of the peers leaves nobody to seed", async () => {
    for (const peer of PEERS) fleet.setFaults(peer, withoutCeiling(0, 0));
    await fleet.seen();
    await expectRefused(fleet, fleet.question(document, 1), refusedFor("plan_no_clean_peer"));
    for (const peer of PEERS) fleet.setFaults(peer, SILENT);
    await fleet.seen();
    await expectRefused(fleet, fleet.question(document, 2), refusedFor("plan_no_clean_peer"));
    for (const peer of PEERS) fleet.setFaults(peer, {});
    await fleet.seen();
    await expectSeeds(fleet.question(document, 3));
  });

  it("X-2 incomplete telemetry of the owner leaves it unknown whether it is full", async () => {
    fleet.setFaults(0, withoutCeiling(CEILING, WAITING));
    await fleet.seen();
    await expectRefused(fleet, fleet.question(document, 1), refusedFor("plan_owner_unknown"));
    fleet.setFaults(0, {});
    await fleet.seen();
    await expectSeeds(fleet.question(document, 2));
  });

  it("X-2 a peer that was replaced is unknown until its engine reports again", async () => {
    // A report in between would be one of the new registrations.
    for (const peer of PEERS) fleet.setFaults(peer, { telemetry_hang: true });
    for (const peer of PEERS) fleet.replace(peer);
    await expectRefused(fleet, fleet.question(document, 1), refusedFor("plan_no_clean_peer"));
    for (const peer of PEERS) fleet.setFaults(peer, {});
    await fleet.untilKnown(...PEERS);
    await expectSeeds(fleet.question(document, 2));
  });

  it("X-2 a worker that is replaced during its seed is no owner by its success", async () => {
    const seed = await fleet.send(fleet.question(document, 1));
    const peer = await fleet.untilPlaced(seed);
    const before = await fleet.blocksOf(peer);
    fleet.replace(peer);
    const ended = await fleet.finish(seed, peer);
    expect(ended.answer.status).to.equal(200);
    expect(ended.seed).to.include({ kind: "seeded", outcome: "succeeded", published: false });
    expect(await fleet.blocksOf(peer)).to.deep.equal(before);
    await fleet.untilKnown(peer);
  });

  it("X-2 a credit that is sent again finds itself redeemed, during the seed and after it", async () => {
    const credit = await fleet.credit();
    const question = fleet.question(document, 1);
    const seed = fleet.sendWith(credit, question);
    const peer = await fleet.untilPlaced(seed);
    const expectReplayed = async (): Promise<void> => {
      const { answer, seed: told } = await fleet.finish(fleet.sendWith(credit, question));
      expectError(answer, { status: 409, code: "capacity_credit_already_redeemed" });
      expect(told).to.equal(undefined);
    };
    await expectReplayed();
    expect((await fleet.finish(seed, peer)).answer.status).to.equal(200);
    await expectReplayed();
  });

  it("X-2 of eight that come at once one seeds, and the others are refused", async () => {
    const credits: HeaderLines[] = [];
    while (credits.length < 8) credits.push(await fleet.credit());
    fleet.stack.clear();
    const sent = credits.map((credit, own) =>
      fleet.sendWith(credit, fleet.question(document, own)),
    );
    await fleet.stack.settlements(7);
    const refused = fleet.stack.settled.map((record) => record.seed);
    const atEngines = (): Sent[] => sent.filter((one) => fleet.placeOf(one) !== undefined);
    await fleet.stack.until("the seed is at its engine", () => atEngines().length > 0);
    const placed = atEngines();
    expect(placed).to.have.length(1);
    expect(refused).to.deep.equal(Array(7).fill(refusedFor("plan_prefix_protected")));
    const [winner] = placed as [Sent];
    const { seed } = await fleet.finish(winner, fleet.placeOf(winner) ?? 0);
    expect(seed).to.include({ kind: "seeded", outcome: "succeeded" });
  });

  it("X-2 an answer that is not good and whole makes nobody an owner, and reaches the client", async () => {
    const cases = [
      { mock: "status=500", fault: "bad_status", status: 500 },
      { mock: "usage=none", fault: "no_usage", status: 200 },
      { mock: "truncate", fault: "wrong_kind", status: 200 },
    ];
    for (const { mock, fault, status } of cases) {
      const headers = [["x-mock", mock]] as const;
      const seed = await fleet.send(fleet.question(document, 1), { headers });
      const peer = await fleet.untilPlaced(seed);
      const before = await fleet.blocksOf(peer);
      const ended = await fleet.finish(seed, peer);
      expect(ended.answer.status).to.equal(status);
      expect(ended.answer.headers["x-mock-worker"]).to.equal(String(fleet.worker(peer).port));
      expect(ended.seed).to.include({ kind: "seeded", outcome: "failed", uncommitted: fault });
      expect(await fleet.blocksOf(peer)).to.deep.equal(before);
      await expectRefused(fleet, fleet.question(document, 2), refusedFor("plan_prefix_protected"));
      document += 1;
    }
  });
});

describe("an engine that fails after it has told of the prompt, through Envoy", function () {
  this.timeout(60_000);
  let fleet: SeedFleet;
  before(async () => {
    fleet = await startSeedFleet({
      ownership: "events",
      selection: { cache_owner_spill_cooldown_secs: 30 },
    });
    await fleet.warm(0, 1);
  });
  after(() => fleet.stop());

  async function expectAtOwner(own: number, result: string): Promise<void> {
    const sent = await fleet.send(fleet.question(1, own), { credit: false });
    expect(await fleet.untilPlaced(sent)).to.equal(0);
    const { record } = await fleet.finish(sent, 0);
    expect(record.selection?.result).to.equal(result);
  }

  /** Without the owner nobody is left, whatever the seed's engine says that it holds. */
  async function expectNowhere(own: number): Promise<void> {
    const headers = [["x-weir-excluded-worker-urls", fleet.worker(0).url]] as const;
    const question = fleet.question(1, own);
    const { answer, worker } = await fleet.refused(question, { headers, credit: false });
    expectError(answer, SATURATED);
    expect(worker).to.equal(undefined);
  }

  it("X-2 is not chosen during the seed nor after it: the early event proves nothing", async () => {
    await fleet.fill(0);
    const headers = [["x-mock", "reset=after"]] as const;
    const seed = await fleet.send(fleet.question(1, 11), { headers });
    const peer = await fleet.untilPlaced(seed);
    expect(PEERS).to.include(peer);
    // The prompt is computed and told of before there is an answer.
    await fleet.untilHolds(peer);
    await fleet.drain();
    await expectAtOwner(12, "active_distribution_seed_hold");
    await expectNowhere(13);

    const ended = await fleet.finish(seed, peer);
    // How far the answer came before the connection broke is a matter of chance.
    expect(ended.answer.status === 200 && ended.answer.complete).to.equal(false);
    expect(ended.seed).to.include({ kind: "seeded", outcome: "failed", published: false });
    const { protections } = await fleet.page();
    expect(protections.map(({ phase }) => phase)).to.deep.equal(["failure_quarantine"]);
    await fleet.untilHolds(peer);
    await expectAtOwner(14, "failed_distribution_seed_hold");
    await expectNowhere(15);
    await fleet.fill(0);
    await expectRefused(fleet, fleet.question(1, 16), refusedFor("plan_prefix_protected"));
    expect(fleet.worker(peer).state()).to.include({ running: 0, peak_running: 1 });
  });
});

describe("a spill and a seed on one prompt, through Envoy", function () {
  this.timeout(60_000);
  let fleet: SeedFleet;
  before(async () => {
    fleet = await startSeedFleet({
      selection: {
        // An owner with two requests more than a peer bears too much.
        balance_abs_threshold: 1,
        balance_rel_threshold: 1,
        cache_owner_spill_cooldown_secs: 30,
      },
    });
    for (const held of [1, 2]) await fleet.warm(0, held);
  });
  after(() => fleet.stop());

  /** Ordinary requests that stay under way; where they are. */
  async function open(document: number, count: number): Promise<readonly [Sent, number][]> {
    const opened: [Sent, number][] = [];
    for (let own = 0; own < count; own += 1) {
      const sent = await fleet.send(fleet.question(document, 50 + own), { credit: false });
      opened.push([sent, await fleet.untilPlaced(sent)]);
    }
    return opened;
  }

  const requestsOf = (opened: readonly [Sent, number][]): Sent[] => opened.map(([sent]) => sent);

  it("X-2 a spill that was first keeps its prompt: no seed beside it", async () => {
    const opened = await open(1, 3);
    const places = opened.map(([, place]) => place);
    expect(places.slice(0, 2)).to.deep.equal([0, 0]);
    expect(PEERS).to.include(places[2]);
    await fleet.fill(0);
    const { answer, seed } = await fleet.refused(fleet.question(1, 60));
    expectError(answer, SATURATED);
    expect(seed).to.deep.equal(refusedFor("plan_provisional_owner"));
    await fleet.drain();
    await fleet.finishAll(requestsOf(opened), 0, 1, 2);
  });

  it("X-2 a seed that was first keeps its prompt: requests stay with the owner, whatever it bears", async () => {
    await fleet.fill(0);
    const seed = await fleet.send(fleet.question(2, 60));
    const peer = await fleet.untilPlaced(seed);
    expect(PEERS).to.include(peer);
    await fleet.drain();
    const opened = await open(2, 3);
    expect(opened.map(([, place]) => place)).to.deep.equal([0, 0, 0]);
    const ended = await fleet.finish(seed, peer);
    expect(ended.seed).to.include({ kind: "seeded", outcome: "succeeded", published: true });
    await fleet.finishAll(requestsOf(opened), 0);
    // Two owners now, and no third one by a spill while the prompt cools down.
    const more = await open(2, 4);
    expect(new Set(more.map(([, place]) => place))).to.deep.equal(new Set([0, peer]));
    await fleet.finishAll(requestsOf(more), 0, peer);
  });
});

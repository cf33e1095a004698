// Goal: row X-3, the incident that seeding ends. One engine holds the prompt that everybody asks about,
// runs its 38 and keeps 64 to 102 waiting, its seven peers idle, and the feedback of the engines refuses
// whoever comes. Method: the same load on eight engines without and with seeding, a real Envoy and an
// external allocator; what is asserted is read from the engines. Counts and orders only: nothing depends
// on how fast the machine is.

import { expect } from "chai";
import {
  CEILING,
  REFUSED,
  replayIncident,
  WAITING,
  WORKERS,
  type IncidentRun,
  type Sample,
} from "../support/incident.js";
import { mostAtOnce, seedsOf, seedVisits } from "../support/incident-seeds.js";

const LENGTH_MS = 22_000;
/** What waits in the hot engine when the first of the burst have ended. */
const STILL_WAITING = WAITING - CEILING;

/** The engines other than the one that held the prompt. */
const peersOf = ({ hot }: IncidentRun): number[] =>
  Array.from({ length: WORKERS }, (_, worker) => worker).filter((worker) => worker !== hot);

/** Moments at which the hot engine was as the incident had it. */
const drowning = ({ samples, hot }: IncidentRun): Sample[] =>
  samples.filter(({ loads }) => {
    const load = loads[hot];
    return load?.running === CEILING && load.waiting >= STILL_WAITING;
  });

const refusals = ({ records }: IncidentRun): IncidentRun["records"] =>
  records.filter(({ rejection }) => rejection === REFUSED);

describe("the incident, replayed through Envoy", function () {
  this.timeout(90_000);
  let off: IncidentRun;
  let on: IncidentRun;

  describe("with seeding off", () => {
    before(async () => {
      off = await replayIncident(false, LENGTH_MS);
    });

    it("X-3 one engine drowns while its peers idle, and ordinary admission refuses", () => {
      const hard = drowning(off);
      const waiting = hard.map(({ loads }) => loads[off.hot]?.waiting ?? 0);
      expect(waiting).to.include(WAITING).and.to.include(STILL_WAITING);
      for (const { loads } of off.samples) {
        for (const peer of peersOf(off)) {
          expect(loads[peer]).to.deep.equal({ running: 0, waiting: 0 });
        }
      }
      for (const peer of peersOf(off)) expect(off.served[peer]).to.equal(0);
      // While the queue is that long nobody gets in: what is answered was there before.
      expect(hard.at(-1)?.answered).to.be.at.most(CEILING);
      expect(hard.at(-1)?.refused).to.be.above(hard[0]?.refused ?? 0);
      for (const record of refusals(off)) {
        expect(record).to.include({ status: 429, worker: undefined, credit: true });
        expect(record.feedbackReason).to.be.oneOf(["engine_waiting", "running_limit"]);
        expect(record.charge?.tokens).to.equal(0);
        expect(record.seed).to.equal(undefined);
      }
    });

    it("serves the burst whole, at the engine that holds the prompt", () => {
      expect(off.burstStatuses).to.have.length(CEILING + WAITING);
      expect(new Set(off.burstStatuses)).to.deep.equal(new Set([200]));
      const answered = off.records.filter(({ status }) => status === 200);
      expect(answered).to.have.length(off.served[off.hot] ?? 0);
    });
  });

  describe("with seeding on", () => {
    before(async () => {
      on = await replayIncident(true, LENGTH_MS);
    });

    it("X-3 one refused request at a time goes to a clean peer, and nobody else passes", () => {
      const hard = drowning(on);
      const waiting = hard.map(({ loads }) => loads[on.hot]?.waiting ?? 0);
      expect(waiting).to.include(WAITING).and.to.include(STILL_WAITING);
      const seeds = seedVisits(on);
      // Every seed that Weir tells of was at exactly one engine, at the one it was meant for.
      expect(new Set(seeds.map(({ requestId }) => requestId)).size).to.equal(seeds.length);
      expect(seeds).to.have.length(seedsOf(on.records).size).and.not.to.have.length(0);
      for (const { worker, seed } of seeds) expect(on.urls[worker]).to.equal(seed.story.workerUrl);
      const [first] = seeds;
      expect(first?.seed.story.kind).to.equal("cache_aware_distribution_seed");
      expect(first?.seed.outcome).to.equal("succeeded");
      // Who came to an engine while the hot one was drowning was a seed, at a peer.
      const full = hard.find(({ loads }) => loads[on.hot]?.waiting === WAITING);
      const [from, until] = [full?.atMs ?? 0, hard.at(-1)?.atMs ?? 0];
      const passed = on.visits.filter(({ fromMs }) => fromMs > from && fromMs < until);
      const names = new Set(seeds.map(({ requestId }) => requestId));
      expect(passed).not.to.have.length(0);
      for (const { requestId, worker } of passed) {
        expect(names).to.include(requestId);
        expect(peersOf(on)).to.include(worker);
      }
    });

    it("X-3 no moment has two seeds at the engines, and each found its engine clean", () => {
      const seeds = seedVisits(on);
      expect(mostAtOnce(seeds)).to.equal(1);
      // The same judge does see what overlaps.
      expect(mostAtOnce(on.visits)).to.be.above(CEILING);
      for (const { worker, fromMs, seed } of seeds) {
        if (seed.story.kind !== "cache_aware_distribution_seed") continue;
        const before = on.samples.findLast(({ atMs }) => atMs < fromMs);
        expect(before?.loads[worker]).to.deep.equal({ running: 0, waiting: 0 });
      }
    });

    it("X-3 after its success the peer serves the prompt, load spreads and refusals fall", () => {
      const seeds = seedVisits(on);
      const names = new Set(seeds.map(({ requestId }) => requestId));
      const [first] = seeds;
      const later = on.visits.filter(
        ({ worker, fromMs, requestId }) =>
          worker === first?.worker &&
          fromMs >= (first.untilMs ?? Infinity) &&
          !names.has(requestId),
      );
      const cached = new Map(on.records.map((one) => [one.requestId, one.cachedTokens ?? 0]));
      expect(later).not.to.have.length(0);
      for (const { requestId } of later) expect(cached.get(requestId)).to.be.above(0);
      // At some moment a peer bears as much as the engine that held the prompt alone.
      const even = on.samples.filter(({ loads }) =>
        peersOf(on).some((peer) => {
          const [load, hot] = [loads[peer], loads[on.hot]];
          return (load?.running ?? 0) > 1 && (load?.running ?? 0) >= (hot?.running ?? 0);
        }),
      );
      expect(even).not.to.have.length(0);
      const used = on.served.filter((count) => count > 0);
      expect(used.length).to.be.at.least(2);
      const [before, after] = [off.samples.at(-1), on.samples.at(-1)];
      expect(after?.refused).to.be.below(before?.refused ?? 0);
      expect(after?.answered).to.be.above(before?.answered ?? 0);
      // Within the run as well: the second half refuses fewer than the first.
      const half = on.samples.find(({ atMs }) => atMs >= LENGTH_MS / 2)?.refused ?? 0;
      expect((after?.refused ?? 0) - half).to.be.below(half);
    });

    it("serves the burst whole, and every refusal costs nothing", () => {
      expect(new Set(on.burstStatuses)).to.deep.equal(new Set([200]));
      for (const record of refusals(on)) {
        expect(record).to.include({ status: 429, worker: undefined });
        expect(record.charge?.tokens).to.equal(0);
        expect(record.seed?.kind).to.equal("refused");
      }
      const answered = on.records.filter(({ status }) => status === 200);
      expect(answered).to.have.length(on.served.reduce((sum, count) => sum + count, 0));
    });
  });
});

// The scheduler with fair sharing against a naive model, on random schedules: plain lists, and the rules
// of the clock as they are written down (F and P, not what the code keeps). Checked after each step: who
// was granted, in which order, and who gave up its place; that no slot is free while somebody waits; that
// booked tokens are the sum of what runs; that every request is settled once; that no clock goes back.

import { expect } from "chai";
import fc from "fast-check";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { className, type ClassRank } from "../../../extproc/core/model/priority.js";
import { sumOf } from "../../../extproc/core/scheduler/admission.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench } from "../../support/scheduler.js";

const WEIGHTS: Readonly<Record<string, number>> = { a: 2, p: 1, c: 0.5 };
/** By model: the tenants its profile names. */
const NAMED: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  m: { a: 4, p: 1 },
  n: { a: 1 },
};
const OTHER_WEIGHT = 2;
const CEILING = 4;
const QUEUE = 6;
/** Random schedules of a run. */
const RUNS = 2 ** 7;

interface Party {
  key: string;
  w: number;
  q: number;
  a: number;
  F: number;
  P: number;
  floor: number;
  /** What the clock has added to its F to bring it up to V. */
  lifted: number;
}

/** One contest of a lane: its time, who waits or runs in it, and who is ahead in it by how much. */
class NaiveContest {
  now = 0;
  readonly busy: Party[] = [];
  readonly ahead = new Map<Party, { readonly by: number; readonly lifted: number }>();
  /** What those that wait are ahead by since they began to. */
  readonly seats = new Map<Party, number>();

  exit(party: Party, charged: number): void {
    let weight = 0;
    for (const one of new Set(this.busy)) weight += one.w;
    this.now += charged / weight;
    this.busy.splice(this.busy.indexOf(party), 1);
  }

  sit(party: Party, least: number | undefined): void {
    const known = this.ahead.get(party);
    const before = known === undefined ? 0 : Math.max(0, known.by - (party.lifted - known.lifted));
    const start = Math.max(party.F + before, this.now, least ?? this.now);
    const by = Math.max(before, start - party.F);
    this.ahead.set(party, { by, lifted: party.lifted });
    this.seats.set(party, by);
  }
}

/** One clock, written from its rules. */
class NaiveClock {
  V = 0;
  readonly parties: Party[] = [];

  party(key: string, w: number): Party {
    let party = this.parties.find((one) => one.key === key);
    if (party === undefined) {
      party = { key, w, q: 0, a: 0, F: 0, P: 0, floor: 0, lifted: 0 };
      this.parties.push(party);
    }
    return party;
  }

  advance(): void {
    const queued = this.parties.filter(({ q }) => q > 0);
    const active = this.parties.filter(({ a }) => a > 0);
    const who = queued.length > 0 ? queued : active;
    if (who.length > 0) this.V = Math.max(this.V, Math.min(...who.map(({ F, P }) => F - P)));
  }

  register(party: Party): void {
    if (party.q === 0) {
      party.lifted += Math.max(0, this.V - party.F);
      party.F = Math.max(party.F, this.V);
      party.floor = this.V;
    }
    party.q += 1;
    this.advance();
  }

  unregister(party: Party): void {
    party.q -= 1;
    this.advance();
  }

  reserve(party: Party, tokens: number): void {
    party.q -= 1;
    party.a += 1;
    party.F += tokens / party.w;
    party.P += tokens / party.w;
    this.advance();
  }

  settle(party: Party, tokens: number, charged: number): void {
    party.F = Math.max(party.F + (charged - tokens) / party.w, party.floor);
    party.P -= tokens / party.w;
    this.advance();
    party.a -= 1;
  }
}

interface Line {
  readonly clock: NaiveClock;
  readonly party: Party;
  readonly contest: NaiveContest;
}

interface Request {
  readonly id: string;
  readonly tenant: string;
  readonly model: string | undefined;
  readonly rank: ClassRank;
  readonly estimate: number;
  readonly lines: readonly Line[];
  /** Profiles take turns: each request brings one, a grant uses up the oldest. */
  turn: number;
}

/** What a tenant may begin behind the others of its lane, per slot. */
const CATCH_UP = 256;

class NaiveScheduler {
  readonly waiting: Request[] = [];
  readonly running: Request[] = [];
  readonly granted: string[] = [];
  readonly displaced: string[] = [];
  /** How often who gave up its place was found in which way. */
  readonly met = { outside: 0, inside: 0 };
  /** Sides, and tenants on their sides, that have waiters, in the order in which they came to have some. */
  readonly #holders = new Set<string>();
  readonly clocks = new Map<string, NaiveClock>(
    ["flat", "m", "m other", "n", "n other"].map((name) => [name, new NaiveClock()]),
  );
  readonly #contests = new Map<string, NaiveContest>();
  capacity: number;
  #turns = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  ask(asking: Omit<Request, "lines" | "turn">): string {
    const { tenant, model, rank } = asking;
    this.#turns += 1;
    const lines = this.#lines(tenant, model, rank);
    const request = { ...asking, lines, turn: this.#turns };
    for (const { clock, party, contest } of request.lines) {
      clock.register(party);
      contest.busy.push(party);
    }
    // Whoever meets nobody that waits and finds a slot never sits down.
    if (this.waiting.length > 0 || this.running.length >= this.capacity) this.#join(request);
    for (const nameOf of [sideOf, seatOf]) {
      const name = nameOf(request);
      if (!this.waiting.some((one) => nameOf(one) === name)) this.#holders.delete(name);
      this.#holders.add(name);
    }
    this.waiting.push(request);
    this.step();
    if (this.running.includes(request)) return "granted";
    const mine = this.waiting.filter((one) => one.tenant === tenant).length;
    if (mine <= CEILING && this.waiting.length <= QUEUE) return "queued";
    const displaced = mine > CEILING ? undefined : this.#displacedBy(request);
    this.leave(displaced ?? request);
    if (displaced === undefined) return "queue_full";
    this.displaced.push(displaced.id);
    return "queued";
  }

  /**
   * Of the sides that have a waiter of the newcomer's class or a lower one: the one with the most places,
   * if those are more than the newcomer's side has, and in it such a tenant with the most. Otherwise such
   * a tenant of the newcomer's side, if it has more than the newcomer's tenant. The newest waiter of its
   * lowest class goes.
   */
  #displacedBy(newcomer: Request): Request | undefined {
    const own = this.waiting.filter((one) => sideOf(one) === sideOf(newcomer));
    const mine = own.filter((one) => seatOf(one) === seatOf(newcomer));
    const side = this.#fullest(this.waiting, sideOf, newcomer.rank);
    const outside = side.length > own.length;
    const tenant = this.#fullest(outside ? side : own, seatOf, newcomer.rank);
    if (!outside && tenant.length <= mine.length) return undefined;
    this.met[outside ? "outside" : "inside"] += 1;
    const lowest = Math.min(...tenant.map(({ rank }) => rank));
    return tenant.filter(({ rank }) => rank === lowest).at(-1);
  }

  /** The longest part of the waiters; each part has a name. Of equals the one that came last. */
  #fullest(waiters: readonly Request[], nameOf: (one: Request) => string, at: number): Request[] {
    const parts = [...this.#holders]
      .reverse()
      .map((name) => waiters.filter((one) => nameOf(one) === name));
    const willing = parts.filter((part) => part.some(({ rank }) => rank <= at));
    return willing.sort((x, y) => y.length - x.length)[0] ?? [];
  }

  leave(request: Request): void {
    this.waiting.splice(this.waiting.indexOf(request), 1);
    for (const { clock, party, contest } of request.lines) {
      clock.unregister(party);
      contest.exit(party, 0);
    }
  }

  settle(request: Request, charged: number): void {
    this.running.splice(this.running.indexOf(request), 1);
    for (const { clock, party, contest } of request.lines) {
      clock.settle(party, request.estimate, charged);
      contest.exit(party, charged);
    }
  }

  /** Serves one waiter if a slot is free. */
  step(): boolean {
    const highest = Math.max(...this.waiting.map(({ rank }) => rank));
    const lane = this.waiting.filter(({ rank }) => rank === highest);
    const [first] = [...lane].sort((x, y) => x.turn - y.turn);
    if (first === undefined || this.running.length >= this.capacity) return false;
    let rivals = lane.filter(({ model }) => model === first.model);
    for (let depth = 0; depth < 2; depth += 1) {
      const best = [...rivals].sort((x, y) => this.#compare(x.lines[depth], y.lines[depth]))[0];
      rivals = rivals.filter(({ lines }) => lines[depth]?.party === best?.lines[depth]?.party);
    }
    const [next] = rivals;
    if (next === undefined) throw new Error("nobody is next");
    first.turn = next.turn;
    this.waiting.splice(this.waiting.indexOf(next), 1);
    this.running.push(next);
    this.granted.push(next.id);
    for (const { clock, party } of next.lines) clock.reserve(party, next.estimate);
    return true;
  }

  /** Who begins to wait here is lifted to near the next one of its profile. */
  #join({ model, rank, lines }: Request): void {
    let rivals = this.waiting.filter((one) => one.model === model && one.rank === rank);
    for (const [depth, { party, contest }] of lines.entries()) {
      const [best] = [...rivals].sort((x, y) => this.#compare(x.lines[depth], y.lines[depth]));
      const next = best?.lines[depth]?.party;
      rivals = rivals.filter((one) => one.lines[depth]?.party === party);
      if (rivals.length > 0) continue;
      contest.sit(
        party,
        next &&
          next.F - next.P + (contest.seats.get(next) ?? 0) - (CATCH_UP * this.capacity) / party.w,
      );
    }
  }

  #compare(one: Line | undefined, other: Line | undefined): number {
    if (one === undefined || other === undefined) return 0;
    const [x, y] = [one.party, other.party];
    const at = ({ party, contest }: Line): number => party.F + (contest.seats.get(party) ?? 0);
    if (at(one) !== at(other)) return at(one) - at(other);
    if ((x.key === "other") !== (y.key === "other")) return x.key === "other" ? 1 : -1;
    return x.key < y.key ? -1 : Number(x.key > y.key);
  }

  #lines(tenant: string, model: string | undefined, rank: ClassRank): readonly Line[] {
    const line = (name: string, key: string, w: number): Line => {
      const clock = this.clocks.get(name);
      if (clock === undefined) throw new Error(`no clock ${name}`);
      const where = `${name} ${String(rank)}`;
      const contest = this.#contests.get(where) ?? new NaiveContest();
      this.#contests.set(where, contest);
      return { clock, contest, party: clock.party(key, w) };
    };
    if (model === undefined) return [line("flat", tenant, WEIGHTS[tenant] ?? 1)];
    const named = NAMED[model]?.[tenant];
    if (named !== undefined) return [line(model, tenant, named)];
    return [line(model, "other", OTHER_WEIGHT), line(`${model} other`, tenant, 1)];
  }
}

/** A tenant with a share of its own is a side by itself, and a bucket of others is one. */
const sideOf = ({ tenant, model, lines }: Request): string =>
  lines.length === 1 ? `the side of ${tenant}` : `the others of ${model ?? ""}`;

const seatOf = (request: Request): string => `${request.tenant} on ${sideOf(request)}`;

// Powers of two, so that both ways of adding give the very same doubles.
const POWERS = [1, 2, 4, 8, 64, 4_096];

const step = fc.record({
  // More come than are served: otherwise the queue is never full.
  kind: fc.constantFrom(
    ...["ask", "ask", "ask", "ask", "ask", "ask", "ask", "ask"],
    ...["settle", "settle", "cancel", "drop", "leave", "size"],
  ),
  tenant: fc.constantFrom("a", "p", "c", "d"),
  model: fc.constantFrom(undefined, undefined, "m", "m", "m", "n"),
  rank: fc.constantFrom<ClassRank[]>(0, 1, 2),
  estimate: fc.constantFrom(...POWERS),
  tokens: fc.constantFrom(0, ...POWERS),
  at: fc.nat(9),
});

describe("fair sharing against a naive model", () => {
  it("agrees on every grant, refusal and sum, on random schedules", () => {
    const schedule = fc.array(step, { minLength: 1, maxLength: 120, size: "max" });
    const profiles = Object.fromEntries(
      Object.entries(NAMED).map(([model, weights]) => [model, { weights, other: OTHER_WEIGHT }]),
    );
    const met = { outside: 0, inside: 0 };
    fc.assert(
      fc.property(schedule, fc.integer({ min: 0, max: 3 }), (steps, capacity) => {
        const fair = fairQueueing({ weights: WEIGHTS, profiles, maxQueuedPerTenant: CEILING });
        const bench = new SchedulerBench({ capacity, queueSize: QUEUE, fair });
        const naive = new NaiveScheduler(capacity);
        const drain = (): void => {
          while (naive.step());
        };
        const charged = new Map<string, number>();
        const order: string[] = [];
        let last = [...naive.clocks].map(() => 0);
        for (const [index, step] of steps.entries()) {
          const { kind, tenant, model, rank, estimate, tokens, at } = step;
          const id = `r${String(index)}`;
          const running = naive.running[at % Math.max(1, naive.running.length)];
          const waiting = naive.waiting[at % Math.max(1, naive.waiting.length)];
          const before = bench.granted.length;
          if (kind === "ask") {
            const share = { tenant, estimateTokens: estimate };
            const came = bench.admit(
              id,
              className(rank),
              undefined,
              model === undefined ? share : { ...share, model },
            );
            expect(came, id).to.equal(naive.ask({ id, tenant, model, rank, estimate }));
            if (came === "granted") order.push(id);
          } else if (kind === "leave" && waiting !== undefined) {
            naive.leave(waiting);
            expect(bench.leave(waiting.id)).to.equal(true);
          } else if (kind === "size") {
            naive.capacity = at % 4;
            drain();
            bench.resize(at % 4);
          } else if (running !== undefined && ["settle", "cancel", "drop"].includes(kind)) {
            const cost = kind === "settle" ? tokens : kind === "drop" ? running.estimate : 0;
            const clockCost = kind === "cancel" ? 0 : Math.max(1, cost);
            naive.settle(running, clockCost);
            drain();
            const permit = bench.permits.get(running.id);
            if (kind !== "drop") permit?.settle({ tokens: cost, clockTokens: clockCost });
            bench.release(running.id);
            permit?.settle({ tokens: 7, clockTokens: 7 });
            charged.set(running.tenant, (charged.get(running.tenant) ?? 0) + cost);
          }
          order.push(...bench.granted.slice(before));
          expect(order, "grants in order").to.deep.equal(naive.granted);
          expect(bench.displaced, "displaced").to.deep.equal(naive.displaced);
          const view = bench.view();
          const slots = sumOf(view.in_flight);
          expect(slots).to.equal(naive.running.length);
          expect(sumOf(view.queued)).to.equal(naive.waiting.length);
          if (naive.waiting.length > 0)
            expect(slots, "no free slot while one waits").to.be.at.least(view.capacity ?? 0);
          for (const key of ["a", "p", "c", "d"]) {
            const account = fair.ledger.account(tenantKey(key));
            const booked = naive.running.filter((one) => one.tenant === key);
            expect(account?.reserved ?? 0).to.equal(
              booked.reduce((sum, one) => sum + one.estimate, 0),
            );
            expect(account?.charged ?? 0).to.equal(charged.get(key) ?? 0);
          }
          const times = Array.from(naive.clocks.values(), ({ V }) => V);
          expect(times.every((time, at) => time >= (last[at] ?? 0))).to.equal(true);
          last = times;
          for (const { key, F } of naive.clocks.get("flat")?.parties ?? []) {
            const account = fair.ledger.account(tenantKey(key));
            const entry = account?.existingEntry(fair.ledger.flat.clock);
            expect(entry?.virtualFinish, `finish of ${key}`).to.equal(F);
          }
          const clocks = [...fair.ledger.profiles.values()].flatMap((profile) => [
            profile.clock,
            profile.clockOf("other"),
          ]);
          expect(
            [fair.ledger.flat.clock, ...clocks].map(({ virtualTime }) => virtualTime),
          ).to.deep.equal(times);
        }
        met.outside += naive.met.outside;
        met.inside += naive.met.inside;
      }),
      { numRuns: RUNS },
    );
    // Schedules that never met a full queue would prove little about it.
    for (const [how, count] of Object.entries(met)) expect(count, how).to.be.greaterThan(0);
  }).timeout(60_000);
});

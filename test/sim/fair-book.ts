// Fair sharing in the naive book: who is charged what, where each clock stands, and who should be next.
// Plain loops over plain lists, by the rules of the clock as they are written down: F and P, not what
// Weir keeps. All weights are powers of two, so every figure is exact and is compared for equality.
//
//   register    nothing waits yet: F = max(F, V) and floor = V; then it waits
//   reserve     it runs: F grows by estimate / weight
//   sit         nothing of it waits in the lane yet: it stands ahead of its F there by as much as it was
//               when it last sat down (less what the clock has lifted it by since), and at least at the
//               lane's time and at the next one's F - P, less one default estimate for each slot, per weight
//   settle c    F = max(F + (c - estimate) / weight, floor)
//   V           never falls; at least the least F - P of those that wait, or else of those that run,
//               where P is the estimates of running requests per weight
//   lane time   grows by what is charged in the lane, per weight of all that wait or run there

import type { Account } from "../../extproc/core/fairshare/account.js";
import type { ClockEntry } from "../../extproc/core/fairshare/fair-clock.js";
import type { Ledger } from "../../extproc/core/fairshare/ledger.js";
import type { Profile } from "../../extproc/core/fairshare/profile.js";
import { modelId, tenantKey } from "../../extproc/core/model/ids.js";

export interface ProfileRule {
  readonly weights: Readonly<Record<string, number>>;
  readonly other: number;
}

/** The section `fair_share`; weights are powers of two. */
export interface FairRule {
  readonly weights: Readonly<Record<string, number>>;
  readonly defaultWeight: number;
  readonly profiles: Readonly<Record<string, ProfileRule>>;
  readonly maxQueuedPerTenant: number;
}

export interface FairRequest {
  readonly id: string;
  readonly tenant: string;
  /** The model a proxy named, whether it has a profile or not. */
  readonly requestModel: string | undefined;
  readonly estimateTokens: number;
}

/** What a run has met; one that met nothing proves nothing. */
export interface FairStats {
  /** Waiters that were served before an older one of their lane. */
  passed: number;
  /** Tenants that came to wait behind the clock's time. */
  lifted: number;
  /** Refunds that ended at the floor. */
  floored: number;
  /** Tenants that stood ahead of their clock in a lane. */
  joined: number;
  /** Turns of a profile that did not have the oldest waiter. */
  turned: number;
  /** Requests refused because their tenant had enough waiting. */
  ceilings: number;
  /** Waiters that gave up their place to a tenant that had fewer. */
  displaced: number;
  /** Those of them that gave it up to a tenant of the same bucket. */
  displacedInside: number;
  /** Those of them that were not of the fullest side, which had waiters of higher classes only. */
  passedOver: number;
}

interface Party {
  readonly key: string;
  readonly weight: number;
  F: number;
  floor: number;
  /** What the clock has added to its F to bring it up to V. */
  lifted: number;
}

/** One contest of one lane: its time, who waits or runs in it, and who stands ahead by how much. */
interface Contest {
  now: number;
  readonly busy: Party[];
  readonly ahead: Map<Party, { readonly by: number; readonly lifted: number }>;
  /** Of those that wait. */
  readonly seats: Map<Party, number>;
}

interface Clock {
  V: number;
  /** Weir's own, at the last look. */
  seen: number;
  readonly parties: Party[];
}

/** A party of a clock, from the outermost in. */
interface Line {
  readonly clock: Clock;
  readonly party: Party;
  readonly contest: Contest;
}

interface Booked extends FairRequest {
  readonly profile: string;
  readonly lines: readonly Line[];
  /** Profiles of a lane take turns: each request brings one, a grant uses up the oldest. */
  turn: number;
  state: "waits" | "runs" | "over";
}

/** A lane at the moment at which a request comes to it. */
export interface LaneNow {
  /** Name of the partition and of the class. */
  readonly lane: string;
  readonly others: readonly InLane[];
  readonly slots: number;
  /** False = nobody waits in the partition, and there is a slot for it. */
  readonly waits: boolean;
}

/** One request of a lane. */
interface InLane {
  readonly id: string;
}

/** One request of a partition's queue. */
interface InQueue extends InLane {
  readonly rank: number;
}

/** What Weir books for a request without an estimate of its own. */
export const DEFAULT_ESTIMATE_TOKENS = 256;
const FLAT = "";
const OTHER = "other";

export class FairBook {
  readonly stats: FairStats = {
    passed: 0,
    lifted: 0,
    floored: 0,
    joined: 0,
    turned: 0,
    ceilings: 0,
    displaced: 0,
    displacedInside: 0,
    passedOver: 0,
  };
  readonly rule: FairRule;
  readonly #violate: (what: string) => void;
  readonly #requests = new Map<string, Booked>();
  readonly #clocks = new Map<string, Clock>();
  readonly #contests = new Map<string, Contest>();
  readonly #charged = new Map<string, number>();
  #turns = 0;

  constructor(rule: FairRule, violate: (what: string) => void) {
    this.rule = rule;
    this.#violate = violate;
  }

  /** It begins to wait in a lane, or finds a slot without waiting. */
  register(request: FairRequest, { lane, others, slots, waits }: LaneNow): void {
    const { requestModel } = request;
    const profile =
      requestModel !== undefined && Object.hasOwn(this.rule.profiles, requestModel)
        ? requestModel
        : FLAT;
    const lines = this.#linesOf(request.tenant, profile, lane);
    for (const { clock, party } of lines) {
      if (this.#count(party, "waits") > 0) continue;
      if (party.F < clock.V) this.stats.lifted += 1;
      party.lifted += Math.max(0, clock.V - party.F);
      party.F = Math.max(party.F, clock.V);
      party.floor = clock.V;
    }
    this.#turns += 1;
    const booked: Booked = { ...request, profile, lines, turn: this.#turns, state: "waits" };
    this.#requests.set(request.id, booked);
    this.#advance(lines);
    for (const { contest, party } of lines) contest.busy.push(party);
    if (waits) this.#join(booked, this.#bookedOf(others), slots);
  }

  /** It is granted a slot; `left` are those that still wait in its lane. */
  reserve(id: string, left: readonly InLane[]): void {
    const booked = this.#get(id, "waits");
    if (booked === undefined) return;
    booked.state = "runs";
    const first = this.#firstInTurn(this.#bookedOf(left));
    if (first !== undefined && first.turn < booked.turn) first.turn = booked.turn;
    for (const { party } of booked.lines) party.F += booked.estimateTokens / party.weight;
    this.#advance(booked.lines);
  }

  /** It is over: it left the queue, or it ran and cost this. */
  end(id: string, tokens: number, clockTokens: number): void {
    const booked = this.#requests.get(id);
    if (booked === undefined || booked.state === "over") return;
    const ran = booked.state === "runs";
    if (booked.state === "waits") {
      booked.state = "over";
      this.#advance(booked.lines);
    } else this.#settle(booked, tokens, clockTokens);
    for (const { contest, party } of booked.lines) {
      let weight = 0;
      for (const one of new Set(contest.busy)) weight += one.weight;
      contest.now += (ran ? clockTokens : 0) / weight;
      contest.busy.splice(contest.busy.indexOf(party), 1);
    }
    this.#requests.delete(id);
  }

  /** Whose turn it is in a lane, the oldest waiter first. */
  next<T extends InLane>(lane: readonly T[]): T | undefined {
    const [oldest] = lane;
    const inTurn = this.#firstInTurn(this.#bookedOf(lane));
    const profile = inTurn?.profile;
    if (inTurn !== undefined && inTurn.id !== oldest?.id) this.stats.turned += 1;
    let best: T | undefined;
    for (const entry of lane) {
      const booked = this.#requests.get(entry.id);
      if (booked === undefined || booked.profile !== profile) continue;
      const leader = best === undefined ? undefined : this.#requests.get(best.id);
      if (leader === undefined || before(booked.lines, leader.lines)) best = entry;
    }
    if (best !== oldest) this.stats.passed += 1;
    return best;
  }

  /** Waiters of the tenant of a request among these. */
  queuedWith(id: string, waiters: readonly InLane[]): number {
    const tenant = this.#requests.get(id)?.tenant;
    return waiters.filter((one) => this.#requests.get(one.id)?.tenant === tenant).length;
  }

  /**
   * Who may give up its place to a newcomer, of the waiters of a partition with the newcomer among them,
   * those of a lane in the order in which they came. Several where two have as many places.
   *
   *   side      a tenant with a share of its own, or the bucket of others of a profile
   *   willing   who has a waiter of the newcomer's class or a lower one
   *   outside   of the sides that are willing those with the most places, if they have more than the
   *             newcomer's; in each of them, of the tenants that are willing those with the most
   *   inside    otherwise: of the willing tenants of the newcomer's side those with the most, if they have
   *             more than the newcomer's tenant
   *   goes      the newest waiter of the tenant's lowest class
   */
  givingWay<T extends InQueue>(newcomer: T, waiters: readonly T[]): T[] {
    const sideOf = ({ id }: T): string => this.#sideOf(id);
    const tenantOf = ({ id }: T): string => this.#requests.get(id)?.tenant ?? "";
    const willing = (crowd: readonly T[]): boolean =>
      crowd.some(({ rank }) => rank <= newcomer.rank);
    const own = waiters.filter((one) => sideOf(one) === sideOf(newcomer));
    const mine = own.filter((one) => tenantOf(one) === tenantOf(newcomer));
    const sides = fullest(crowds(waiters, sideOf).filter(willing));
    const more = sides.filter(({ length }) => length > own.length);
    const fullestOf = (side: readonly T[]): T[][] =>
      fullest(crowds(side, tenantOf).filter(willing));
    const tenants =
      more.length > 0
        ? more.flatMap(fullestOf)
        : fullestOf(own).filter(({ length }) => length > mine.length);
    if (tenants.length > 0 && more.length === 0) this.stats.displacedInside += 1;
    const fullestOfAll = Math.max(...crowds(waiters, sideOf).map(({ length }) => length));
    if (more.some(({ length }) => length < fullestOfAll)) this.stats.passedOver += 1;
    return tenants.flatMap((tenant) => {
      const lowest = Math.min(...tenant.map(({ rank }) => rank));
      return tenant.filter(({ rank }) => rank === lowest).slice(-1);
    });
  }

  /** Compares the book with the ledger. */
  check(ledger: Ledger): void {
    let charged = ledger.overflow.charged;
    for (const account of ledger.accounts()) {
      charged += account.charged;
      this.#checkAccount(account);
    }
    let expected = 0;
    for (const tokens of this.#charged.values()) expected += tokens;
    this.#same("tokens charged in all", charged, expected);
    for (const tenant of this.#charged.keys()) {
      // An account with nothing to remember may be forgotten.
      const account = ledger.account(tenantKey(tenant));
      if (account === undefined && this.#ofTenant(tenant).length > 0) {
        this.#violate(`${tenant} has requests and no account`);
      }
      if (account !== undefined && this.#isListed(tenant)) {
        this.#same(`tokens charged to ${tenant}`, account.charged, this.#charged.get(tenant) ?? 0);
      }
    }
    for (const [name, clock] of this.#clocks) this.#checkClock(ledger, name, clock);
  }

  #settle(booked: Booked, tokens: number, clockTokens: number): void {
    for (const { party } of booked.lines) {
      const corrected = party.F + (clockTokens - booked.estimateTokens) / party.weight;
      if (corrected < party.floor) this.stats.floored += 1;
      party.F = Math.max(corrected, party.floor);
    }
    // The clock looks at those that ran until now, without what was booked for this one.
    this.#advance(booked.lines, booked);
    booked.state = "over";
    this.#charged.set(booked.tenant, (this.#charged.get(booked.tenant) ?? 0) + tokens);
  }

  #bookedOf(lane: readonly InLane[]): Booked[] {
    return lane.flatMap(({ id }) => this.#requests.get(id) ?? []);
  }

  #firstInTurn(booked: readonly Booked[]): Booked | undefined {
    const [first] = [...booked].sort((one, other) => one.turn - other.turn);
    return first;
  }

  /** A party that begins to wait in a lane stands at its time at least, and near the next one there. */
  #join(booked: Booked, others: readonly Booked[], slots: number): void {
    let rivals = others.filter(({ profile }) => profile === booked.profile);
    for (const [depth, { party, contest }] of booked.lines.entries()) {
      const [best] = [...rivals].sort((one, other) =>
        before(one.lines.slice(depth), other.lines.slice(depth)) ? -1 : 1,
      );
      const next = best?.lines[depth]?.party;
      rivals = rivals.filter(({ lines }) => lines[depth]?.party === party);
      if (rivals.length > 0) continue;
      const near =
        next &&
        next.F -
          this.#provisional(next, undefined) +
          (contest.seats.get(next) ?? 0) -
          (slots * DEFAULT_ESTIMATE_TOKENS) / party.weight;
      const known = contest.ahead.get(party);
      const was = known === undefined ? 0 : Math.max(0, known.by - (party.lifted - known.lifted));
      const start = Math.max(party.F + was, contest.now, near ?? contest.now);
      const by = Math.max(was, start - party.F);
      if (by > 0) this.stats.joined += 1;
      contest.ahead.set(party, { by, lifted: party.lifted });
      contest.seats.set(party, by);
    }
  }

  /** @param settled still runs, but its estimate is no longer booked */
  #advance(lines: readonly Line[], settled?: Booked): void {
    for (const { clock } of lines) {
      const waiting = clock.parties.filter((party) => this.#count(party, "waits") > 0);
      const running = clock.parties.filter((party) => this.#count(party, "runs") > 0);
      const those = waiting.length > 0 ? waiting : running;
      const positions = those.map((party) => party.F - this.#provisional(party, settled));
      if (those.length > 0) clock.V = Math.max(clock.V, Math.min(...positions));
    }
  }

  #provisional(party: Party, settled: Booked | undefined): number {
    let tokens = 0;
    for (const booked of this.#requests.values()) {
      const here = booked.lines.some((line) => line.party === party);
      if (here && booked.state === "runs" && booked !== settled) tokens += booked.estimateTokens;
    }
    return tokens / party.weight;
  }

  #count(party: Party, state: Booked["state"]): number {
    let count = 0;
    for (const booked of this.#requests.values()) {
      if (booked.state === state && booked.lines.some((line) => line.party === party)) count += 1;
    }
    return count;
  }

  #linesOf(tenant: string, profile: string, lane: string): Line[] {
    const { weights, defaultWeight, profiles } = this.rule;
    if (!this.#charged.has(tenant)) this.#charged.set(tenant, 0);
    const line = (name: string, key: string, weight: number): Line => {
      let clock = this.#clocks.get(name);
      if (clock === undefined) {
        clock = { V: 0, seen: 0, parties: [] };
        this.#clocks.set(name, clock);
      }
      let party = clock.parties.find((one) => one.key === key);
      if (party === undefined) {
        party = { key, weight, F: 0, floor: 0, lifted: 0 };
        clock.parties.push(party);
      }
      const where = `${lane} ${name}`;
      let contest = this.#contests.get(where);
      if (contest === undefined) {
        contest = { now: 0, busy: [], ahead: new Map(), seats: new Map() };
        this.#contests.set(where, contest);
      }
      return { clock, party, contest };
    };
    const rule = profiles[profile];
    if (rule === undefined) return [line(FLAT, tenant, weights[tenant] ?? defaultWeight)];
    const named = rule.weights[tenant];
    if (named !== undefined) return [line(profile, tenant, named)];
    return [line(profile, OTHER, rule.other), line(`${profile} ${OTHER}`, tenant, defaultWeight)];
  }

  #checkAccount({ key, queued, active, reserved }: Account): void {
    const own = this.#ofTenant(key);
    const running = own.filter(({ state }) => state === "runs");
    let estimates = 0;
    for (const { estimateTokens } of running) estimates += estimateTokens;
    this.#same(`waiting requests of ${key}`, queued, own.length - running.length);
    this.#same(`running requests of ${key}`, active, running.length);
    this.#same(`tokens reserved for ${key}`, reserved, estimates);
  }

  #checkClock(ledger: Ledger, name: string, clock: Clock): void {
    const [model, inner] = name.split(" ");
    const profile = name === FLAT ? ledger.flat : ledger.profiles.get(modelId(model ?? ""));
    if (profile === undefined) {
      this.#violate(`there is no profile ${name}`);
      return;
    }
    const where = name === FLAT ? "the flat clock" : `the clock "${name}"`;
    const actual = profile.clockOf(inner === undefined ? "explicit" : "other");
    if (actual.virtualTime < clock.seen) this.#violate(`${where} goes back`);
    clock.seen = actual.virtualTime;
    this.#same(`V of ${where}`, actual.virtualTime, clock.V);
    for (const { key, F } of clock.parties) {
      const entry = entryOf(ledger, profile, inner !== undefined, key);
      if (entry !== undefined) this.#same(`F of ${key} in ${where}`, entry.virtualFinish, F);
    }
  }

  #ofTenant(tenant: string): Booked[] {
    return [...this.#requests.values()].filter((one) => one.tenant === tenant);
  }

  #sideOf(id: string): string {
    const booked = this.#requests.get(id);
    if (booked?.lines[0]?.party.key === OTHER) return `${OTHER} of ${booked.profile}`;
    return booked?.tenant ?? "";
  }

  #isListed(tenant: string): boolean {
    const { weights, profiles } = this.rule;
    return [weights, ...Object.values(profiles).map((one) => one.weights)].some((list) =>
      Object.hasOwn(list, tenant),
    );
  }

  #get(id: string, state: Booked["state"]): Booked | undefined {
    const booked = this.#requests.get(id);
    if (booked?.state === state) return booked;
    this.#violate(`the share of ${id} is ${booked?.state ?? "unknown"}, not ${state}`);
    return undefined;
  }

  #same(what: string, actual: number, expected: number): void {
    if (actual !== expected) {
      this.#violate(`${what}: Weir says ${String(actual)}, the book ${String(expected)}`);
    }
  }
}

/** Parts a list by a name that each entry has. */
function crowds<T>(all: readonly T[], nameOf: (one: T) => string): T[][] {
  const names = [...new Set(all.map(nameOf))];
  return names.map((name) => all.filter((one) => nameOf(one) === name));
}

/** The longest lists. */
function fullest<T>(lists: readonly T[][]): T[][] {
  const most = Math.max(...lists.map(({ length }) => length));
  return lists.filter(({ length }) => length === most);
}

/** Least F first; of equals a named tenant before the bucket, then the smaller key; then within. */
function before(mine: readonly Line[], theirs: readonly Line[]): boolean {
  for (const [index, { party, contest }] of mine.entries()) {
    const other = theirs[index]?.party;
    if (other === undefined || other === party) continue;
    const at = (one: Party): number => one.F + (contest.seats.get(one) ?? 0);
    if (at(party) !== at(other)) return at(party) < at(other);
    if ((mine.length === 1) !== (theirs.length === 1)) return mine.length === 1;
    return party.key < other.key;
  }
  return false;
}

function entryOf(
  ledger: Ledger,
  profile: Profile,
  inner: boolean,
  key: string,
): ClockEntry | undefined {
  if (key === OTHER) return profile.other;
  return ledger
    .account(tenantKey(key))
    ?.existingEntry(profile.clockOf(inner ? "other" : "explicit"));
}

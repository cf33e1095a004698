// Pools in which several lanes meet: two classes, two partitions, or two profiles in one lane. What
// happens in one lane must not decide what happens in another.
//
// In the pools of the first kind a waiter that is not served keeps the clock's time where it is, since
// that time is the least service of all that wait, wherever they wait. A tenant that comes then must not
// be served all that the others were served meanwhile. In the pools of the second kind the waiter that
// has been in a lane for longest is in debt within its profile, so it is never chosen, and its profile
// must not have every turn because of it. Answers are short, so that the bound is, too.

import { BY_DEFAULT, DEFAULT_ESTIMATE_TOKENS, type EstimateRule, type Lengths } from "./lengths.js";
import { flatPool, type Arrivals, type PoolPlan, type Span, type Traffic } from "./pool-plan.js";

const SLOTS = 8;
const [BULK, DEFAULT, INTERACTIVE] = [0, 1, 2] as const;
const SIDE = "side";
/** No longer than the estimate: the bound is then a minute's work of a tenant, not half an hour's. */
const SHORT: Lengths = { lowTokens: 32, capTokens: DEFAULT_ESTIMATE_TOKENS, tail: 1.2 };
/** An answer that is never over. */
const ENDLESS: Lengths = exactly(1e9);
const RIGHT: EstimateRule = { kind: "factor", factors: [1] };
const MANY_CLIENTS = 2 * SLOTS;

function exactly(tokens: number): Lengths {
  return { lowTokens: tokens, capTokens: tokens, tail: 1 };
}

function clients(count: number, spans?: readonly Span[]): Arrivals {
  return { kind: "backlogged", clients: count, ...(spans && { spans }) };
}

function traffic(arrivals: Arrivals, over: Partial<Traffic> = {}): Traffic {
  return { rank: DEFAULT, arrivals, lengths: SHORT, estimate: BY_DEFAULT, ...over };
}

/** Who holds the clock, and what it sends. */
export interface Holder {
  readonly title: string;
  readonly traffic: Traffic;
  /** It comes to the lane of the others itself. */
  readonly comesItself?: boolean;
  readonly over?: Partial<PoolPlan>;
}

/** It waits in a lane that is served only when the higher ones are empty, which they never are. */
export const PARKED_IN_BULK: Holder = {
  title: "parked in the bulk lane",
  traffic: traffic(clients(1), { rank: BULK }),
};

/** It waits behind an answer of its own that is never over. */
export const PARKED_IN_A_FULL_PARTITION: Holder = {
  title: "parked in a second partition that is full",
  traffic: traffic(clients(2), { rank: INTERACTIVE, partition: SIDE, lengths: ENDLESS }),
  over: { partitions: { [SIDE]: 1 } },
};

/** Now and then one of its four is served, and the clock moves, much slower than the others. */
export const SELDOM_SERVED: Holder = {
  title: "served now and then in the bulk lane",
  traffic: traffic(clients(4), { rank: BULK }),
  over: { bulkStarvesSecs: 5 },
};

/** One waiter in the bulk lane, so as to be owed something later. */
export const HOLDER_THAT_COMES: Holder = {
  ...PARKED_IN_BULK,
  title: "one waiter in the bulk lane, of the tenant that comes",
  comesItself: true,
};

/**
 * Two tenants always wait in the interactive lane, while a waiter elsewhere holds the clock; a third one
 * comes to that lane.
 *
 * @param spans when it is there
 */
export function heldClock(holder: Holder, spans: readonly Span[], weight = 1): PoolPlan {
  const always = [traffic(clients(MANY_CLIENTS), { rank: INTERACTIVE })];
  const comes = [traffic(clients(MANY_CLIENTS, spans), { rank: INTERACTIVE })];
  return {
    ...flatPool(`a waiter holds the clock: ${holder.title}`, {}),
    slots: SLOTS,
    fair: { weights: { newcomer: weight } },
    contestants: [
      { name: "ada", weight: 1 },
      { name: "ben", weight: 1 },
      { name: "newcomer", weight },
      { name: "holder", weight: 1, elsewhere: true },
    ],
    catchUpTokens: SLOTS * DEFAULT_ESTIMATE_TOKENS,
    tenants: [
      { name: "ada", contestant: 0, traffic: always },
      { name: "ben", contestant: 1, traffic: always },
      { name: "newcomer", contestant: 2, traffic: comes },
      {
        name: "holder",
        key: holder.comesItself === true ? "newcomer" : "holder",
        contestant: 3,
        traffic: [holder.traffic],
      },
    ],
    ...holder.over,
  };
}

/** The model that has a profile of its own in the pools of two profiles. */
const LARGE = "large";
const CLIENTS_EACH = 40;

/**
 * A tenant with flat weights and tenants of a model profile, with as many clients, in one lane.
 *
 * @param debtors tenants of the profile; the first ones in the lane
 * @param spans when the flat tenant is there
 */
function twoProfiles(
  title: string,
  fair: PoolPlan["fair"],
  debtors: PoolPlan["tenants"],
  rival: Traffic,
  spans: readonly Span[],
): PoolPlan {
  return {
    ...flatPool(title, {}),
    slots: SLOTS,
    fair,
    // They take turns; no clock compares them.
    contestants: [
      { name: "flat", weight: 1, compared: false },
      { name: "profile", weight: 1, compared: false },
    ],
    tenants: [
      ...debtors,
      { name: "rival", contestant: 1, traffic: [rival] },
      { name: "flat", contestant: 0, traffic: [traffic(clients(CLIENTS_EACH, spans))] },
    ],
  };
}

/** In debt towards all the names with which the bucket is flooded. */
export function debtorsInABucket(spans: readonly Span[]): PoolPlan {
  const debtors = ["one", "two", "three", "four"].map((name) => ({
    name: `debtor ${name}`,
    contestant: 1,
    traffic: [traffic(clients(1), { model: LARGE, lengths: exactly(2_000), estimate: RIGHT })],
  }));
  return twoProfiles(
    "debtors in the bucket of a profile, beside flat weights",
    { profiles: { [LARGE]: { weights: {}, other: 1 } } },
    debtors,
    traffic(clients(CLIENTS_EACH), { model: LARGE, freshNames: true }),
    spans,
  );
}

/** In debt towards the other named tenant: it had all slots, for ten minutes, before that one came. */
export function namedDebtor(spans: readonly Span[]): PoolPlan {
  return twoProfiles(
    "a named debtor of a profile, beside flat weights",
    { profiles: { [LARGE]: { weights: { debtor: 1, rival: 1 }, other: 1 } } },
    [
      {
        name: "debtor",
        contestant: 1,
        traffic: [
          traffic(clients(SLOTS), { model: LARGE, lengths: exactly(30_000), estimate: RIGHT }),
        ],
      },
    ],
    traffic(clients(CLIENTS_EACH, spans), { model: LARGE }),
    spans,
  );
}

// The scenarios of `npm run simulate`: who shares eight slots, and what the table should show. Each is
// one or two pools, simulated with the same seed.

import {
  BY_DEFAULT,
  CHAT,
  TENFOLD_EITHER_WAY,
  type EstimateRule,
  type Lengths,
} from "./lengths.js";
import {
  debtorsInABucket,
  heldClock,
  PARKED_IN_A_FULL_PARTITION,
  PARKED_IN_BULK,
} from "./lanes.js";
import { flatPool, type Arrivals, type PoolPlan, type Span, type Traffic } from "./pool-plan.js";

const MINUTE_MS = 60_000;
const [BULK, DEFAULT, INTERACTIVE] = [0, 1, 2] as const;

export interface Scenario {
  readonly title: string;
  /** One sentence: what to look for. */
  readonly shows: string;
  readonly pools: (lengthMs: number) => readonly PoolPlan[];
}

/** Clients that always have something waiting: more than there are slots. */
const MANY_CLIENTS = 16;
const ALWAYS: Arrivals = { kind: "backlogged", clients: MANY_CLIENTS };
/** Twenty times longer than a chat, and just as uneven. */
const LONG_CONTEXT: Lengths = { lowTokens: 640, capTokens: 20 * CHAT.capTokens, tail: CHAT.tail };
const TENTH: EstimateRule = { kind: "factor", factors: [0.1] };

function chat(over: Partial<Traffic> = {}): Traffic {
  return {
    rank: DEFAULT,
    arrivals: ALWAYS,
    lengths: CHAT,
    estimate: BY_DEFAULT,
    ...over,
  };
}

const twoToOne: Scenario = {
  title: "two tenants, 2:1",
  shows: "gold gets two thirds, although estimates are wrong by 10x either way",
  pools: () => [
    flatPool("weights 2:1", {
      gold: { weight: 2, traffic: [chat({ estimate: TENFOLD_EITHER_WAY })] },
      silver: { weight: 1, traffic: [chat({ estimate: TENFOLD_EITHER_WAY })] },
    }),
  ],
};

const fourWeights: Scenario = {
  title: "four tenants, 30/40/10/20",
  shows: "each gets its percentage",
  pools: () => [
    flatPool("weights 30/40/10/20", {
      ada: { weight: 30, traffic: [chat()] },
      ben: { weight: 40, traffic: [chat()] },
      cleo: { weight: 10, traffic: [chat()] },
      dan: { weight: 20, traffic: [chat()] },
    }),
  ],
};

const longContext: Scenario = {
  title: "one tenant with answers 20 times as long",
  shows: "equal tokens, not equal requests: long answers buy nothing and cost nobody anything",
  pools: () => [
    flatPool("equal weights, long answers", {
      long: { weight: 1, traffic: [chat({ lengths: LONG_CONTEXT })] },
      short: { weight: 1, traffic: [chat()] },
      brief: { weight: 1, traffic: [chat()] },
    }),
  ],
};

const disconnectStorm: Scenario = {
  title: "a tenant whose clients hang up",
  shows: "hanging up, with too small an estimate or not, wins no tokens: the charge stays",
  pools: () => [
    flatPool("equal weights, disconnects", {
      storm: { weight: 1, traffic: [chat({ leaving: 0.9 })] },
      "storm-low": { weight: 1, traffic: [chat({ leaving: 0.9, estimate: TENTH })] },
      calm: { weight: 1, traffic: [chat()] },
    }),
  ],
};

const FLOOD = 48;
const flooded = (): PoolPlan["tenants"] => [
  { name: "acme", contestant: 0, traffic: [chat()] },
  { name: "beta", contestant: 1, traffic: [chat()] },
  { name: "carol", contestant: 2, traffic: [chat()] },
  {
    name: "flood",
    contestant: 3,
    traffic: [chat({ arrivals: { kind: "backlogged", clients: FLOOD }, freshNames: true })],
  },
];

const identityFlood: Scenario = {
  title: "a flood of invented names",
  shows:
    "in a model profile the flood shares one bucket and cannot touch named tenants; " +
    "with flat weights each name counts as a tenant, so it gains",
  pools: () => [
    {
      ...flatPool("profile: acme 5, beta 3, all others 2", {}),
      fair: { profiles: { demo: { weights: { acme: 5, beta: 3 }, other: 2 } } },
      model: "demo",
      contestants: [
        { name: "acme", weight: 5 },
        { name: "beta", weight: 3 },
        { name: "all others", weight: 2 },
      ],
      tenants: flooded().map((one) => ({ ...one, contestant: Math.min(2, one.contestant) })),
    },
    {
      ...flatPool("flat weights: acme 5, beta 3, any other name 1", {}),
      fair: { weights: { acme: 5, beta: 3 } },
      contestants: [
        { name: "acme", weight: 5 },
        { name: "beta", weight: 3 },
        { name: "carol", weight: 1 },
        // As many tenants as names; one of them is due a weight of 1.
        { name: "flood", weight: 1, compared: false },
      ],
      tenants: flooded(),
    },
  ],
};

/** Conversations that come at random. */
const conversations = (meanGapMs: number): Traffic =>
  chat({ rank: INTERACTIVE, arrivals: { kind: "poisson", meanGapMs } });

const batchAndInteractive: Scenario = {
  title: "batch and interactive traffic of the same tenants",
  shows: "interactive requests hardly wait, and both kinds count in one account per tenant",
  pools: () => [
    {
      ...flatPool("equal weights, two classes each", {}),
      fair: { weights: { chatty: 1, quiet: 1 } },
      // Who is served in the higher lane need not be the least one of the lower lane: no bound holds.
      contestants: [
        { name: "chatty", weight: 1, compared: false },
        { name: "quiet", weight: 1, compared: false },
      ],
      // The slots make 400 tokens per second; conversations ask for about 150 and 50 of them.
      tenants: [
        { name: "chatty, batch", key: "chatty", contestant: 0, traffic: [chat({ rank: BULK })] },
        { name: "chatty, chat", key: "chatty", contestant: 0, traffic: [conversations(850)] },
        { name: "quiet, batch", key: "quiet", contestant: 1, traffic: [chat({ rank: BULK })] },
        { name: "quiet, chat", key: "quiet", contestant: 1, traffic: [conversations(2_500)] },
      ],
    },
  ],
};

const leaveAndReturn: Scenario = {
  title: "a tenant leaves and comes back",
  shows: "its share is taken at once, and idle time earns it nothing when it returns",
  pools: (lengthMs) => {
    const spans: Span[] = [
      [0, lengthMs / 3],
      [(2 * lengthMs) / 3, Number.POSITIVE_INFINITY],
    ];
    const absent: Arrivals = { kind: "backlogged", clients: MANY_CLIENTS, spans };
    const bursts: Arrivals = { kind: "bursts", size: 40, everyMs: 2 * MINUTE_MS };
    return [
      flatPool("weights 5:3:2", {
        traveller: { weight: 5, traffic: [chat({ arrivals: absent })] },
        steady: { weight: 3, traffic: [chat()] },
        bursty: { weight: 2, traffic: [chat({ arrivals: bursts })] },
      }),
    ];
  },
};

/** From the middle of the run on. */
const secondHalf = (lengthMs: number): Span[] => [[lengthMs / 2, Number.POSITIVE_INFINITY]];

const heldClocks: Scenario = {
  title: "a tenant comes while a waiter in another lane is never served",
  shows: "it gets its share at once, and nothing of what the others were served before it came",
  pools: (lengthMs) => [
    heldClock(PARKED_IN_BULK, secondHalf(lengthMs)),
    heldClock(PARKED_IN_A_FULL_PARTITION, secondHalf(lengthMs)),
  ],
};

const modelAndFlat: Scenario = {
  title: "tenants of a model profile and a tenant with flat weights in one lane",
  shows: "profiles take turns by arrival; waiters in debt within theirs do not keep the turn",
  pools: (lengthMs) => [debtorsInABucket(secondHalf(lengthMs))],
};

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "two-to-one": twoToOne,
  "four-weights": fourWeights,
  "long-context": longContext,
  "disconnect-storm": disconnectStorm,
  "identity-flood": identityFlood,
  "batch-and-interactive": batchAndInteractive,
  "leave-and-return": leaveAndReturn,
  "held-clock": heldClocks,
  "model-and-flat": modelAndFlat,
};

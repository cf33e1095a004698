// The table of transitions of one prefix: every state with every event, what is answered, what binds the
// prefix afterwards and until when. All times in seconds; the cooldown is 5 s, every event happens at 10.

import { expect } from "chai";
import { PrefixProtections, type SeedClaim } from "../../../extproc/core/prefixes/protections.js";
import { at, keysOf, range } from "../prefixes/support.js";

const KEYS = keysOf(...range(1, 8));
const W1 = "http://w1:1";
const W2 = "http://w2:1";
const NOW = 10;
/** After this long without an event a state is taken to bind for ever. */
const FOR_EVER = 1_000;

class Prefix {
  readonly protections = new PrefixProtections({ cooldownMs: 5_000 });
  /** The last seed's, which may have ended. */
  claimed: SeedClaim | undefined;

  claim(seconds: number): string {
    const target = { url: W2, revision: 1 };
    const claim = this.protections.claimSeed(KEYS, 8, target, at(seconds));
    this.claimed = claim ?? this.claimed;
    return claim === undefined ? "refused" : "granted";
  }

  drop(how: "success" | "failure" | "undispatched", seconds: number): string {
    if (how === "success") this.claimed?.markSuccess();
    this.claimed?.drop(how !== "undispatched", at(seconds));
    return "-";
  }

  spill(candidates: readonly string[], seconds: number): string {
    const chosen = candidates[candidates.length - 1] ?? "";
    const spill = this.protections.spill(KEYS, 8, new Set(candidates), () => chosen, at(seconds));
    return spill.kind;
  }

  /** What binds the prefix at a time. */
  state(seconds: number): string {
    const phases = this.protections.snapshot([KEYS], at(seconds)).map(({ phase }) => phase);
    const owner = this.protections.provisionalOwner(KEYS, 8, at(seconds));
    const all = owner === undefined ? phases : [...phases, `ordinary ${owner}`];
    return all.length === 0 ? "free" : all.join(" and ");
  }

  /** "active for ever", "ordinary http://w1:1 until 11", "free". */
  binding(): string {
    const state = this.state(NOW);
    if (state === "free") return state;
    for (let seconds = NOW; seconds < 100; seconds += 0.5) {
      const later = this.state(seconds);
      if (later === "free") return `${state} until ${String(seconds)}`;
      expect(later).to.equal(state);
    }
    expect(this.state(FOR_EVER)).to.equal(state);
    return `${state} for ever`;
  }
}

/** How a prefix got into each state, with a seed that has ended before wherever that is possible. */
const STATES = {
  none: (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("undispatched", 1);
  },
  "ordinary, 4 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("undispatched", 1);
    prefix.spill([W1], 6);
  },
  "ordinary, 5 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("undispatched", 1);
    prefix.spill([W1], 5);
  },
  active: (prefix: Prefix): void => {
    prefix.claim(0);
  },
  "success, 4 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("success", 6);
  },
  "success, 5 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("success", 5);
  },
  "failure, 4 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("failure", 6);
  },
  "failure, 5 s old": (prefix: Prefix): void => {
    prefix.claim(0);
    prefix.drop("failure", 5);
  },
} as const;
type State = keyof typeof STATES;

const EVENTS = {
  "spill that may join": (prefix: Prefix): string => prefix.spill([W1, W2], NOW),
  "spill that may not": (prefix: Prefix): string => prefix.spill([W2], NOW),
  "seed claim": (prefix: Prefix): string => prefix.claim(NOW),
  "drop after success": (prefix: Prefix): string => prefix.drop("success", NOW),
  "drop after failure": (prefix: Prefix): string => prefix.drop("failure", NOW),
  "drop before dispatch": (prefix: Prefix): string => prefix.drop("undispatched", NOW),
  "sweep now": (prefix: Prefix): string => {
    prefix.protections.collect(at(NOW));
    return "-";
  },
  "sweep a minute later": (prefix: Prefix): string => {
    prefix.protections.collect(at(NOW + 61));
    const { entries, seeds } = prefix.protections;
    return `${String(entries)} remembered, ${String(seeds)} protected`;
  },
} as const;
type Event = keyof typeof EVENTS;

const ORDINARY_W1 = `ordinary ${W1} until 11`;
const ORDINARY_W2 = `ordinary ${W2} until 15`;
const NEW = ["new", ORDINARY_W2] as const;
const SEED = ["granted", "active for ever"] as const;
const GONE = ["0 remembered, 0 protected", "free"] as const;

/** A prefix that nothing binds: anybody may have it. */
const FREE: Record<Event, readonly [answer: string, after: string]> = {
  "spill that may join": NEW,
  "spill that may not": NEW,
  "seed claim": SEED,
  "drop after success": ["-", "free"],
  "drop after failure": ["-", "free"],
  "drop before dispatch": ["-", "free"],
  "sweep now": ["-", "free"],
  "sweep a minute later": GONE,
};

/** A seed that has ended lately: nobody may have the prefix, and no late drop changes that. */
function cooling(phase: string): Record<Event, readonly [answer: string, after: string]> {
  const after = `${phase} until 11`;
  return {
    "spill that may join": ["refused", after],
    "spill that may not": ["refused", after],
    "seed claim": ["refused", after],
    "drop after success": ["-", after],
    "drop after failure": ["-", after],
    "drop before dispatch": ["-", after],
    "sweep now": ["-", after],
    "sweep a minute later": GONE,
  };
}

const TABLE: Record<State, Record<Event, readonly [answer: string, after: string]>> = {
  none: FREE,
  "ordinary, 4 s old": {
    "spill that may join": ["joined", ORDINARY_W1],
    "spill that may not": NEW,
    "seed claim": ["refused", ORDINARY_W1],
    "drop after success": ["-", ORDINARY_W1],
    "drop after failure": ["-", ORDINARY_W1],
    "drop before dispatch": ["-", ORDINARY_W1],
    "sweep now": ["-", ORDINARY_W1],
    "sweep a minute later": GONE,
  },
  "ordinary, 5 s old": FREE,
  active: {
    "spill that may join": ["refused", "active for ever"],
    "spill that may not": ["refused", "active for ever"],
    "seed claim": ["refused", "active for ever"],
    "drop after success": ["-", "success_cooldown until 15"],
    "drop after failure": ["-", "failure_quarantine until 15"],
    "drop before dispatch": ["-", "free"],
    "sweep now": ["-", "active for ever"],
    "sweep a minute later": ["1 remembered, 1 protected", "active for ever"],
  },
  "success, 4 s old": cooling("success_cooldown"),
  "success, 5 s old": FREE,
  "failure, 4 s old": cooling("failure_quarantine"),
  "failure, 5 s old": FREE,
};

describe("the state of a prefix", () => {
  for (const [state, row] of Object.entries(TABLE)) {
    it(`${state}: answers and moves as the table says, for every event`, () => {
      expect(Object.keys(row).sort()).to.deep.equal(Object.keys(EVENTS).sort());
      for (const [event, expected] of Object.entries(row)) {
        const prefix = new Prefix();
        STATES[state as State](prefix);
        const answer = EVENTS[event as Event](prefix);
        expect([answer, prefix.binding()], `${state}, ${event}`).to.deep.equal(expected);
      }
    });
  }

  it("is the same in both stores: a protected prefix is remembered, and no other seed is", () => {
    for (const [name, enter] of Object.entries(STATES)) {
      const prefix = new Prefix();
      enter(prefix);
      const { seeds, entries } = prefix.protections;
      const isSeed = !name.startsWith("ordinary") && name !== "none";
      expect([seeds, entries], name).to.deep.equal([isSeed ? 1 : 0, name === "none" ? 0 : 1]);
    }
  });
});

// Policies that are unfair on purpose, to see that the checker of the bound finds them. Each replaces a
// part of the scheduler or the ledger until it is mended.

import { FairClock, type ClockEntry } from "../../../extproc/core/fairshare/fair-clock.js";
import { FairTicket } from "../../../extproc/core/fairshare/ticket.js";
import { Lanes } from "../../../extproc/core/scheduler/lanes.js";
import { replace } from "../replace.js";

export interface UnfairPolicy {
  readonly title: string;
  /** Puts it in place; returns how to mend it. */
  readonly apply: () => () => void;
}

/** The estimate is all that is ever charged. */
function neverSettles(): () => void {
  let dropping = false;
  return replace(
    FairTicket.prototype,
    "settle",
    (original) =>
      function deaf(this: FairTicket, settlement) {
        if (dropping) {
          original.call(this, settlement);
          return;
        }
        dropping = true;
        this.drop();
        dropping = false;
      },
  );
}

interface OldClock {
  virtual: number;
  readonly active: Set<ClockEntry>;
}

/**
 * The virtual time is the least F of all that wait or run, and a settlement takes F down to it at most.
 * The tenant that is served next is the least one, so its refunds are cut off, and only its refunds.
 */
function refundsAreCutOff(): () => void {
  const clocks = new WeakMap<FairClock, OldClock>();
  const stateOf = (clock: FairClock): OldClock => {
    let state = clocks.get(clock);
    if (state === undefined) {
      state = { virtual: 0, active: new Set() };
      clocks.set(clock, state);
    }
    return state;
  };
  const change = (clock: FairClock, entry: ClockEntry, finish: number, how: () => void): void => {
    const state = stateOf(clock);
    how();
    entry.settled = finish - entry.provisionalTokens / entry.weight;
    for (const place of entry.places) place.moved();
    if (entry.queued + entry.active > 0) state.active.add(entry);
    else state.active.delete(entry);
    const least = Math.min(...[...state.active].map((one) => one.finish));
    if (state.active.size > 0) state.virtual = Math.max(state.virtual, least);
  };
  const mends = [
    replace(
      FairClock.prototype,
      "register",
      () =>
        function register(this: FairClock, entry) {
          const idle = entry.queued + entry.active === 0;
          const from = idle ? Math.max(entry.finish, stateOf(this).virtual) : entry.finish;
          change(this, entry, from, () => (entry.queued += 1));
        },
    ),
    replace(
      FairClock.prototype,
      "reserve",
      () =>
        function reserve(this: FairClock, entry, estimateTokens) {
          change(this, entry, entry.finish + estimateTokens / entry.weight, () => {
            entry.queued -= 1;
            entry.active += 1;
            entry.provisionalTokens += estimateTokens;
          });
        },
    ),
    replace(
      FairClock.prototype,
      "settle",
      () =>
        function settle(this: FairClock, entry, estimateTokens, chargedTokens) {
          const corrected = entry.finish + (chargedTokens - estimateTokens) / entry.weight;
          change(this, entry, Math.max(corrected, stateOf(this).virtual), () => {
            entry.active -= 1;
            entry.provisionalTokens -= estimateTokens;
          });
        },
    ),
  ];
  return () => {
    for (const mend of mends) mend();
  };
}

/** Whoever came first goes first. */
function firstComeFirstServed(): () => void {
  return replace(
    Lanes.prototype,
    "next",
    () =>
      function next(this: Lanes<unknown>, rank) {
        return this.head(rank);
      },
  );
}

export const UNFAIR_POLICIES: readonly UnfairPolicy[] = [
  { title: "first come, first served", apply: firstComeFirstServed },
  { title: "estimates that are never settled", apply: neverSettles },
  { title: "refunds that are cut off at the least virtual finish", apply: refundsAreCutOff },
];

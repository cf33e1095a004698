// Do the checkers of caches and bookings see anything? Each sabotage breaks one part of the choice of
// workers on purpose and names the violation that must stop the run.

import { CommittedIndex } from "../../extproc/core/prefixes/committed-index.js";
import { WorkerSelector } from "../../extproc/core/selection/selector.js";
import { Bookings } from "../../extproc/core/workers/bookings.js";
import { everyNth, replace } from "./replace.js";
import type { Sabotage } from "./sabotage.js";

const nothing = (): void => undefined;

export const CACHE_SABOTAGES: readonly Sabotage[] = [
  {
    title: "an answer that failed and makes its worker an owner",
    violation: /which holds nothing of it/,
    apply: () =>
      replace(
        WorkerSelector.prototype,
        "ended",
        (original) =>
          function hopeful(this: WorkerSelector, trace, _success, cachedTokens, now) {
            return original.call(this, trace, true, cachedTokens, now);
          },
      ),
  },
  {
    title: "a success that nobody remembers",
    violation: /finds no owner of its prompt, and there is one/,
    apply: (): (() => void) => {
      const forgets = everyNth(7);
      return replace(
        CommittedIndex.prototype,
        "commit",
        (original) =>
          function forgetful(this: CommittedIndex, keys, generation, now) {
            if (!forgets()) original.call(this, keys, generation, now);
          },
      );
    },
  },
  {
    title: "a success that is booked on another worker",
    violation: /finds no owner of its prompt, and there is one|which holds nothing of it/,
    apply: () =>
      replace(
        CommittedIndex.prototype,
        "commit",
        (original) =>
          function mistaken(this: CommittedIndex, keys, generation, now) {
            original.call(this, keys, generation === 1 ? 2 : generation, now);
          },
      ),
  },
  {
    title: "a reservation that is never given back",
    violation: /has \d+ tokens reserved|booked at the end/,
    apply: (): (() => void) => {
      const keeps = everyNth(40);
      return replace(
        Bookings.prototype,
        "reserve",
        (original) =>
          function greedy(this: Bookings, worker, tokens) {
            const giveBack = original.call(this, worker, tokens);
            return keeps() ? nothing : giveBack;
          },
      );
    },
  },
  {
    title: "a claim that outlives the step in which the request becomes load",
    violation: /claims on \S+: Weir says/,
    apply: (): (() => void) => {
      const keeps = everyNth(40);
      return replace(
        Bookings.prototype,
        "claim",
        (original) =>
          function clinging(this: Bookings, worker, partition, model) {
            const release = original.call(this, worker, partition, model);
            return keeps() ? nothing : release;
          },
      );
    },
  },
];

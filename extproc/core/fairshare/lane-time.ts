// How far has one contest of one lane come? The fair clock spans all lanes and partitions, and its time
// stands still for a waiter that is not served anywhere. Whoever began to wait at that time would catch
// up, in a lane that is served well, on all that the others were served there meanwhile; and names that
// are never used twice would each begin at it and go before everybody else for ever. So a contest has a
// time of its own: what is charged here per weight of all that wait or run here, as if it had been
// served evenly. A contender that begins to wait here begins at that time at least, and not far behind
// the next one.
//
// What it is ahead by here, it is ahead by here only: its place in other lanes is that of its clock. It
// is remembered while the contender is away, less what its clock has been lifted by since. Unit: output
// tokens per weight, since the start of the process.

import { TransientMap } from "../model/transient-map.js";
import { invariant } from "../model/invariant.js";
import type { ClockEntry } from "./fair-clock.js";

interface Ahead {
  readonly by: number;
  /** What the entry had been lifted by, by its clock, at that moment. */
  readonly lifted: number;
}

export class LaneTime {
  /** Requests of each contender that wait or run here. */
  readonly #busy = new TransientMap<ClockEntry, number>();
  readonly #ahead = new WeakMap<ClockEntry, Ahead>();
  #busyWeight = 0;
  #now = 0;

  get now(): number {
    return this.#now;
  }

  /** A request of the contender begins to wait here, or to run without having waited. */
  enter(entry: ClockEntry): void {
    const requests = this.#busy.get(entry) ?? 0;
    this.#busy.set(entry, requests + 1);
    if (requests === 0) this.#busyWeight += entry.weight;
  }

  /** A request has ended or left; `chargedTokens` is 0 for one that never ran. */
  exit(entry: ClockEntry, chargedTokens: number): void {
    const requests = this.#busy.get(entry);
    invariant(requests !== undefined, "only who waits or runs here leaves");
    this.#now += chargedTokens / this.#busyWeight;
    if (requests > 1) {
      this.#busy.set(entry, requests - 1);
      return;
    }
    this.#busy.delete(entry);
    // A sum of fractions may end a little off 0.
    this.#busyWeight = this.#busy.size === 0 ? 0 : this.#busyWeight - entry.weight;
  }

  /**
   * How far ahead of its F a contender begins to wait here.
   *
   * @param least where it begins at least, because of whoever is next here; undefined = nobody waits
   */
  ahead(entry: ClockEntry, least: number | undefined): number {
    const known = this.#ahead.get(entry);
    const before = known === undefined ? 0 : Math.max(0, known.by - (entry.lifted - known.lifted));
    const finish = entry.virtualFinish;
    const start = Math.max(finish + before, this.#now, least ?? this.#now);
    const by = Math.max(before, start - finish);
    if (by > 0) this.#ahead.set(entry, { by, lifted: entry.lifted });
    else this.#ahead.delete(entry);
    return by;
  }
}

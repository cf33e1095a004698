// How far may two tenants drift apart, and how far did they? While both wait in the same lane, the
// difference of what they were served, per weight, stays within a bound that depends on the slots and on
// the largest single request only, never on how long the run is. docs/fairness.md derives the formulas.
// The bound is taken anew at each settlement from what has been booked and charged so far, so a run is
// checked in every prefix. Unit: output tokens per weight.

export interface Contestant {
  readonly name: string;
  /** > 0. */
  readonly weight: number;
  /** False = it shares the slots, but no bound is claimed for it. */
  readonly compared?: boolean;
  /** True = it only waits in other lanes: no bound is claimed for it, and it is due what it gets. */
  readonly elsewhere?: boolean;
}

/** The largest amounts that have been seen, in tokens. */
export interface Extremes {
  chargeTokens: number;
  estimateTokens: number;
}

/**
 * How much more than `behind` the tenant `ahead` may have been served, when the clocks of both were
 * equal at the beginning: one slot of `ahead` holds the request it was last chosen for; each other slot
 * holds one of its own, which may settle, or one of the other's, which counts as booked already.
 */
export function boundFromEqualClocks(
  slots: number,
  extremes: Extremes,
  ahead: Contestant,
  behind: Contestant,
): number {
  const own = extremes.chargeTokens / ahead.weight;
  const booked = extremes.estimateTokens / behind.weight;
  return own + (slots - 1) * Math.max(own, booked);
}

/**
 * The same for two tenants that came to wait at any time: twice for where their clocks stood then, once
 * for requests they had in flight then, once as above.
 */
export function boundFromAnyMoment(
  slots: number,
  { chargeTokens, estimateTokens }: Extremes,
  leastWeight: number,
): number {
  return (4 * slots * Math.max(chargeTokens, estimateTokens)) / leastWeight;
}

/** The moment at which a pair was nearest to its bound. */
export interface Nearest {
  readonly ahead: string;
  readonly behind: string;
  readonly gap: number;
  readonly bound: number;
  /** `gap / bound`; more than 1 is a violation. */
  readonly share: number;
  readonly atSettlement: number;
}

interface Side extends Contestant {
  waiting: boolean;
  /** Settled tokens since the beginning of the run. */
  served: number;
}

interface Pair {
  readonly one: Side;
  readonly other: Side;
  /** Served when both began to wait. */
  servedOne: number;
  servedOther: number;
  fromEqualClocks: boolean;
}

export const isCompared = ({ compared, elsewhere }: Contestant): boolean =>
  compared !== false && elsewhere !== true;

export class FairnessChecker {
  readonly #slots: number;
  readonly #sides: readonly Side[];
  readonly #pairsOf: readonly Pair[][];
  readonly #leastWeight: number;
  readonly #catchUpTokens: number;
  readonly #extremes: Extremes = { chargeTokens: 0, estimateTokens: 0 };
  #settlements = 0;
  #nearest: Nearest | undefined;
  #largestGap: Nearest | undefined;
  #violations = 0;
  #firstViolation: Nearest | undefined;

  /**
   * @param slots of the partition that all contestants share
   * @param catchUpTokens what a tenant that comes may be served first, beyond the bound, because a waiter
   *   in another lane holds the clock: one ordinary request for each slot, divided by its weight
   */
  constructor(slots: number, contestants: readonly Contestant[], catchUpTokens = 0) {
    this.#slots = slots;
    this.#catchUpTokens = catchUpTokens;
    this.#sides = contestants.map((one) => ({ ...one, waiting: false, served: 0 }));
    const here = contestants.filter(({ elsewhere }) => elsewhere !== true);
    this.#leastWeight = Math.min(...here.map(({ weight }) => weight));
    this.#pairsOf = this.#sides.map(() => []);
    for (const [index, one] of this.#sides.entries()) {
      for (const [second, other] of this.#sides.entries()) {
        if (second <= index || !isCompared(one) || !isCompared(other)) continue;
        const pair = { one, other, servedOne: 0, servedOther: 0, fromEqualClocks: false };
        this.#pairsOf[index]?.push(pair);
        this.#pairsOf[second]?.push(pair);
      }
    }
  }

  /** Settlements so far. */
  get settlements(): number {
    return this.#settlements;
  }

  /** The prefix in which a pair was nearest to its bound. */
  get nearest(): Nearest | undefined {
    return this.#nearest;
  }

  /** The prefix with the largest gap. */
  get largestGap(): Nearest | undefined {
    return this.#largestGap;
  }

  /** Prefixes with a pair beyond its bound, and the first of them. */
  get violations(): number {
    return this.#violations;
  }

  get firstViolation(): Nearest | undefined {
    return this.#firstViolation;
  }

  /** A contestant has something waiting from now on. */
  waits(index: number): void {
    const side = this.#side(index);
    side.waiting = true;
    for (const pair of this.#pairsOf[index] ?? []) {
      if (!pair.one.waiting || !pair.other.waiting) continue;
      pair.servedOne = pair.one.served;
      pair.servedOther = pair.other.served;
      // Before the first settlement every clock stands at 0.
      pair.fromEqualClocks = this.#settlements === 0;
    }
  }

  /** A contestant has nothing waiting any more. */
  rests(index: number): void {
    this.#side(index).waiting = false;
  }

  booked(estimateTokens: number): void {
    const { estimateTokens: largest } = this.#extremes;
    this.#extremes.estimateTokens = Math.max(largest, estimateTokens);
  }

  /** A contestant was charged, and every pair of it is compared. */
  settled(index: number, chargeTokens: number): void {
    this.#settlements += 1;
    this.#extremes.chargeTokens = Math.max(this.#extremes.chargeTokens, chargeTokens);
    this.#side(index).served += chargeTokens;
    for (const pair of this.#pairsOf[index] ?? []) {
      if (pair.one.waiting && pair.other.waiting) this.#compare(pair);
    }
  }

  #compare({ one, other, servedOne, servedOther, fromEqualClocks }: Pair): void {
    const difference =
      (one.served - servedOne) / one.weight - (other.served - servedOther) / other.weight;
    const [ahead, behind] = difference >= 0 ? [one, other] : [other, one];
    const bound = fromEqualClocks
      ? boundFromEqualClocks(this.#slots, this.#extremes, ahead, behind)
      : boundFromAnyMoment(this.#slots, this.#extremes, this.#leastWeight) +
        this.#catchUpTokens / this.#leastWeight;
    const gap = Math.abs(difference);
    const share = gap / bound;
    const nearer = share > (this.#nearest?.share ?? -1);
    const larger = gap > (this.#largestGap?.gap ?? -1);
    if (!nearer && !larger && share <= 1) return;
    const moment: Nearest = {
      ahead: ahead.name,
      behind: behind.name,
      gap,
      bound,
      share,
      atSettlement: this.#settlements,
    };
    if (nearer) this.#nearest = moment;
    if (larger) this.#largestGap = moment;
    if (share <= 1) return;
    this.#violations += 1;
    this.#firstViolation ??= moment;
  }

  #side(index: number): Side {
    const side = this.#sides[index];
    if (side === undefined) throw new Error(`no contestant ${String(index)}`);
    return side;
  }
}

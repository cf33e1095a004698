// How far from the knee is the limit set, to find out more? Owns, for one partition, which of three
// offers is made; counts are learning samples, not time, so that the pace follows the poll interval.
//
//   beyond  the usual offer: a margin above the knee, large enough that its throughput would be seen
//           to grow. While raises keep earning what they cost, the margin doubles, or a partition that
//           was quiet would need a hundred polls to come up.
//   level   for a while after a margin brought pressure: the engines have said that they are full, and
//           every further margin would only wait in their queues.
//   below   now and then, for a few samples, a little less than the knee. A partition with a backlog
//           always runs at its limit and could never see that fewer requests do as well: from above,
//           a knee is found only this way. As long as less does as well, it goes on at once.
//
// The pauses and the dips are chosen so that all offers together cost one to two percent of the
// throughput at a knee that does not move.

import type { KneeVerdict } from "./feedback-knee.js";
import { roundUp } from "./rounding.js";

/** An offer differs from the knee by as many requests as change throughput by this many steps. */
const STEPS = 2.5;
/** Bound samples from one dip to the next. */
const REST_SAMPLES = 18;
/** The same at the start and after pressure, when the knee is known least. */
const SHORT_REST_SAMPLES = 3;
/** Samples a dip waits for one that shows it: one drains, one is measured, one is on its way. */
const DIP_SAMPLES = 5;
/** Samples without a margin after pressure. */
const LEVEL_SAMPLES = 30;
/** Samples without a raise that end the doubling: a raise shows in every second sample. */
const CALM_SAMPLES_MAX = 3;
/** Part of the growth in requests that a raise must earn for the margin to double. */
const DOUBLING_GAIN = 0.75;
/** Ceilings bound a margin that went too far; without them the engines' queues would. */
const DOUBLINGS_MAX = { withCeiling: 4, withoutCeiling: 2 } as const;

export interface ProbeKnobs {
  /** Least margin per healthy worker, requests. */
  readonly marginMin: number;
  /** Relative change of throughput that counts, 0..1. */
  readonly improvementRatio: number;
  /** Always the fixed margin. */
  readonly referenceRule: boolean;
}

export interface ProbeSample {
  readonly verdict: KneeVerdict;
  /** See {@link KneeEstimator.gain}. */
  readonly gain: number;
  readonly bound: boolean;
  /** `limited`: there is pressure although the learned limit was in force. */
  readonly pressure: "none" | "unlimited" | "limited";
  readonly ceilingKnown: boolean;
  /** Running requests per worker of the sample. */
  readonly running: number;
  /** Before and after the sample, requests per worker. */
  readonly kneeBefore: number;
  readonly knee: number;
}

export type ProbeOffer = "beyond" | "level" | "below";

/** Part of a running count by which an offer differs from it; at most all of it. */
export function probeSlack(improvementRatio: number): number {
  return Math.min(1, STEPS * improvementRatio);
}

/** Requests per worker offered beyond a knee when nothing speaks for more or less. */
export function probeMargin(knobs: ProbeKnobs, knee: number): number {
  if (knobs.referenceRule) return knobs.marginMin;
  return Math.max(knobs.marginMin, roundUp(STEPS * knobs.improvementRatio * knee));
}

export class LimitProbe {
  readonly #knobs: ProbeKnobs;
  #restLeft = SHORT_REST_SAMPLES;
  #dipLeft = 0;
  #levelLeft = 0;
  /** Raises in a row that earned what they cost. */
  #earned = 0;
  #calm = 0;
  #mostDoublings: number = DOUBLINGS_MAX.withoutCeiling;

  constructor(knobs: ProbeKnobs) {
    this.#knobs = knobs;
  }

  get offer(): ProbeOffer {
    if (this.#dipLeft > 0) return "below";
    return this.#levelLeft > 0 ? "level" : "beyond";
  }

  /** Requests of all healthy workers together by which the limit lies above the knee (below: < 0). */
  offset(knee: number, healthy: number): number {
    switch (this.offer) {
      case "below": {
        const dip = roundUp(STEPS * this.#knobs.improvementRatio * knee * healthy);
        return -Math.max(1, Math.min(dip, Math.floor((knee * healthy) / 2)));
      }
      case "level":
        return 0;
      case "beyond": {
        const margin = probeMargin(this.#knobs, knee);
        return Math.max(margin, Math.min(margin * this.#boost(), Math.floor(knee))) * healthy;
      }
    }
  }

  /** Takes a sample; true when it shows that the dip costs throughput, and so ends it. */
  observe(sample: ProbeSample): boolean {
    if (this.#knobs.referenceRule) return false;
    if (this.#levelLeft > 0) this.#levelLeft -= 1;
    if (sample.pressure !== "none") {
      this.#dipLeft = 0;
      this.#restLeft = SHORT_REST_SAMPLES;
      this.#earned = 0;
      if (sample.pressure === "limited") this.#levelLeft = LEVEL_SAMPLES;
      return false;
    }
    if (this.#dipLeft > 0) return this.#dip(sample);
    this.#rest(sample);
    this.#climb(sample);
    return false;
  }

  #dip({ bound, verdict, running, knee }: ProbeSample): boolean {
    if (bound && verdict === "lowered") {
      this.#dipLeft = DIP_SAMPLES;
      return false;
    }
    // The sample shows the dip when it runs more than half of the way below the knee.
    const shown = running <= knee * (1 - (STEPS / 2) * this.#knobs.improvementRatio);
    this.#dipLeft = bound && !shown ? this.#dipLeft - 1 : 0;
    if (this.#dipLeft === 0) this.#restLeft = REST_SAMPLES;
    return bound && shown && verdict === "below";
  }

  #rest({ bound, verdict, kneeBefore, knee }: ProbeSample): void {
    const moved =
      Math.abs(knee / kneeBefore - 1) > (STEPS / 2) * this.#knobs.improvementRatio ||
      verdict === "first";
    if (!bound || moved) this.#restLeft = REST_SAMPLES;
    else this.#restLeft -= 1;
    if (this.#restLeft > 0) return;
    this.#dipLeft = DIP_SAMPLES;
    this.#earned = 0;
  }

  #climb({ bound, verdict, gain, ceilingKnown }: ProbeSample): void {
    this.#mostDoublings = ceilingKnown ? DOUBLINGS_MAX.withCeiling : DOUBLINGS_MAX.withoutCeiling;
    if (verdict === "raised") {
      this.#calm = 0;
      this.#earned = bound && gain >= DOUBLING_GAIN ? this.#earned + 1 : 0;
      return;
    }
    this.#calm += 1;
    if (this.#calm > CALM_SAMPLES_MAX) this.#earned = 0;
  }

  /** The first raise may only make up for a dip, so doubling begins with the second. */
  #boost(): number {
    return 2 ** Math.min(this.#mostDoublings, Math.max(0, this.#earned - 1));
  }
}

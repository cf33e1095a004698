// From how many running requests per worker on does an engine stop producing more? Owns the knee of
// one partition, the throughput that belongs to it (its peak) and when the peak was last confirmed.
// Running requests and tokens per second are means per worker, time is monotonic milliseconds.
//
// The knee is the smallest running count at which about the best throughput was seen. More throughput
// moves it up, the same throughput with fewer requests moves it down, and a weaker sample changes
// nothing: it may come from a lull. The pair (knee, peak) can become untrue, when engines get slower
// or a measurement was off. Two ways lead out: whoever has measured a lower pair puts it in its place,
// and a peak that nothing confirms loses half its value every half-life.
//
// A sample teaches downwards only when the partition was held at its limit or under pressure: few
// requests with little throughput are otherwise a want of demand, and a quiet night must not take
// away what the day has learned.

import type { MonotonicMs } from "../model/time.js";
import type { LearningSample } from "./feedback-inputs.js";

/** A raise that earns less than this part of its growth in requests passed the knee on its way. */
const FULL_GAIN = 0.5;
/**
 * Growth in requests, in changes of throughput that count, up to which that is not asked: the step is
 * too small to run far past the knee, and a peak that was measured a little too high makes it look poor.
 */
const SMALL_GROWTH_STEPS = 4;

export interface KneeKnobs {
  readonly halfLifeMs: number;
  /** Relative change of throughput that counts, 0..1. */
  readonly improvementRatio: number;
  readonly referenceRule: boolean;
}

export type KneeVerdict = "first" | "raised" | "lowered" | "plateau" | "below" | "unbound" | "idle";

export class KneeEstimator {
  readonly #knobs: KneeKnobs;
  #knee: number | undefined;
  #peak = 0;
  #confirmedAt: MonotonicMs | undefined;
  #sampledAt: MonotonicMs | undefined;
  #gain = 0;
  #best: { readonly throughput: number; readonly at: MonotonicMs } | undefined;

  constructor(knobs: KneeKnobs) {
    this.#knobs = knobs;
  }

  /** Running requests per worker; undefined until a busy sample came. */
  get knee(): number | undefined {
    return this.#knee;
  }

  /** Tokens per second per worker at the knee, as far as they still count at `now`; 0 = none. */
  peakAt(now: MonotonicMs): number {
    return this.#confirmedAt === undefined ? 0 : this.#decayed(this.#peak, this.#confirmedAt, now);
  }

  /** The best throughput of one worker, decayed since it was seen; 0 = none. */
  bestAt(now: MonotonicMs): number {
    return this.#best === undefined ? 0 : this.#decayed(this.#best.throughput, this.#best.at, now);
  }

  /** Part of the growth in requests that the last raise brought in throughput; 0 after any other sample. */
  get gain(): number {
    return this.#gain;
  }

  /**
   * @param bound the partition had as many requests at its engines as its limit allowed, or was under
   *   pressure
   */
  observe(sample: LearningSample, bound: boolean, now: MonotonicMs): KneeVerdict {
    this.#best = { throughput: Math.max(this.bestAt(now), sample.throughput), at: now };
    if (sample.running <= 0) return "idle";
    const verdict = this.#judge(sample, bound, now);
    this.#sampledAt = now;
    return verdict;
  }

  /** Takes the knee down to a pair known from elsewhere; a higher `running` changes nothing. */
  capAt(running: number, throughput: number, now: MonotonicMs): void {
    if (this.#knee !== undefined && running < this.#knee) this.#set(running, throughput, now);
  }

  #judge(sample: LearningSample, bound: boolean, now: MonotonicMs): KneeVerdict {
    const { running, throughput } = sample;
    const { improvementRatio, referenceRule } = this.#knobs;
    const knee = this.#knee;
    this.#gain = 0;
    if (knee === undefined) {
      this.#set(running, throughput, now);
      return "first";
    }
    const peak = this.#standing(now);
    const raises = throughput > peak * (1 + improvementRatio);
    const plateau = throughput >= peak * (1 - improvementRatio);
    if (referenceRule) {
      if (!raises && !plateau) return "below";
      this.#set(raises ? running : Math.min(running, knee), Math.max(peak, throughput), now);
      return raises ? "raised" : running < knee ? "lowered" : "plateau";
    }
    if (raises) return this.#raise(sample, bound, knee, peak, now);
    if (bound && !plateau) return "below";
    this.#confirmedAt = now;
    if (!bound) return "unbound";
    // The peak stays the value that belongs to the knee: raised by every slightly better sample it
    // would follow a slow ramp and keep the knee where the ramp began.
    if (running >= knee) return "plateau";
    this.#set(running, Math.max(peak, throughput), now);
    return "lowered";
  }

  #raise(
    { running, throughput }: LearningSample,
    bound: boolean,
    knee: number,
    peak: number,
    now: MonotonicMs,
  ): KneeVerdict {
    let next = bound ? running : Math.max(running, knee);
    if (next > knee) {
      const growth = next / knee - 1;
      const earned = throughput / peak - 1;
      this.#gain = earned / growth;
      // Throughput grows with the requests up to the knee, so a raise that earned much less met the
      // knee where requests had grown by what was earned.
      const large = growth > SMALL_GROWTH_STEPS * this.#knobs.improvementRatio;
      if (large && this.#gain < FULL_GAIN) next = Math.min(next, knee * (1 + earned));
    }
    this.#set(next, throughput, now);
    return "raised";
  }

  /**
   * The peak a sample is compared with. It loses value only over the time in which samples came and
   * did not confirm it: the wait for the next poll alone is no evidence, whatever its length.
   */
  #standing(now: MonotonicMs): number {
    const confirmedAt = this.#confirmedAt ?? now;
    const until = this.#knobs.referenceRule ? now : (this.#sampledAt ?? confirmedAt);
    return until <= confirmedAt ? this.#peak : this.#decayed(this.#peak, confirmedAt, until);
  }

  #set(knee: number, peak: number, now: MonotonicMs): void {
    this.#knee = knee;
    this.#peak = peak;
    this.#confirmedAt = now;
  }

  #decayed(value: number, since: MonotonicMs, now: MonotonicMs): number {
    return value * 2 ** (-(now - since) / this.#knobs.halfLifeMs);
  }
}

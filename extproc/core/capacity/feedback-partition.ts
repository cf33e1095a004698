// What has one partition learned from its engines? Owns its last readings, its knee, its probe and
// whether it was ever under pressure, and brings them together once per publication: fill the gaps,
// sum up, learn if there is something new, work out the limits.

import type { AdaptiveAdmissionConfig } from "../model/config.js";
import type { MonotonicMs } from "../model/time.js";
import { ReadingHold, READING_AGE_MAX_MS } from "./feedback-hold.js";
import {
  feedbackInputs,
  type FeedbackInputs,
  type LearningSample,
  type ObservedWorker,
} from "./feedback-inputs.js";
import { KneeEstimator, type KneeVerdict } from "./feedback-knee.js";
import {
  feedbackLimits,
  pressureReason,
  type FeedbackLimits,
  type PressureReason,
} from "./feedback-limits.js";
import { LimitProbe, probeSlack, type ProbeOffer } from "./feedback-probe.js";

/** Part of the limit that must be in use for the limit, and not demand, to have set the sample. */
const BOUND_SHARE = 0.9;
/** Samples among which a burst that waits has been seen running. */
const SAMPLES_REMEMBERED = 3;
/**
 * Publications whose limits a sample may have been taken under: the one before it, and the ones a
 * delayed sample missed.
 */
const LIMITS_REMEMBERED = 3;

/** Everything known of one partition, for people. */
export interface PartitionFeedbackView {
  readonly inputs: FeedbackInputs;
  readonly limits: FeedbackLimits;
  /** Workers whose last reading stands in for a lost poll. */
  readonly heldReadings: number;
  /** Running requests per worker; undefined = nothing learned. */
  readonly knee: number | undefined;
  /** Tokens per second of one worker that belong to the knee, as far as they still count. */
  readonly kneeThroughput: number;
  /** Best throughput of one worker, decayed, times the healthy workers: tokens per second. */
  readonly learnedCapacity: number;
  readonly pressureSeen: boolean;
  readonly offer: ProbeOffer;
  /** Requests by which the learned limit lies above the knee of all workers (below: negative). */
  readonly offset: number;
  /** What the last sample did to the knee; undefined = none came yet. */
  readonly lastVerdict: KneeVerdict | undefined;
}

export class PartitionFeedback {
  readonly #config: AdaptiveAdmissionConfig;
  readonly #hold: ReadingHold;
  readonly #knee: KneeEstimator;
  readonly #probe: LimitProbe;
  #pressureSeen = false;
  #heldReadings = 0;
  #inputs: FeedbackInputs = feedbackInputs([]);
  #limits: FeedbackLimits;
  #lastVerdict: KneeVerdict | undefined;
  #pressure: PressureReason | undefined;
  /** Running limits of the last publications; Infinity = there was none. */
  #recentLimits: number[] = [];
  /** Running requests per worker of the last samples. */
  #recentRunning: number[] = [];

  constructor(config: AdaptiveAdmissionConfig) {
    this.#config = config;
    const referenceRule = config.feedback_reference_rule;
    const improvementRatio = config.feedback_throughput_improvement_ratio;
    this.#hold = new ReadingHold(referenceRule ? 0 : READING_AGE_MAX_MS);
    this.#knee = new KneeEstimator({
      halfLifeMs: config.estimator_half_life_secs * 1_000,
      improvementRatio,
      referenceRule,
    });
    this.#probe = new LimitProbe({
      marginMin: config.feedback_probe_requests_per_healthy_replica,
      improvementRatio,
      referenceRule,
    });
    this.#limits = this.#workOut();
  }

  get inputs(): FeedbackInputs {
    return this.#inputs;
  }

  get limits(): FeedbackLimits {
    return this.#limits;
  }

  /** Takes the partition's healthy workers with what each of them reports, after a publication. */
  publish(workers: readonly ObservedWorker[], now: MonotonicMs): void {
    const readings = this.#hold.apply(workers, now);
    this.#heldReadings = readings.held;
    this.#inputs = feedbackInputs(readings.workers);
    // What stands in for a lost poll keeps the coverage up; it does not go on asserting pressure.
    const heard = readings.held === 0 ? this.#inputs : feedbackInputs(workers);
    this.#pressure = pressureReason(this.#config, heard);
    const { sample } = this.#inputs;
    if (readings.fresh && sample !== undefined) this.#learn(sample, now);
    this.#limits = this.#workOut();
    const limit = this.#limits.runningLimit ?? Number.POSITIVE_INFINITY;
    // Other partitions publish too; what is the same for this one is no other limit.
    if (!readings.fresh && limit === this.#recentLimits.at(-1)) return;
    this.#recentLimits.push(limit);
    if (this.#recentLimits.length > LIMITS_REMEMBERED) this.#recentLimits.shift();
  }

  view(now: MonotonicMs): PartitionFeedbackView {
    return {
      inputs: this.#inputs,
      limits: this.#limits,
      heldReadings: this.#heldReadings,
      knee: this.#knee.knee,
      kneeThroughput: this.#knee.peakAt(now),
      learnedCapacity: this.#knee.bestAt(now) * this.#inputs.healthy,
      pressureSeen: this.#pressureSeen,
      offer: this.#probe.offer,
      offset: this.#offset(),
      lastVerdict: this.#lastVerdict,
    };
  }

  #learn(sample: LearningSample, now: MonotonicMs): void {
    const pressure = this.#pressure;
    const pressed = pressure !== undefined;
    const kneeBefore = this.#knee.knee;
    const bound = pressed || this.#isBound();
    const verdict = this.#knee.observe(sample, bound, now);
    this.#lastVerdict = verdict;
    // Pressure is learned with a knee only: it says from when on the knee counts.
    if (verdict === "idle") return;
    this.#pressureSeen ||= pressed;
    const limited =
      kneeBefore !== undefined && this.#limits.learnedLimit !== undefined && !this.#isUneven();
    this.#remember(sample);
    if (limited && pressed) this.#yield(pressure, sample, now);
    const { knee } = this.#knee;
    if (knee === undefined) return;
    const costs = this.#probe.observe({
      verdict,
      gain: this.#knee.gain,
      bound,
      pressure: pressed ? (limited ? "limited" : "unlimited") : "none",
      ceilingKnown: this.#limits.engineLimit !== undefined,
      running: sample.running,
      kneeBefore: kneeBefore ?? knee,
      knee,
    });
    // Two levels, one measured soon after the other, say more than a peak that may be old or wrong: the
    // climb back from the dip finds the knee anew, and where it still earns in full, it goes on.
    if (costs) this.#knee.capAt(sample.running, sample.throughput, now);
  }

  /**
   * Takes the knee down to what the engines can hold under pressure. Caches that are fuller than they
   * may be hold so many fewer requests, and a little less, or they would fill again at once. Engines
   * that keep requests waiting run as many as they can; the most of a few samples counts, because a
   * burst is seen waiting before it is seen running.
   */
  #yield(pressure: PressureReason, { throughput }: LearningSample, now: MonotonicMs): void {
    if (this.#config.feedback_reference_rule) return;
    const { running, observed, meanTokenUsage } = this.#inputs;
    const usageMax = this.#config.feedback_max_token_usage;
    const slack = probeSlack(this.#config.feedback_throughput_improvement_ratio);
    const holds =
      pressure === "token_pressure"
        ? (running / observed) * (usageMax / meanTokenUsage) * (1 - slack)
        : Math.max(...this.#recentRunning);
    if (holds > 0) this.#knee.capAt(holds, throughput, now);
  }

  #remember({ running }: LearningSample): void {
    this.#recentRunning.push(running);
    if (this.#recentRunning.length > SAMPLES_REMEMBERED) this.#recentRunning.shift();
  }

  /**
   * Requests wait, and in the queues of fewer than half of the engines: they were sent to the wrong
   * workers, and the limit of the whole partition is not what let them in.
   */
  #isUneven(): boolean {
    if (this.#config.feedback_reference_rule || this.#pressure !== "engine_waiting") return false;
    return 2 * this.#inputs.waitingWorkers < this.#inputs.observed;
  }

  #isBound(): boolean {
    const { running, waiting, observed, healthy } = this.#inputs;
    const limit = Math.min(...this.#recentLimits, Number.POSITIVE_INFINITY);
    return running + waiting >= BOUND_SHARE * limit * (observed / healthy);
  }

  #offset(): number {
    const { knee } = this.#knee;
    return knee === undefined ? 0 : this.#probe.offset(knee, this.#inputs.healthy);
  }

  #workOut(): FeedbackLimits {
    const learned = {
      knee: this.#knee.knee,
      offset: this.#offset(),
      pressureSeen: this.#pressureSeen,
    };
    return feedbackLimits(this.#config, this.#inputs, learned, this.#pressure);
  }
}

// The closed loop: demand, slots, simulated engines, polls that come late or not at all, and the real
// feedback controller between what was polled and how many slots there are. Virtual milliseconds; a
// run depends on its scenario and its seed alone.
//
// The sensor lags: the controller gets, at each poll, what the engines reported at the poll before,
// and some workers' polls are lost. A throughput is the growth of a token counter over the interval,
// as most engines offer it, with an error of measurement.

import {
  FeedbackController,
  type FeedbackTracker,
} from "../../../extproc/core/capacity/feedback-controller.js";
import type { ObservedWorker } from "../../../extproc/core/capacity/feedback-inputs.js";
import type { DecisionReason } from "../../../extproc/core/capacity/feedback-decision.js";
import type { AdaptiveAdmissionConfig } from "../../../extproc/core/model/config.js";
import { partitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { Chance } from "../chance.js";
import { KneeEngine, type EngineShape } from "./engine.js";

/** Who wants to be served: so many at once, each coming back at once, or so many per second. */
export type Demand =
  | { readonly kind: "backlog"; readonly clientsAt: (atMs: number) => number }
  | { readonly kind: "arrivals"; readonly perSecondAt: (atMs: number) => number };

export interface Scenario {
  readonly title: string;
  readonly shapesAt: (atMs: number) => readonly EngineShape[];
  readonly demand: Demand;
  /** Slots without feedback. */
  readonly staticSlots: number;
  readonly lengthMs: number;
  /** From here on tokens and queueing count. */
  readonly countFromMs: number;
  readonly ceilingsPublished: boolean;
  readonly pollMs: number;
  /** Probability that one worker's poll is lost. */
  readonly lostPolls: number;
  /** Relative standard deviation of a measured throughput. */
  readonly noise: number;
  /** Workers nobody can poll. */
  readonly blindAt?: (replica: number, atMs: number) => boolean;
}

/** What sets the slots. */
export type Control =
  /** The slots follow the limit (`slots`), or each request is decided about (`requests`). */
  | {
      readonly kind: "feedback";
      readonly config: AdaptiveAdmissionConfig;
      readonly acts: "slots" | "requests";
    }
  | { readonly kind: "fixed"; readonly slotsAt: (atMs: number) => number };

/** One poll of the run: the time series of a plot. Counts are of the whole partition. */
export interface Point {
  readonly atMs: number;
  /** True knee and learned knee, running requests per replica; 0 = nothing learned. */
  readonly trueKnee: number;
  readonly knee: number;
  /** 0 = no limit. */
  readonly limit: number;
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  readonly queued: number;
  readonly coverage: number;
  readonly usable: boolean;
  readonly pressed: boolean;
  /** Generated since the last poll. */
  readonly tokens: number;
}

export interface RunResult {
  readonly points: readonly Point[];
  /** Generated from `countFromMs` on. */
  readonly tokens: number;
  /** Time each request spent in an engine's own queue, for starts from `countFromMs` on. */
  readonly queuedMs: readonly number[];
  /** Decisions of the last half of the run, by reason, and how many of them refused. */
  readonly decisions: ReadonlyMap<DecisionReason, number>;
  readonly refused: number;
}

const MEAN_TOKENS = 400;
const RETRY_MS = 1_000;
const PARTITION = partitionName("model");

class Loop {
  readonly #scenario: Scenario;
  readonly #control: Control;
  readonly #chance: Chance;
  /** Of its own, so that polls do not change the requests. */
  readonly #pollChance: Chance;
  readonly #controller: FeedbackController | undefined;
  readonly #engines: KneeEngine[];
  readonly #live: number[];
  readonly #counters: number[];
  readonly #lastRunning: number[];
  readonly #trackers: FeedbackTracker[] = [];
  readonly #points: Point[] = [];
  readonly #queuedMs: number[] = [];
  readonly #decisions = new Map<DecisionReason, number>();
  #delayed: readonly ObservedWorker[] | undefined;
  #now = 0;
  #inFlight = 0;
  #queued = 0;
  #slots: number;
  #refused = 0;
  #nextArrivalMs = Number.POSITIVE_INFINITY;
  #retryAtMs = Number.POSITIVE_INFINITY;
  #tokensBefore: number | undefined;
  #tokensAtPoll = 0;

  constructor(scenario: Scenario, control: Control, seed: number) {
    this.#scenario = scenario;
    this.#control = control;
    this.#chance = new Chance(seed);
    this.#pollChance = new Chance(seed ^ 0x5eed);
    this.#slots = scenario.staticSlots;
    this.#engines = scenario.shapesAt(0).map(
      (shape) =>
        new KneeEngine(shape, (queuedMs) => {
          if (this.#now >= scenario.countFromMs) this.#queuedMs.push(queuedMs);
        }),
    );
    this.#live = this.#engines.map(() => 0);
    this.#counters = this.#engines.map(() => 0);
    this.#lastRunning = this.#engines.map(() => 0);
    if (control.kind === "feedback") {
      const { config, acts } = control;
      this.#controller = new FeedbackController({ config, adaptiveCapacity: acts === "slots" });
    } else this.#slots = control.slotsAt(0);
  }

  run(): RunResult {
    const { lengthMs, pollMs } = this.#scenario;
    let nextPollMs = pollMs;
    this.#planArrival();
    this.#dispatch();
    for (;;) {
      const own = Math.min(nextPollMs, this.#nextArrivalMs, this.#retryAtMs);
      const [replica, engineMs] = this.#nextEngine();
      const at = Math.max(this.#now, Math.min(own, engineMs));
      if (at > lengthMs) break;
      this.#now = at;
      if (engineMs < own) this.#endRequests(replica);
      else if (this.#nextArrivalMs <= at) {
        this.#queued += 1;
        this.#planArrival();
      } else if (this.#retryAtMs <= at) this.#retryAtMs = Number.POSITIVE_INFINITY;
      else {
        nextPollMs += pollMs;
        this.#poll();
      }
      this.#dispatch();
    }
    return {
      points: this.#points,
      tokens: this.#generated() - (this.#tokensBefore ?? 0),
      queuedMs: this.#queuedMs,
      decisions: this.#decisions,
      refused: this.#refused,
    };
  }

  #nextEngine(): readonly [number, number] {
    let replica = 0;
    let soonest = Number.POSITIVE_INFINITY;
    this.#engines.forEach((engine, index) => {
      const atMs = engine.nextMs();
      if (atMs >= soonest) return;
      soonest = atMs;
      replica = index;
    });
    return [replica, soonest];
  }

  #endRequests(replica: number): void {
    const ended = this.#engines[replica]?.step(this.#now) ?? 0;
    this.#inFlight -= ended;
    this.#live[replica] = (this.#live[replica] ?? 0) - ended;
    // Which of the outstanding trackers ends makes no difference to a count.
    for (let count = 0; count < ended; count += 1) this.#trackers.pop()?.resolve();
  }

  #planArrival(): void {
    const { demand } = this.#scenario;
    if (demand.kind !== "arrivals") return;
    const meanGapMs = 1_000 / demand.perSecondAt(this.#now);
    this.#nextArrivalMs = this.#now + this.#chance.exponential(meanGapMs);
  }

  #dispatch(): void {
    const { demand } = this.#scenario;
    if (demand.kind === "backlog") {
      this.#queued = Math.max(0, Math.floor(demand.clientsAt(this.#now)) - this.#inFlight);
    }
    if (this.#retryAtMs < Number.POSITIVE_INFINITY) return;
    while (this.#queued > 0 && this.#inFlight < this.#slots) {
      if (this.#isRefused()) {
        this.#retryAtMs = this.#now + RETRY_MS;
        return;
      }
      const replica = this.#leastLoaded();
      this.#queued -= 1;
      this.#inFlight += 1;
      this.#live[replica] = (this.#live[replica] ?? 0) + 1;
      const tokens = Math.max(1, this.#chance.exponential(MEAN_TOKENS));
      this.#engines[replica]?.accept(tokens, this.#now);
    }
  }

  #isRefused(): boolean {
    const tracker = this.#controller?.begin(PARTITION, PARTITION);
    if (tracker === undefined) return false;
    const { reason, reject } = tracker.decision;
    if (this.#now >= this.#scenario.lengthMs / 2) {
      this.#decisions.set(reason, (this.#decisions.get(reason) ?? 0) + 1);
      if (reject) this.#refused += 1;
    }
    if (reject) tracker.resolve();
    else this.#trackers.push(tracker);
    return reject;
  }

  /** The replica with the smallest part of its ceiling in use. */
  #leastLoaded(): number {
    let least = 0;
    let leastLoad = Number.POSITIVE_INFINITY;
    this.#engines.forEach(({ shape }, index) => {
      const load = (this.#live[index] ?? 0) / shape.ceiling;
      if (load >= leastLoad) return;
      leastLoad = load;
      least = index;
    });
    return least;
  }

  #generated(): number {
    return this.#engines.reduce((sum, { generated }) => sum + generated, 0);
  }

  #poll(): void {
    const shapes = this.#scenario.shapesAt(this.#now);
    this.#engines.forEach((engine, index) => {
      engine.advance(this.#now);
      engine.shape = shapes[index] ?? engine.shape;
    });
    const generated = this.#generated();
    if (this.#now >= this.#scenario.countFromMs) this.#tokensBefore ??= generated;
    const sampled = this.#engines.map((engine, index) => this.#sample(engine, index));
    if (this.#controller === undefined) {
      if (this.#control.kind === "fixed") this.#slots = this.#control.slotsAt(this.#now);
    } else {
      if (this.#delayed !== undefined) {
        const readings = [{ partition: PARTITION, workers: this.#delayed }];
        this.#controller.publish(readings, monotonicMs(this.#now));
      }
      if (this.#control.kind === "feedback" && this.#control.acts === "slots") {
        const { staticSlots } = this.#scenario;
        this.#slots = this.#controller.effectiveCapacity(PARTITION, staticSlots);
      }
    }
    this.#delayed = sampled;
    this.#record(shapes, generated);
  }

  #sample(engine: KneeEngine, index: number): ObservedWorker {
    const { pollMs, lostPolls, noise, blindAt, ceilingsPublished } = this.#scenario;
    const { running, waiting, usage, shape, generated } = engine;
    const perSecond = (generated - (this.#counters[index] ?? 0)) / (pollMs / 1_000);
    const before = this.#lastRunning[index] ?? 0;
    this.#counters[index] = generated;
    this.#lastRunning[index] = running;
    const error = 1 + noise * this.#gaussian();
    const lost = this.#pollChance.once(lostPolls) || blindAt?.(index, this.#now) === true;
    const reading = {
      running,
      waiting,
      waitingUncachedTokens: waiting * 100,
      tokenUsage: usage,
      throughput: Math.max(0, perSecond * error),
      runningWhileMeasured: Math.max(running, before),
      maxRunning: ceilingsPublished ? shape.ceiling : undefined,
    };
    return { url: `http://engine-${String(index)}`, reading: lost ? undefined : reading };
  }

  /** Box and Muller's transform. */
  #gaussian(): number {
    const radius = Math.sqrt(-2 * Math.log(this.#pollChance.unit()));
    return radius * Math.cos(2 * Math.PI * this.#pollChance.unit());
  }

  #record(shapes: readonly EngineShape[], generated: number): void {
    const limits = this.#controller?.limits(PARTITION);
    const view = this.#controller?.explain(monotonicMs(this.#now))[0];
    this.#points.push({
      atMs: this.#now,
      trueKnee: shapes.reduce((sum, { knee }) => sum + knee, 0) / shapes.length,
      knee: view?.learned?.knee ?? 0,
      limit: limits?.runningLimit ?? 0,
      slots: this.#slots,
      running: this.#engines.reduce((sum, { running }) => sum + running, 0),
      waiting: this.#engines.reduce((sum, { waiting }) => sum + waiting, 0),
      queued: this.#queued,
      coverage: limits?.coverage ?? 0,
      usable: limits?.usable ?? false,
      pressed: limits?.pressure !== undefined,
      tokens: generated - this.#tokensAtPoll,
    });
    this.#tokensAtPoll = generated;
  }
}

/** Runs a scenario under a control. */
export function runLoop(scenario: Scenario, control: Control, seed: number): RunResult {
  return new Loop(scenario, control, seed).run();
}

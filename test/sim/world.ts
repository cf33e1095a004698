// A day in the life of a fleet in virtual time: Poisson arrivals of all classes in busy and quiet
// spells, three partitions, five engines that fail, crash and recover, workers that report another
// ceiling, move to another partition or are registered anew, clients that leave, health checks, and
// Weir's own core and sessions in the middle. One seed decides everything. Checkers run after each
// event.

import { createWireCodec } from "../../extproc/edge/envoy/codec.js";
import { EvidenceReader } from "../../extproc/edge/envoy/evidence.js";
import { Session, type SessionDeps } from "../../extproc/edge/envoy/session.js";
import { SlicedWork } from "../../extproc/edge/runtime/sliced-work.js";
import { clusterName, modelId, partitionName } from "../../extproc/core/model/ids.js";
import { PRIORITY_CLASSES } from "../../extproc/core/model/priority.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { Bench } from "../support/desk.js";
import { Chance } from "./chance.js";
import { PROMPTS } from "./cache-book.js";
import { Book } from "./checkers.js";
import { Engine } from "./engine.js";
import { SimRequest, type EnvoyWorld, type Met } from "./envoy.js";
import { EventQueue, type Planned } from "./event-queue.js";
import type { FairStats } from "./fair-book.js";
import {
  fleetConfig,
  FleetState,
  sum,
  TENANTS,
  urlOf,
  type FleetPlan,
  type WorkerState,
} from "./fleet.js";
import { DEFAULT_ESTIMATE_TOKENS } from "./fair-book.js";
import type { PartitionStats } from "./partition-book.js";

const MINUTE_MS = 60_000;
/** Timers of a busy process come late. */
const TIMER_SLACK_MS = 5;
const HEALTH_PERIOD_MS = 5_000;
const MEAN_TOKENS = 80;
const MS_PER_TOKEN = 40;
const SPELL_MS = 5 * MINUTE_MS;
const MEAN_UP_MS = 12 * MINUTE_MS;
/** Between two changes of what a worker is, and until it is as it was. */
const MEAN_STEADY_MS = 4 * MINUTE_MS;
const MEAN_CHANGED_MS = 40_000;
/** Offered load, in parts of what the fleet can serve. */
const QUIET = 0.6;
const BUSY = 1.4;
/** Several times what the longest run needs. */
const EVENTS_MAX = 10_000_000;

/** What clients ask for, in parts of 100; the rest asks for nothing, or for a class there is not. */
const ASKED: readonly (readonly [number, string])[] = [
  [30, "bulk"],
  [20, "default"],
  [25, "interactive"],
  [15, "system"],
  [5, "Urgent"],
];

export interface RunResult {
  readonly seed: number;
  readonly requests: number;
  readonly events: number;
  readonly outcomes: ReadonlyMap<string, number>;
  readonly rejections: ReadonlyMap<string, number>;
  readonly stats: PartitionStats & Met & Partial<FairStats>;
  /** Hash of everything that happened, in order. */
  readonly trace: string;
}

type Settle = (record: SettlementRecord) => void;

export class World {
  readonly #plan: FleetPlan;
  readonly #seed: number;
  readonly #lengthMs: number;
  readonly #events = new EventQueue();
  readonly #chance: Chance;
  readonly #bench: Bench;
  readonly #book: Book;
  readonly #fleet: FleetState;
  readonly #engines = new Map<string, Engine>();
  readonly #met: Met = { crossed: 0, leftUnwinding: 0 };
  readonly #envoy: EnvoyWorld;
  #hash = 0x811c9dc5;
  #requests = 0;
  #turnsAsked = 0;
  #turnPending = false;
  #wake: Planned | undefined;

  /** @param tamper changes what hears of settlements, to see it caught */
  constructor(
    plan: FleetPlan,
    seed: number,
    lengthMs: number,
    tamper: (settle: Settle) => Settle = (settle) => settle,
  ) {
    this.#plan = plan;
    this.#seed = seed;
    this.#lengthMs = lengthMs;
    this.#chance = new Chance(seed);
    this.#bench = new Bench(fleetConfig(plan), seed);
    this.#fleet = new FleetState(plan);
    this.#book = new Book(this.#fleet, TIMER_SLACK_MS, this.#bench);
    const settle = tamper((record) => {
      this.#settled(record);
    });
    this.#bench.settled.push = (...records) => {
      records.forEach(settle);
      return 0;
    };
    const parts = {
      events: this.#events,
      chance: this.#chance,
      now: (): number => this.#bench.now,
    };
    for (const { cluster, port, slots } of plan.workers) {
      const options = { url: urlOf(port), slots, msPerToken: MS_PER_TOKEN };
      this.#engines.set(cluster, new Engine(options, parts));
    }
    const deps = this.#sessionDeps();
    this.#envoy = {
      ...parts,
      book: this.#book,
      met: this.#met,
      open: (exchange) => new Session(deps, exchange),
      engineOf: (cluster) => this.#engine(cluster),
      workerOf: (cluster) => this.#worker(cluster),
      settle: () => {
        this.#finishTurns();
      },
      trace: (what) => {
        this.#trace(what);
      },
    };
  }

  /** Runs to the end of the last request. Throws at the first violation, naming seed and moment. */
  run(): RunResult {
    this.#planArrival();
    for (const worker of this.#fleet.workers) {
      this.#planCrash(worker.rule.cluster);
      this.#planChange(worker);
      this.#planHealthCheck(worker, this.#chance.unit() * HEALTH_PERIOD_MS);
    }
    let events = 0;
    for (let event = this.#events.next(); event !== undefined; event = this.#events.next()) {
      events += 1;
      if (events > EVENTS_MAX) throw new Error(`no end in sight (SIM_SEED=${String(this.#seed)})`);
      this.#bench.now = monotonicMs(event.atMs);
      this.#trace(`${String(event.atMs)} ${event.label}`);
      event.run();
      this.#followUp();
      this.#book.check(this.#turnPending);
      this.#stopAtViolation(event.label);
    }
    this.#book.checkEmpty();
    for (const [cluster, { size }] of this.#engines) {
      if (size > 0) this.#book.violate(`${cluster} still works on ${String(size)} requests`);
    }
    this.#stopAtViolation("the end");
    return {
      seed: this.#seed,
      requests: this.#requests,
      events,
      outcomes: this.#book.outcomes,
      rejections: this.#book.rejections,
      stats: {
        ...this.#book.stats,
        ...this.#met,
        ...this.#book.fairStats,
        ...this.#book.cacheStats,
      },
      trace: (this.#hash >>> 0).toString(16),
    };
  }

  #sessionDeps(): SessionDeps {
    return {
      desk: this.#bench.desk,
      evidence: new EvidenceReader({ identityMetadata: [], peers: [], trustedHops: 0 }),
      codec: createWireCodec("x-weir-cluster", []),
      now: () => this.#bench.now,
      work: new SlicedWork(),
      messageTimeoutMs: 2_000,
      decodeMaxBytes: 1_000_000,
      onFault: (error) => {
        this.#book.violate(`a fault inside of Weir: ${String(error)}`);
      },
      onMissingAttributes: () => undefined,
    };
  }

  /** What Weir asked its owner for: a timer, another turn. */
  #followUp(): void {
    const bench = this.#bench;
    const { deadline } = bench;
    bench.deadline = undefined;
    if (deadline !== undefined) this.#armTimer(deadline);
    if (bench.moreWork > this.#turnsAsked) {
      this.#turnsAsked = bench.moreWork;
      this.#turnPending = true;
      this.#events.plan(bench.now, "turn", () => {
        this.#finishTurns();
      });
    }
  }

  /** One timer, for the earliest deadline; it comes a little late. */
  #armTimer(deadline: number): void {
    if (this.#wake !== undefined && this.#wake.atMs <= deadline) return;
    if (this.#wake !== undefined) this.#wake.cancelled = true;
    const at = Math.max(this.#bench.now, deadline) + this.#chance.unit() * TIMER_SLACK_MS;
    this.#wake = this.#events.plan(at, "deadline", () => {
      this.#wake = undefined;
      this.#bench.desk.expire(this.#bench.now);
    });
  }

  #finishTurns(): void {
    while (this.#turnPending) {
      this.#bench.desk.turn(this.#bench.now);
      this.#turnPending = this.#bench.moreWork > this.#turnsAsked;
      this.#turnsAsked = this.#bench.moreWork;
    }
  }

  #planArrival(): void {
    const { now } = this.#bench;
    const load = Math.floor(now / SPELL_MS) % 2 === 0 ? BUSY : QUIET;
    const slots = sum(this.#plan.workers.map((worker) => worker.slots));
    const meanGapMs = (MEAN_TOKENS * MS_PER_TOKEN) / slots / load;
    const at = now + this.#chance.exponential(meanGapMs);
    if (at > this.#lengthMs) return;
    this.#events.plan(at, "arrival", () => {
      this.#arrive();
      this.#planArrival();
    });
  }

  #arrive(): void {
    const chance = this.#chance;
    this.#requests += 1;
    const { model } = chance.pick(this.#plan.workers);
    const tenant = chance.pick(TENANTS);
    const asked = this.#askedClass();
    const named = this.#namedPartition();
    const headers: [string, string][] = [];
    if (asked !== undefined) headers.push(["x-weir-priority", asked]);
    if (named !== undefined) headers.push(["x-weir-admission-partition", named]);
    const requestModel = this.#plan.fair && chance.once(0.7) ? model : undefined;
    if (requestModel !== undefined) headers.push(["x-weir-request-model", requestModel]);
    const index = PRIORITY_CLASSES.findIndex((name) => name === asked?.trim().toLowerCase());
    const tokens = chance.whole(1, 2 * MEAN_TOKENS - 1);
    const estimated =
      this.#plan.fair && chance.once(0.7)
        ? Math.max(1, Math.round(tokens * chance.pick([0.1, 1, 10])))
        : undefined;
    if (estimated !== undefined) {
      headers.push(["x-weir-output-token-estimate", String(estimated)]);
    }
    new SimRequest(
      {
        id: `r${String(this.#requests)}`,
        model,
        partition: this.#fleet.partitionFor(named, model),
        rank: Math.min(index < 0 ? PRIORITY_CLASSES.indexOf("default") : index, tenant.ceiling),
        tokens,
        prompt: PROMPTS[this.#requests % PROMPTS.length] ?? "",
        tenant: `ip:${tenant.address}`,
        requestModel,
        estimateTokens: estimated ?? DEFAULT_ESTIMATE_TOKENS,
        sse: chance.once(0.5),
        source: `${tenant.address}:${String(chance.whole(1_024, 65_535))}`,
        headers,
        leavesAfterMs: chance.once(0.1) ? chance.exponential(4_000) : undefined,
      },
      this.#envoy,
    ).start();
  }

  #askedClass(): string | undefined {
    let draw = this.#chance.whole(1, 100);
    for (const [parts, name] of ASKED) {
      draw -= parts;
      if (draw <= 0) return this.#chance.once(0.1) ? ` ${name.toUpperCase()} ` : name;
    }
    return undefined;
  }

  #namedPartition(): string | undefined {
    const chance = this.#chance;
    if (chance.once(0.95)) return undefined;
    return chance.once(0.5) ? "nowhere" : chance.pick(this.#plan.partitions).name;
  }

  #planCrash(cluster: string): void {
    const at = this.#bench.now + this.#chance.exponential(MEAN_UP_MS);
    if (at > this.#lengthMs) return;
    this.#events.plan(at, `crash ${cluster}`, () => {
      this.#engine(cluster).crash();
      const downMs = this.#chance.exponential(30_000);
      this.#events.plan(this.#bench.now + downMs, `recover ${cluster}`, () => {
        this.#engine(cluster).recover();
        this.#planCrash(cluster);
      });
    });
  }

  /** Now and then a worker reports another ceiling, is labelled otherwise, or is taken out. */
  #planChange(worker: WorkerState): void {
    const at = this.#bench.now + this.#chance.exponential(MEAN_STEADY_MS);
    if (at > this.#lengthMs) return;
    const { cluster, slots } = worker.rule;
    this.#events.plan(at, `change ${cluster}`, () => {
      const chance = this.#chance;
      const kind = chance.whole(1, 4);
      if (kind === 1) worker.reported = [undefined, 1, 2 * slots, slots - 2][chance.whole(0, 3)];
      else if (kind === 2) worker.label = chance.pick([...this.#partitionNames(), "nowhere"]);
      this.#trace(`${String(kind)} ${String(worker.reported)} ${String(worker.label)}`);
      if (kind <= 2) this.#register(worker);
      else if (kind === 3) this.#remove(worker);
      else {
        // In one step: its old requests run on under the runtime that nobody counts any more.
        this.#remove(worker);
        this.#register(worker);
      }
      this.#events.plan(
        this.#bench.now + chance.exponential(MEAN_CHANGED_MS),
        `restore ${cluster}`,
        () => {
          worker.reported = slots;
          worker.label = undefined;
          this.#register(worker);
          this.#planChange(worker);
        },
      );
    });
  }

  #partitionNames(): string[] {
    return this.#plan.partitions.map(({ name }) => name);
  }

  #remove(worker: WorkerState): void {
    this.#fleet.register(worker, false);
    this.#book.fleetChanged();
    this.#bench.registry.remove(urlOf(worker.rule.port));
  }

  #register(worker: WorkerState): void {
    const { cluster, port, model } = worker.rule;
    if (!worker.present) this.#fleet.register(worker, true);
    this.#book.fleetChanged();
    this.#bench.registry.put({
      id: cluster,
      url: urlOf(port),
      cluster: clusterName(cluster),
      engine: undefined,
      models: [modelId(model)],
      labels: {
        max_running_requests: worker.reported,
        admission_partition: worker.label === undefined ? undefined : partitionName(worker.label),
      },
      load_monitor_interval_secs: 10,
      telemetry_url: urlOf(port),
      api_key: undefined,
      kv_events: undefined,
    });
  }

  #planHealthCheck(worker: WorkerState, delayMs: number): void {
    const at = this.#bench.now + delayMs;
    if (at > this.#lengthMs) return;
    const { cluster, port } = worker.rule;
    this.#events.plan(at, `check ${cluster}`, () => {
      const passed = this.#engine(cluster).up;
      if (worker.present) this.#fleet.checked(worker, passed);
      this.#book.fleetChanged();
      this.#bench.registry.recordHealth(urlOf(port), passed);
      this.#planHealthCheck(worker, HEALTH_PERIOD_MS);
    });
  }

  #settled(record: SettlementRecord): void {
    const { requestId, outcome, charge, queuedMs } = record;
    this.#trace(`${requestId} ${outcome} ${String(charge?.tokens)} ${String(queuedMs)}`);
    this.#book.settle(record);
  }

  #engine(cluster: string): Engine {
    const engine = this.#engines.get(cluster);
    if (engine === undefined) throw new Error(`routed to an unknown cluster: ${cluster}`);
    return engine;
  }

  #worker(cluster: string): WorkerState {
    const worker = this.#fleet.workers.find(({ rule }) => rule.cluster === cluster);
    if (worker === undefined) throw new Error(`routed to an unknown cluster: ${cluster}`);
    return worker;
  }

  #stopAtViolation(label: string): void {
    const [first] = this.#book.violations;
    if (first === undefined) return;
    const moment = `${(this.#bench.now / 1_000).toFixed(3)} s, at "${label}"`;
    throw new Error(`${first} (after ${moment}; replay with SIM_SEED=${String(this.#seed)})`);
  }

  /** FNV-1a over every happening. */
  #trace(what: string): void {
    for (let index = 0; index < what.length; index += 1) {
      this.#hash = Math.imul(this.#hash ^ what.charCodeAt(index), 0x01000193);
    }
  }
}

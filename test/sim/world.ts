// A day in the life of a fleet in virtual time: Poisson arrivals in busy and quiet spells, three
// partitions, five engines that fail, crash and recover, clients that leave, health checks, and Weir's
// own core and sessions in the middle. One seed decides everything. Checkers run after each event.

import { createWireCodec } from "../../extproc/edge/envoy/codec.js";
import { EvidenceReader } from "../../extproc/edge/envoy/evidence.js";
import { Session, type SessionDeps } from "../../extproc/edge/envoy/session.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { Bench } from "../support/desk.js";
import { Chance } from "./chance.js";
import { Book, type PartitionRule } from "./checkers.js";
import { Engine } from "./engine.js";
import { SimRequest, type EnvoyWorld } from "./envoy.js";
import { EventQueue } from "./event-queue.js";

const MINUTE_MS = 60_000;
const QUEUE_TIMEOUT_SECS = 10;
/** Timers of a busy process come late. */
const TIMER_SLACK_MS = 5;
const HEALTH_PERIOD_MS = 5_000;
const HEALTH_FAILURES = 2;
const MEAN_TOKENS = 80;
const MS_PER_TOKEN = 40;
const SPELL_MS = 5 * MINUTE_MS;
const MEAN_UP_MS = 12 * MINUTE_MS;
/** Offered load, in parts of what the fleet can serve. */
const QUIET = 0.6;
const BUSY = 1.3;

const PARTITIONS: readonly PartitionRule[] = [
  { name: "alpha", weight: 12, queueSize: 12 },
  { name: "beta", weight: 6, queueSize: 4 },
  { name: "default", weight: 8, queueSize: 30 },
];

/** The model `gamma` has no partition of its own. */
const WORKERS = [
  { cluster: "a1", port: 1, model: "alpha", slots: 6 },
  { cluster: "a2", port: 2, model: "alpha", slots: 6 },
  { cluster: "b1", port: 3, model: "beta", slots: 6 },
  { cluster: "d1", port: 4, model: "gamma", slots: 4 },
  { cluster: "d2", port: 5, model: "gamma", slots: 4 },
] as const;
const FLEET_SLOTS = 26;
/** Several times what the longest run needs. */
const EVENTS_MAX = 5_000_000;

const urlOf = (port: number): string => `http://127.0.0.1:${String(port)}`;

export interface RunResult {
  readonly seed: number;
  readonly requests: number;
  readonly events: number;
  readonly outcomes: ReadonlyMap<string, number>;
  /** Hash of everything that happened, in order. */
  readonly trace: string;
}

type Settle = (record: SettlementRecord) => void;

export class World {
  readonly #seed: number;
  readonly #lengthMs: number;
  readonly #events = new EventQueue();
  readonly #chance: Chance;
  readonly #bench: Bench;
  readonly #book: Book;
  readonly #engines = new Map<string, Engine>();
  readonly #failedChecks = new Map<string, number>();
  readonly #envoy: EnvoyWorld;
  #hash = 0x811c9dc5;
  #requests = 0;
  #turnsAsked = 0;
  #turnPending = false;
  #wakeAt = Number.POSITIVE_INFINITY;

  /** @param tamper changes what hears of settlements, to see it caught */
  constructor(
    seed: number,
    lengthMs: number,
    tamper: (settle: Settle) => Settle = (settle) => settle,
  ) {
    this.#seed = seed;
    this.#lengthMs = lengthMs;
    this.#chance = new Chance(seed);
    this.#bench = createBench(seed);
    const now = (): number => this.#bench.now;
    this.#book = new Book(
      {
        partitions: PARTITIONS,
        queueTimeoutMs: QUEUE_TIMEOUT_SECS * 1_000,
        timerSlackMs: TIMER_SLACK_MS,
      },
      this.#bench,
    );
    const settle = tamper((record) => {
      this.#settled(record);
    });
    this.#bench.settled.push = (...records) => {
      records.forEach(settle);
      return 0;
    };
    const parts = { events: this.#events, chance: this.#chance, now };
    for (const { cluster, port, slots } of WORKERS) {
      const options = { url: urlOf(port), slots, msPerToken: MS_PER_TOKEN };
      this.#engines.set(cluster, new Engine(options, parts));
      this.#failedChecks.set(cluster, 0);
    }
    const deps = this.#sessionDeps();
    this.#envoy = {
      ...parts,
      book: this.#book,
      open: (exchange) => new Session(deps, exchange),
      engineOf: (cluster) => this.#engine(cluster),
      trace: (what) => {
        this.#trace(what);
      },
    };
  }

  /** Runs to the end of the last request. Throws at the first violation, naming seed and moment. */
  run(): RunResult {
    this.#book.fleetIs(FLEET_SLOTS);
    this.#planArrival();
    for (const { cluster, port } of WORKERS) {
      this.#planCrash(cluster);
      this.#planHealthCheck(cluster, port, this.#chance.unit() * HEALTH_PERIOD_MS);
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
    this.#stopAtViolation("the end");
    return {
      seed: this.#seed,
      requests: this.#requests,
      events,
      outcomes: this.#book.outcomes,
      trace: (this.#hash >>> 0).toString(16),
    };
  }

  #sessionDeps(): SessionDeps {
    return {
      desk: this.#bench.desk,
      evidence: new EvidenceReader({ identityMetadata: [], peers: [] }),
      codec: createWireCodec("x-weir-cluster", []),
      now: () => this.#bench.now,
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
    if (deadline !== undefined && deadline < this.#wakeAt) {
      this.#wakeAt = deadline;
      const lateMs = this.#chance.unit() * TIMER_SLACK_MS;
      this.#events.plan(Math.max(bench.now, deadline) + lateMs, "deadline", () => {
        this.#wakeAt = Number.POSITIVE_INFINITY;
        bench.desk.expire(bench.now);
      });
    }
    if (bench.moreWork > this.#turnsAsked) {
      this.#turnsAsked = bench.moreWork;
      this.#turnPending = true;
      this.#events.plan(bench.now, "turn", () => {
        this.#turnPending = false;
        bench.desk.turn(bench.now);
      });
    }
  }

  #planArrival(): void {
    const { now } = this.#bench;
    const load = Math.floor(now / SPELL_MS) % 2 === 0 ? BUSY : QUIET;
    const meanGapMs = (MEAN_TOKENS * MS_PER_TOKEN) / FLEET_SLOTS / load;
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
    const { model } = chance.pick(WORKERS);
    const tokens = chance.whole(1, 2 * MEAN_TOKENS - 1);
    new SimRequest(
      {
        id: `r${String(this.#requests)}`,
        model,
        partition: model === "gamma" ? "default" : model,
        sse: chance.once(0.5),
        tokens,
        leavesAfterMs: chance.once(0.1) ? chance.exponential(4_000) : undefined,
      },
      this.#envoy,
    ).start();
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

  #planHealthCheck(cluster: string, port: number, delayMs: number): void {
    const at = this.#bench.now + delayMs;
    if (at > this.#lengthMs) return;
    this.#events.plan(at, `check ${cluster}`, () => {
      const passed = this.#engine(cluster).up;
      this.#failedChecks.set(cluster, passed ? 0 : (this.#failedChecks.get(cluster) ?? 0) + 1);
      this.#countFleet();
      this.#bench.registry.recordHealth(urlOf(port), passed);
      this.#planHealthCheck(cluster, port, HEALTH_PERIOD_MS);
    });
  }

  /** The slots of the engines that checks have not found down; without any, the operator's limit. */
  #countFleet(): void {
    let slots = 0;
    for (const worker of WORKERS) {
      if ((this.#failedChecks.get(worker.cluster) ?? 0) < HEALTH_FAILURES) slots += worker.slots;
    }
    this.#book.fleetIs(slots === 0 ? FLEET_SLOTS : slots);
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

function createBench(seed: number): Bench {
  return new Bench(
    {
      workers: WORKERS.map(({ cluster, port, model, slots }) => ({
        url: urlOf(port),
        cluster,
        models: [model],
        labels: { max_running_requests: slots },
      })),
      models: {},
      scheduler: {
        max_concurrent_requests: FLEET_SLOTS,
        queue_size: 100,
        queue_timeout_secs: QUEUE_TIMEOUT_SECS,
        admission_partitions: Object.fromEntries(
          PARTITIONS.map(({ name, weight, queueSize }) => [
            name,
            { max_concurrent_requests: weight, queue_size: queueSize },
          ]),
        ),
      },
    },
    seed,
  );
}

// The incident that seeding ends, replayed: eight engines of which one holds a prompt that everybody asks
// about. It runs what it can, a hundred more wait in its queue, its seven peers idle, and the feedback of
// the engines refuses whoever comes. The same load can be run with and without seeding; every other
// setting is the same. How full the engines are is read from the engines every 50 ms, and when a request
// was at one is told by that engine's own HTTP server, so that Weir is judged from outside.

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { ConfigSketch } from "./config.js";
import { CREDIT_TRUST } from "./credit-desk.js";
import { CREDITS_ON, SERVICE_KEY, SERVICE_KEY_VARIABLE } from "./credit-server.js";
import { startFleet, untilPartition, type Fleet } from "./feedback-fleet.js";
import {
  Burst,
  GENERATION,
  MODEL,
  PROMPT_BLOCKS,
  questionBody,
  SteadyClients,
  variedTokens,
} from "./incident-load.js";

export const WORKERS = 8;
/** Requests that each engine runs at once, and says so. */
export const CEILING = 38;
/** What waits in the hot engine when the burst is in. */
export const WAITING = 102;
/** Clients that come again and again afterwards: two engines' worth. */
export const CLIENTS = 100;
/** Time without a new owner after a seed. */
const COOLDOWN_SECS = 2;
/** Requests that may wait per engine before the feedback refuses; as shipped. */
const WAITING_PER_WORKER = 2;
const BLOCK_CHARS = 256;
const MS_PER_TOKEN = 40;
const PREFILL_MS_PER_BLOCK = 40;
/** An answer of the burst takes two seconds, so that the queue lasts for a while. */
const BURST_TOKENS = 75;
const CLIENT_TOKENS = 50;
const LOOK_EVERY_MS = 50;
/** Where every HTTP server of this process tells of the requests that it receives. */
const ARRIVALS = "http.server.request.start";
/** More than any balance of load can reach: only seeding makes new owners here. */
const NEVER = 1_000_000;

export interface Load {
  readonly running: number;
  readonly waiting: number;
}

/** What the engines said at one moment, and what Weir had settled by then. */
export interface Sample {
  /** Since the burst was sent. */
  readonly atMs: number;
  /** In the order of the workers. */
  readonly loads: readonly Load[];
  readonly answered: number;
  readonly refused: number;
}

/** A request at an engine, by the engine's server. Times since the burst was sent. */
export interface Visit {
  readonly worker: number;
  readonly requestId: string;
  readonly fromMs: number;
  /** Undefined = it was still there at the end. */
  readonly untilMs: number | undefined;
}

export interface IncidentRun {
  readonly seeding: boolean;
  /** Of the workers, in their order. */
  readonly urls: readonly string[];
  /** The worker that held the prompt before. */
  readonly hot: number;
  readonly samples: readonly Sample[];
  readonly visits: readonly Visit[];
  /** Of all requests from the burst on. */
  readonly records: readonly SettlementRecord[];
  readonly burstStatuses: readonly number[];
  /** Requests that each engine served from the burst on. */
  readonly served: readonly number[];
}

export const REFUSED = "adaptive_admission_saturated";

function configOf(seeding: boolean): ConfigSketch {
  return {
    models: { [MODEL]: { policy: "cache_aware" } },
    // Owners hold their prompts whatever they bear.
    selection: {
      block_chars: BLOCK_CHARS,
      balance_abs_threshold: NEVER,
      balance_reserved_threshold: NEVER,
      max_cached_owners_per_prefix: WORKERS,
      cache_owner_spill_cooldown_secs: COOLDOWN_SECS,
    },
    trust: { ...CREDIT_TRUST, peers: ["127.0.0.1"] },
    credits: { ...CREDITS_ON, generation: GENERATION, required: true },
    ...(seeding ? { seeding: { partitions: [MODEL], seed_cap: 1 } } : {}),
  };
}

function startIncident(seeding: boolean): Promise<Fleet> {
  process.env[SERVICE_KEY_VARIABLE] = SERVICE_KEY;
  return startFleet({
    engines: Array.from({ length: WORKERS }, () => ({
      engine: "sglang",
      mock: {
        slots: CEILING,
        msPerToken: MS_PER_TOKEN,
        prefillMsPerBlock: PREFILL_MS_PER_BLOCK,
        blockChars: BLOCK_CHARS,
      },
    })),
    slots: { [MODEL]: WORKERS * CEILING },
    adaptive: {
      mode: "enforce",
      feedback_max_waiting_requests_per_healthy_replica: WAITING_PER_WORKER,
    },
    adaptiveCapacity: false,
    config: configOf(seeding),
  });
}

/** Does something that the polls do not see: the engines report meanwhile what they did before. */
async function unseen<Result>({ workers }: Fleet, act: () => Promise<Result>): Promise<Result> {
  for (const worker of workers) worker.setFaults({ stale_metrics: true });
  const result = await act();
  for (const worker of workers) worker.setFaults({});
  return result;
}

/** Has one worker compute the shared document; its place in the list. */
async function warm(fleet: Fleet): Promise<number> {
  const { stack, workers } = fleet;
  const first = new Burst(stack);
  await first.take();
  // A poll that sees one busy request would learn a limit from it.
  const [status] = await unseen(fleet, () =>
    first.send(() => questionBody("first", 1, BLOCK_CHARS)),
  );
  const hot = workers.findIndex((worker) => worker.state().cache.blocks >= PROMPT_BLOCKS);
  if (status !== 200 || hot < 0) throw new Error(`no worker was warmed: ${String(status)}`);
  await stack.settlements(1);
  return hot;
}

/** Looks at the engines until it is told to end. */
class Watch {
  readonly samples: Sample[] = [];
  readonly visits: Visit[] = [];
  readonly #fleet: Fleet;
  readonly #places: ReadonlyMap<number, number>;
  readonly #startedAt = performance.now();
  readonly #timer: NodeJS.Timeout;
  #looked = 0;
  #answered = 0;
  #refused = 0;

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    this.#places = new Map(fleet.workers.map(({ port }, worker) => [port, worker]));
    subscribe(ARRIVALS, this.#arrive);
    this.#look();
    this.#timer = setInterval(() => {
      this.#look();
    }, LOOK_EVERY_MS);
  }

  get lengthMs(): number {
    return performance.now() - this.#startedAt;
  }

  /** No further samples; visits go on until `close`. */
  end(): void {
    clearInterval(this.#timer);
    this.#look();
  }

  close(): void {
    unsubscribe(ARRIVALS, this.#arrive);
  }

  #look(): void {
    const { stack, workers } = this.#fleet;
    const settled = stack.settled.slice(this.#looked);
    this.#looked += settled.length;
    for (const { rejection, status } of settled) {
      if (rejection === REFUSED) this.#refused += 1;
      else if (status === 200) this.#answered += 1;
    }
    const loads = workers.map((worker) => {
      const { running, waiting } = worker.state();
      return { running, waiting };
    });
    const [answered, refused] = [this.#answered, this.#refused];
    this.samples.push({ atMs: this.lengthMs, loads, answered, refused });
  }

  /** The engines' own logs are too short: a busy engine drops a request from it that is still there. */
  readonly #arrive = (message: unknown): void => {
    const { request, response } = message as Arrival;
    const worker = this.#places.get(request.socket.localPort ?? 0);
    const requestId = request.headers["x-request-id"];
    // Polls do not come through Envoy, which names every request.
    if (worker === undefined || typeof requestId !== "string") return;
    const visit: Writable<Visit> = {
      worker,
      requestId,
      fromMs: this.lengthMs,
      untilMs: undefined,
    };
    this.visits.push(visit);
    const leave = (): void => {
      visit.untilMs ??= this.lengthMs;
    };
    response.once("finish", leave).once("close", leave);
  };
}

type Writable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

interface Arrival {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** Fills the hot worker: what it runs and what waits there is sent at once, before a poll sees any of it. */
async function fill(
  fleet: Fleet,
  hot: number,
): Promise<{ watch: Watch; burst: Promise<readonly number[]> }> {
  const { stack, workers } = fleet;
  const burst = new Burst(stack);
  for (let taken = 0; taken < CEILING + WAITING; taken += 1) await burst.take();
  stack.clear();
  return unseen(fleet, async () => {
    const watch = new Watch(fleet);
    const sent = burst.send((index) =>
      questionBody(`burst ${String(index)}`, variedTokens(BURST_TOKENS, index), BLOCK_CHARS),
    );
    await stack.until("the burst is in", () => {
      const { running, waiting } = workers[hot]?.state() ?? { running: 0, waiting: 0 };
      return running === CEILING && waiting === WAITING;
    });
    return { watch, burst: sent };
  });
}

/**
 * Replays the incident once, for so long from the burst on. Everything is stopped again when it resolves
 * or rejects.
 */
export async function replayIncident(seeding: boolean, lengthMs: number): Promise<IncidentRun> {
  const fleet = await startIncident(seeding);
  try {
    await untilPartition(fleet.stack, "every ceiling is known", ({ limits }) => {
      return limits["engine"] === WORKERS * CEILING;
    });
    const hot = await warm(fleet);
    const before = fleet.workers.map((worker) => worker.state().served);
    const { watch, burst } = await fill(fleet, hot);
    await untilPartition(fleet.stack, "the queue is seen", ({ limits }) => {
      return limits["pressure"] === "engine_waiting";
    });
    const clients = new SteadyClients(fleet.stack, {
      count: CLIENTS,
      tokens: CLIENT_TOKENS,
      blockChars: BLOCK_CHARS,
    });
    await new Promise((done) => setTimeout(done, lengthMs - watch.lengthMs));
    watch.end();
    await clients.leave();
    const burstStatuses = await burst;
    await fleet.stack.idle();
    watch.close();
    const served = fleet.workers.map((worker, index) => {
      return worker.state().served - (before[index] ?? 0);
    });
    const { samples, visits } = watch;
    const records = [...fleet.stack.settled];
    const urls = fleet.workers.map(({ url }) => url);
    return { seeding, urls, hot, samples, visits, records, burstStatuses, served };
  } finally {
    await fleet.stop();
  }
}

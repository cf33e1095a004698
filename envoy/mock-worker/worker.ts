// What do all paths of one mock worker share? Its options, clock, cache, engine, faults and log of
// requests, in one record that the server makes and the path handlers use; and the state report that
// tests read.
import { ManualClock, RealClock } from "./clock.js";
import { Engine } from "./engine.js";
import type { Faults } from "./faults.js";
import { KvCache } from "./kv-cache.js";
import type { KvPublisher, KvPublisherState } from "./kv-publisher.js";
import type { MockWorkerOptions } from "./options.js";
import { RequestLog, type SeenRequest } from "./request-log.js";
import { readTelemetry, type TelemetryReading } from "./telemetry.js";

/** What GET /mock/state says, spelled as on the wire. */
export interface MockState {
  readonly running: number;
  readonly waiting: number;
  readonly peak_running: number;
  /** Requests the engine ran to their end. */
  readonly served: number;
  /** Requests whose client went away before that. */
  readonly cancelled: number;
  /** Requests refused or ended by a fault. */
  readonly faulted: number;
  /** In blocks. `blocks` are remembered now. */
  readonly cache: {
    readonly hits: number;
    readonly queries: number;
    readonly blocks: number;
    readonly evictions: number;
  };
  readonly tokens: { readonly prompt: number; readonly completion: number };
  /** The last 50, oldest first; polls of health and telemetry are left out. */
  readonly last_requests: readonly SeenRequest[];
  /** Where KV events are published, and how many batches there were; absent = nowhere. */
  readonly kv_events?: KvPublisherState;
}

export interface Worker {
  readonly options: MockWorkerOptions;
  readonly clock: RealClock | ManualClock;
  readonly cache: KvCache;
  readonly engine: Engine;
  readonly log: RequestLog;
  readonly publisher: KvPublisher | undefined;
  faults: Faults;
  /** What telemetry keeps saying while `stale_metrics` is on. */
  frozen: TelemetryReading | undefined;
  requestNumber: number;
}

export function createWorker(
  options: MockWorkerOptions,
  publisher: KvPublisher | undefined,
): Worker {
  const clock = options.clock === "manual" ? new ManualClock() : new RealClock();
  const cache = new KvCache({
    capacityBlocks: options.kvBlocks,
    blockChars: options.blockChars,
    observer: publisher,
  });
  const engine = new Engine({
    slots: options.slots,
    msPerToken: options.msPerToken,
    prefillMsPerBlock: options.prefillMsPerBlock,
    clock,
    cache,
  });
  const log = new RequestLog(clock);
  return {
    options,
    clock,
    cache,
    engine,
    log,
    publisher,
    faults: {},
    frozen: undefined,
    requestNumber: 0,
  };
}

export function stateOf(worker: Worker): MockState {
  const { engine, cache } = worker;
  const counters = engine.counters;
  return {
    running: engine.running,
    waiting: engine.waiting,
    peak_running: counters.peakRunning,
    served: counters.served,
    cancelled: counters.cancelled,
    faulted: counters.faulted,
    cache: {
      hits: cache.hitBlocks,
      queries: cache.queriedBlocks,
      blocks: cache.cachedBlocks,
      evictions: cache.evictions,
    },
    tokens: { prompt: counters.promptTokens, completion: counters.completionTokens },
    last_requests: worker.log.list(),
    ...(worker.publisher === undefined ? {} : { kv_events: worker.publisher.state() }),
  };
}

/**
 * Puts faults in force for all following requests, in place of the earlier ones. Faults of KV events act
 * once, now; false when there are some and the worker publishes none, and then nothing is changed.
 */
export function setFaults(worker: Worker, faults: Faults): boolean {
  const { publisher } = worker;
  const { kv_drop: drop, kv_restart: restart } = faults;
  if (publisher === undefined && (drop !== undefined || restart === true)) return false;
  if (restart === true) publisher?.restart();
  publisher?.dropNext(drop ?? 0);
  worker.faults = faults;
  if (faults.stale_metrics !== true) worker.frozen = undefined;
  else worker.frozen ??= telemetryNow(worker);
  return true;
}

/** The reading telemetry answers with: the present one, or the frozen one. */
export function telemetryOf(worker: Worker): TelemetryReading {
  return worker.frozen ?? telemetryNow(worker);
}

function telemetryNow(worker: Worker): TelemetryReading {
  return readTelemetry({ ...worker, model: worker.options.models[0] ?? "" });
}

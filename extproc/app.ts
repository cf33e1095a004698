// The composition root: builds the core and its edges from a frozen configuration, connects them,
// starts them and stops them. The command line and the tests use it alike. Nothing is decided here.

import type { ListenAddress, WeirConfig } from "./core/model/config.js";
import { after } from "./core/model/time.js";
import { assembleCore, type Core } from "./core/request/assembly.js";
import type { RequestObserver } from "./core/request/desk-context.js";
import type { RequestDesk } from "./core/request/request-desk.js";
import type { SettlementRecord } from "./core/request/settlement-record.js";
import type { WorkerRegistry } from "./core/workers/registry.js";
import type { AdminServer } from "./edge/admin/admin-server.js";
import { createAdmin } from "./edge/admin/create-admin.js";
import { HealthProber } from "./edge/engines/health-prober.js";
import type { KvFeeds } from "./edge/engines/kv-feeds.js";
import { createKvFollowing } from "./edge/engines/kv-following.js";
import type { LoadPoller } from "./edge/engines/load-poller.js";
import { createTelemetryPolling } from "./edge/engines/telemetry-polling.js";
import type { CreateCodec } from "./edge/envoy/codec.js";
import { createTransport, type CreateTransport } from "./edge/envoy/create-transport.js";
import type { Transport } from "./edge/envoy/transport/transport.js";
import { ChangeWait } from "./edge/runtime/change-wait.js";
import { DeadlineTimer, now } from "./edge/runtime/clock.js";
import type { DeferredQueue } from "./edge/runtime/deferred-queue.js";
import { createPrefixCipher, PREFIX_KEY_BYTES } from "./edge/runtime/prefix-cipher.js";
import { secureRandom } from "./edge/runtime/secure-random.js";
import { Sweeper } from "./edge/runtime/sweeper.js";
import { modelLabels, tenantLabels } from "./edge/telemetry/label-cap.js";
import { RateLimitedLog, type Log } from "./edge/telemetry/log.js";
import { Metrics } from "./edge/telemetry/metrics.js";
import { createMetricsRegistry, metricsPage } from "./edge/telemetry/metrics-registry.js";
import { observeCore } from "./edge/telemetry/observe-core.js";
import { settlementRecords } from "./edge/telemetry/settlement-records.js";

/** Repeated complaints appear in the log at most this often. */
const COMPLAINT_PERIOD_MS = 10_000;
/** When the desk is looked at again after a fault on the way. */
const RETRY_AFTER_FAULT_MS = 100;
/** Time for the last frames of the transport when it closes. */
const CLOSE_GRACE_MS = 1_000;

export interface AppOptions {
  readonly config: WeirConfig;
  readonly log: Log;
  /** Where the line of each request goes; the default is `log`. */
  readonly settlementLog?: Log;
  /** Seed of the choice between workers; any number. */
  readonly seed: number;
  readonly startTimeSeconds: number;
  /** Export the runtime's own metrics too. */
  readonly processMetrics?: boolean;
  /** Another way to serve ext_proc; the default is the one the configuration names. */
  readonly transport?: CreateTransport;
  /** Another codec, for comparison; the default is Weir's own. */
  readonly createCodec?: CreateCodec;
  /** Hears every settlement, for tests. */
  readonly onSettled?: (record: SettlementRecord) => void;
}

export interface AppAddresses {
  readonly extProc: ListenAddress;
  readonly admin: ListenAddress;
}

/** How a drain ended. */
export interface DrainResult {
  /** Requests that waited and were refused: by their own timeout, or at the end of the queue's time. */
  readonly refused: number;
  /** Running requests that were no longer observed at the end; they go on in Envoy. */
  readonly unobserved: number;
}

export class App {
  readonly desk: RequestDesk;
  readonly workers: WorkerRegistry;
  readonly #options: AppOptions;
  readonly #metrics: Metrics;
  /** Ended requests that are not counted and logged yet. */
  readonly #records: DeferredQueue<SettlementRecord>;
  readonly #transport: Transport;
  readonly #admin: AdminServer;
  readonly #prober: HealthProber;
  /** Undefined while nothing is asked of the engines. */
  readonly #poller: LoadPoller | undefined;
  readonly #kvFeeds: KvFeeds;
  readonly #sweeper: Sweeper;
  readonly #deadlines: DeadlineTimer;
  readonly #complaints = new RateLimitedLog(COMPLAINT_PERIOD_MS, now);
  readonly #settlements = new ChangeWait();
  #refusedInDrain = 0;
  #listening = false;
  #checked = false;

  /** Counts and logs a fault; a field, because the edges get it as it stands. */
  readonly #fault = (error: unknown): void => {
    this.#metrics.fault();
    this.#complaints.once("fault", (swallowed) => {
      this.#options.log.error({ err: error, swallowed }, "a message could not be handled");
    });
  };

  constructor(options: AppOptions) {
    const { config, log, settlementLog = log } = options;
    this.#options = options;
    this.#metrics = new Metrics({
      registry: createMetricsRegistry(options.processMetrics ?? false),
      models: modelLabels(config),
      tenants: tenantLabels(config),
      feedbackMode: config.adaptive_admission.mode,
      startTimeSeconds: options.startTimeSeconds,
    });
    this.#records = settlementRecords(this.#metrics, settlementLog, this.#fault);
    this.#deadlines = new DeadlineTimer(() => {
      this.#guard(() => {
        this.desk.expire(now());
      });
    });
    const core = assembleCore({
      config,
      seed: options.seed,
      now,
      observer: this.#observer(),
      prefixCipher: createPrefixCipher(secureRandom(PREFIX_KEY_BYTES)),
      credits: { secureRandom, onOperation: this.#metrics.credits.operation },
      onWorkersChanged: () => {
        this.#poller?.sync();
        if (this.#listening) this.#kvFeeds.sync();
      },
      onDeadline: (at) => {
        this.#deadlines.arm(at);
      },
      onMoreWork: () => {
        setImmediate(() => {
          this.#guard(() => {
            this.desk.turn(now());
          });
        });
      },
    });
    this.desk = core.desk;
    this.workers = core.workers;
    observeCore(this.#metrics, core, config, now);
    this.#poller = this.#createPolling(core);
    this.#kvFeeds = this.#createFollowing(core);
    this.#sweeper = new Sweeper(core.selector.sweepPeriodMs, () => core.selector.sweep(now()));
    this.#prober = new HealthProber({
      health: config.health,
      urls: config.workers.map((worker) => worker.url),
      onResult: (url, passed) => {
        this.workers.recordHealth(url, passed);
      },
      onAllChecked: () => {
        this.#checked = true;
        this.#publishReadiness();
      },
    });
    this.#transport = createTransport({
      ...{ config, log, now },
      desk: this.desk,
      complaints: this.#complaints,
      onFault: this.#fault,
      createTransport: options.transport,
      createCodec: options.createCodec,
    });
    this.#admin = this.#createAdmin(core);
  }

  /** The metrics, with every request that has ended. */
  get metrics(): Metrics {
    this.#records.drain();
    return this.#metrics;
  }

  /** True while new requests can be served. */
  get ready(): boolean {
    return this.#listening && this.#checked && !this.desk.draining;
  }

  async start(): Promise<AppAddresses> {
    const { listen, admin } = this.#options.config;
    const adminAddress = await this.#admin.listen(admin.listen);
    const extProc = await this.#transport.listen(listen.ext_proc);
    this.#listening = true;
    this.#publishReadiness();
    this.#prober.start();
    this.#poller?.sync();
    this.#kvFeeds.sync();
    this.#sweeper.start();
    return { extProc, admin: adminAddress };
  }

  /**
   * Takes no new request, serves the queue for `drain_timeout_secs`, then refuses the rest, and
   * watches running answers until `shutdown_grace_period_secs` after the call or until `cut` fires.
   */
  async drain(cut: AbortSignal): Promise<DrainResult> {
    const { drain_timeout_secs, shutdown_grace_period_secs } = this.#options.config.limits;
    this.desk.drain();
    this.#publishReadiness();
    const startedAt = now();
    // As long as a request lives, its body may still be on the way and need a place in the queue.
    await this.#settlements.until(
      () => this.desk.counts.live === 0,
      drain_timeout_secs * 1_000,
      cut,
    );
    this.desk.refuseQueued(now());
    const leftMs = Math.max(0, shutdown_grace_period_secs * 1_000 - (now() - startedAt));
    await this.#settlements.until(() => this.desk.counts.live === 0, leftMs, cut);
    return { refused: this.#refusedInDrain, unobserved: this.desk.counts.live };
  }

  /** Closes everything. Running answers go on in Envoy without Weir. */
  async stop(): Promise<void> {
    this.#prober.stop();
    this.#deadlines.stop();
    this.#sweeper.stop();
    await Promise.all([this.#poller?.stop(), this.#kvFeeds.stop()]);
    await Promise.all([this.#transport.close(CLOSE_GRACE_MS), this.#admin.close()]);
    this.#records.drain();
  }

  #observer(): RequestObserver {
    return {
      received: () => {
        this.#metrics.received();
      },
      decided: (decision) => {
        this.#metrics.feedback.decided(decision);
      },
      rateChecked: (allowed) => {
        this.#metrics.rateChecked(allowed);
      },
      admitted: () => {
        this.#metrics.admitted();
      },
      settled: (record) => {
        this.#records.push(record);
        if (record.rejection === "draining" && record.waited) this.#refusedInDrain += 1;
        this.#options.onSettled?.(record);
        this.#settlements.changed();
      },
    };
  }

  #createPolling({ telemetry, planner }: Core): LoadPoller | undefined {
    const { config, log, seed } = this.#options;
    if (telemetry === undefined) return undefined;
    return createTelemetryPolling({
      configured: config.workers,
      workers: () => this.workers.all(),
      groupOf: (worker) => planner.partitionOf(worker) ?? "",
      store: telemetry,
      metrics: this.#metrics.feedback,
      log,
      complaints: this.#complaints,
      onFault: this.#fault,
      seed,
      now,
    });
  }

  #createFollowing({ selector }: Core): KvFeeds {
    const { config, log } = this.#options;
    return createKvFollowing({
      models: config.models,
      workers: () => this.workers.all(),
      sink: selector.events,
      metrics: this.#metrics.selection,
      log,
      complaints: this.#complaints,
    });
  }

  #createAdmin(core: Core): AdminServer {
    const { config, log } = this.#options;
    return createAdmin(
      { config, core, ready: () => this.ready, now },
      {
        metrics: () => metricsPage(this.metrics.registry),
        onOperation: this.#metrics.credits.operation,
        onFault: this.#fault,
        log,
        complaints: this.#complaints,
      },
    );
  }

  /** Runs what no stream asked for. A fault in it must not end the process, nor what is due next. */
  #guard(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#fault(error);
      this.#deadlines.arm(after(now(), RETRY_AFTER_FAULT_MS));
    }
  }

  #publishReadiness(): void {
    this.#transport.setReady(this.ready);
  }
}

// How workers are chosen and what is known of their caches: results as the core counts them, owners and
// stale holdings from each request's record, KV events as they are followed, and the size of both
// indexes. Gauges and counted results are read when they are scraped.

import { Counter, Histogram, type Registry } from "prom-client";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import { REPLICATION_RESULTS, type SelectionResult } from "../../core/selection/decision.js";
import type { WorkerSelector } from "../../core/selection/selector.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";
import { gauge } from "./gauges.js";
import type { LabelCap } from "./label-cap.js";

const REPLICATION: ReadonlySet<SelectionResult> = new Set(REPLICATION_RESULTS);

const OWNER_BUCKETS = [0, 1, 2, 3, 4, 6, 8, 12, 16, 32];

export interface SelectionSources {
  readonly selector: WorkerSelector;
  readonly workers: WorkerRegistry;
}

export class SelectionMetrics {
  readonly #registry: Registry;
  readonly #models: LabelCap;
  readonly #engine: Counter<"result">;
  readonly #replication: Counter<"model" | "result">;
  readonly #owners: Histogram<"model">;
  readonly #stale: Counter<"worker">;
  readonly #recoveries: Counter<"worker">;
  readonly #failures: Counter<"worker" | "reason">;
  readonly #events: Counter<"worker">;

  constructor(registry: Registry, models: LabelCap) {
    this.#registry = registry;
    this.#models = models;
    const registers = [registry];
    const counter = <Label extends string>(
      name: string,
      help: string,
      ...labelNames: Label[]
    ): Counter<Label> => new Counter({ name: `weir_${name}`, help, labelNames, registers });
    this.#engine = counter(
      "cache_aware_engine_decisions_total",
      "What the load that engines report had to do with a choice.",
      "result",
    );
    this.#replication = counter(
      "cache_aware_replication_decisions_total",
      "Choices that went by the owners of a prefix, or made one.",
      "model",
      "result",
    );
    this.#owners = new Histogram({
      name: "weir_cache_aware_prefix_owner_count",
      help: "Known owners of the prefix at each such choice.",
      labelNames: ["model"],
      buckets: OWNER_BUCKETS,
      registers,
    });
    this.#stale = counter(
      "prefix_owner_stale_total",
      "Holdings forgotten because an engine no longer had them in its cache.",
      "worker",
    );
    this.#recoveries = counter(
      "kv_event_sequence_gap_recoveries_total",
      "Views of a cache that were cleared because events are missing for good.",
      "worker",
    );
    this.#failures = counter(
      "kv_event_subscription_failures_total",
      "KV events that could not be followed, by reason.",
      "worker",
      "reason",
    );
    this.#events = counter("kv_events_total", "KV events read.", "worker");
  }

  settled({ selection, model: name, worker, staleHoldings }: SettlementRecord): void {
    if (selection === undefined) return;
    const { result, engineLoad, owners } = selection;
    const model = this.#models.value(name);
    if (engineLoad !== undefined) this.#engine.inc({ result: engineLoad });
    if (REPLICATION.has(result)) {
      this.#replication.inc({ model, result });
      this.#owners.observe({ model }, owners);
    }
    if (staleHoldings > 0 && worker !== undefined) {
      this.#stale.inc({ worker: worker.url }, staleHoldings);
    }
  }

  /** A view of a worker's cache was cleared. */
  recovered(worker: string): void {
    this.#recoveries.inc({ worker });
  }

  followingFailed(worker: string, reason: string): void {
    this.#failures.inc({ worker, reason });
  }

  eventsRead(worker: string, events: number): void {
    this.#events.inc({ worker }, events);
  }

  /** Adds what is read when it is scraped, once the parts exist. */
  observe({ selector, workers }: SelectionSources): void {
    this.#observeDecisions(selector);
    const { committed, events, bookings, protections } = selector;
    gauge(this.#registry, "prefix_index_bytes", "Memory of the prefixes.", ["source"], (set) => {
      set({ source: "committed" }, committed.bytes);
      set({ source: "events" }, events.bytes);
    });
    gauge(
      this.#registry,
      "prefix_index_blocks",
      "Blocks of prompts that a worker is known to hold.",
      ["worker", "source"],
      (set) => {
        for (const { identity } of workers.all()) {
          const { url: worker, generation } = identity;
          set({ worker, source: "committed" }, committed.blocksOf(generation));
          set({ worker, source: "events" }, events.blocksOf(generation));
        }
      },
    );
    gauge(
      this.#registry,
      "worker_reserved_tokens",
      "Tokens reserved on a worker by requests that have not ended.",
      ["worker"],
      (set) => {
        for (const { identity } of workers.all()) {
          set({ worker: identity.url }, bookings.reservedTokens(identity.generation));
        }
      },
    );
    gauge(
      this.#registry,
      "prefix_protections",
      "Prefixes with a remembered spill or seed, and seeds among them.",
      ["kind"],
      (set) => {
        set({ kind: "all" }, protections.entries);
        set({ kind: "seed" }, protections.seeds);
      },
    );
  }

  #observeDecisions(selector: WorkerSelector): void {
    const models = this.#models;
    new Counter({
      name: "weir_selection_decisions_total",
      help: "Choices of a worker by model, policy and result, refusals included.",
      labelNames: ["model", "policy", "result"],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { model, policy, result, count } of selector.decisions.all()) {
          this.inc({ model: models.value(model), policy, result }, count);
        }
      },
    });
  }
}

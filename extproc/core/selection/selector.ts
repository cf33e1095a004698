// Which worker serves an admitted request? The one door to this room: finds the candidates, lets the
// routing key, the policy or the owners of the prompt decide, and books the choice in the same step.
// Owns what is known of caches (both indexes, protections, pending owners) and what is booked, and
// forgets it with the workers it belongs to.
//
// What a choice books lives until the request ends, except the claim, which the caller replaces by
// live load right away. A prompt is committed when its answer ends well, never when it is sent.

import type { PromptContent, PromptLimits } from "../identity/prompt.js";
import type { ModelId, PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { Rng } from "../model/rng.js";
import type {
  OwnershipSource,
  SelectionConfig,
  SelectionPolicy,
} from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { PrefixHasher } from "../prefixes/block-keys.js";
import { CommittedIndex } from "../prefixes/committed-index.js";
import { EventIndex } from "../prefixes/event-index.js";
import { PartitionProtections } from "../prefixes/partition-protections.js";
import type { ProtectionEntry } from "../prefixes/protections.js";
import { Bookings } from "../workers/bookings.js";
import type { WorkerRegistry } from "../workers/registry.js";
import type { TelemetryStore } from "../workers/telemetry-store.js";
import type { Disposer, Worker } from "../workers/worker.js";
import {
  cacheDecision,
  leased,
  loadDecision,
  ownersFull,
  traceOf,
  unserved,
  unusable,
} from "./answers.js";
import { chooseAnyWorker, type AnySelection } from "./any-worker.js";
import { CacheAware, type CacheAwareChoice } from "./cache-aware.js";
import { findCandidates, isServed, type Candidates, type Fleet } from "./candidates.js";
import type { PrefixTrace, Selection, SelectionDecision, SelectionQuery } from "./decision.js";
import { DecisionCounts } from "./decision-counts.js";
import { Evictions, type CacheReport } from "./evictions.js";
import { Loads } from "./loads.js";
import { OwnershipLookup, type HashedPrompt, type PromptPrefix } from "./ownership.js";
import { PendingOwners } from "./pending-owners.js";
import { Policies } from "./policies.js";
import { workerOfKey } from "./routing-key.js";
import { SeedGuard } from "./seed-guard.js";
import { workTokens } from "./work.js";

export interface SelectorOptions {
  readonly registry: WorkerRegistry;
  readonly partitionOf: (worker: Worker, model: ModelId) => PartitionName;
  readonly rng: Rng;
  readonly models: ReadonlyMap<ModelId, ModelRule>;
  readonly selection: SelectionConfig;
  /** What the engines report; undefined when nothing is asked of them. */
  readonly telemetry: TelemetryStore | undefined;
  readonly hasher: PrefixHasher;
}

export interface ModelRule {
  readonly policy: SelectionPolicy;
  readonly ownership: OwnershipSource;
}

/** A model that the configuration does not name. */
const DEFAULT_RULE: ModelRule = { policy: "power_of_two", ownership: "committed" };

/** Holdings looked at in one sweep: about a millisecond of work between two requests. */
const SWEEP_HOLDINGS = 10_000;

const LENGTH_ONLY: PromptLimits = { maxChars: 1, maxTokens: 1 };

const NOTHING_HELD: Disposer = () => undefined;
const NO_PROTECTIONS: readonly ProtectionEntry[] = [];

export class WorkerSelector {
  readonly events: EventIndex;
  readonly committed: CommittedIndex;
  readonly protections: PartitionProtections;
  readonly bookings: Bookings;
  readonly lookup: OwnershipLookup;
  readonly pending = new PendingOwners();
  /** How requests were decided so far. */
  readonly decisions = new DecisionCounts();
  readonly #options: SelectorOptions;
  readonly #fleet: Fleet;
  readonly #loads: Loads;
  readonly #policies: Policies;
  readonly #evictions: Evictions;
  readonly #cacheAware: CacheAware;
  /** Generations of the workers that something may be known or booked about. */
  #generations: ReadonlySet<number> = new Set();

  constructor(options: SelectorOptions) {
    const { selection, hasher, telemetry } = options;
    const maxBytesPerWorker = selection.max_tree_size;
    this.#options = options;
    this.#fleet = options;
    this.events = new EventIndex({
      hasher,
      maxBytesPerWorker,
      defaultBlockSize: selection.block_size,
      maxBlocks: selection.max_prefix_blocks,
    });
    this.committed = new CommittedIndex({
      maxBytesPerWorker,
      ttlMs: selection.committed_ttl_s * 1000,
    });
    this.protections = new PartitionProtections(selection.cache_owner_spill_cooldown_secs * 1000);
    this.bookings = new Bookings(options);
    this.#evictions = new Evictions(selection.block_size);
    this.#loads = new Loads(this.bookings, options.rng);
    this.#policies = new Policies(this.#loads);
    const { committed, events } = this;
    this.lookup = new OwnershipLookup({ selection, hasher, committed, events });
    this.#cacheAware = new CacheAware({
      ...{ selection, telemetry },
      ...{ loads: this.#loads, lookup: this.lookup, pending: this.pending },
    });
    this.workersChanged();
  }

  /** True when some worker of the partition is configured for the model, usable or not. */
  isServed(model: ModelId, partition: PartitionName): boolean {
    return isServed(this.#fleet, model, partition);
  }

  /** How much of a prompt is looked at for this model: without `cache_aware`, only its length. */
  promptLimits(model: ModelId): PromptLimits {
    const { block_chars, block_size, max_prefix_blocks } = this.#options.selection;
    const { policy, ownership } = this.#ruleOf(model);
    if (policy !== "cache_aware") return LENGTH_ONLY;
    const published = ownership === "events" ? this.events.blockSizeOf(model) : 0;
    return {
      maxChars: block_chars * max_prefix_blocks,
      maxTokens: Math.max(block_size, published) * max_prefix_blocks,
    };
  }

  /** What a request keeps of its prompt until a worker is chosen. */
  hash(model: ModelId, prompt: PromptContent): HashedPrompt {
    return this.lookup.hash(model, this.#ruleOf(model).ownership, prompt);
  }

  /** Chooses any usable worker, for requests that name no model; nothing is booked. */
  selectAny(now: MonotonicMs): AnySelection {
    return chooseAnyWorker(this.#options.registry, this.#loads, now);
  }

  /** Chooses a worker and books the choice, or says why there is none. */
  select(query: SelectionQuery, now: MonotonicMs): Selection {
    const selection = this.#decide(query, now);
    if (selection.decision !== undefined) this.decisions.add(query.model, selection.decision);
    return selection;
  }

  /**
   * Learns from the end of a request: after a success its worker owns the prompt's blocks. When answers
   * show that the engine has dropped what it is believed to hold, its older successes are forgotten.
   *
   * @returns how many holdings were forgotten
   */
  ended(trace: PrefixTrace, success: boolean, report: CacheReport, now: MonotonicMs): number {
    const { keys, generation, expected } = trace;
    if (!this.#generations.has(generation)) return 0;
    const evictedBefore =
      expected === undefined
        ? undefined
        : this.#evictions.reported(generation, keys, expected.lastSuccessAt, report);
    const forgotten =
      evictedBefore === undefined ? 0 : this.committed.forgetOlder(generation, evictedBefore);
    if (success) this.committed.commit(keys, generation, now);
    return forgotten;
  }

  /** Forgets what belongs to removed workers. To be called on every change of the registry. */
  workersChanged(): void {
    const present = new Set<number>();
    for (const worker of this.#options.registry.all()) present.add(worker.identity.generation);
    for (const generation of this.#generations) {
      if (present.has(generation)) continue;
      this.bookings.forget(generation);
      this.committed.forget(generation);
      this.events.forget(generation);
      this.#evictions.forget(generation);
    }
    this.#generations = present;
  }

  /** How often `sweep` is to be called, in milliseconds: spills are kept by cooldown, 1 s or more. */
  get sweepPeriodMs(): number {
    const { eviction_interval_secs: interval, cache_owner_spill_cooldown_secs: cooldown } =
      this.#options.selection;
    return 1_000 * Math.min(interval, cooldown > 0 ? cooldown : interval);
  }

  /** Drops a part of what has expired; true when there is more to drop. */
  sweep(now: MonotonicMs): boolean {
    this.protections.collect(now);
    return this.committed.sweep(now, SWEEP_HOLDINGS);
  }

  #decide(query: SelectionQuery, now: MonotonicMs): Selection {
    const candidates = this.#candidates(query, now);
    const { policy } = this.#ruleOf(query.model);
    if (candidates.selectable.length === 0) return this.#nobody(query, candidates, policy);
    if (policy !== "cache_aware") {
      if (query.routingKey !== undefined) return this.#stick(query, candidates, undefined);
      const serving = this.#options.registry.serving(query.model);
      const choice = this.#policies.choose(policy, query, candidates.selectable, serving);
      const decision = loadDecision(policy, choice.result, undefined);
      return this.#book(query, choice.worker, decision, undefined, NOTHING_HELD);
    }
    const prefix = query.prompt === undefined ? undefined : this.lookup.read(query.prompt);
    const guard = new SeedGuard(this.#protectionsOf(query, prefix, now), candidates.leases);
    if (query.routingKey !== undefined && !guard.binding) {
      return this.#stick(query, candidates, prefix);
    }
    const unread = query.prompt === undefined ? "no_prompt" : "short_prompt";
    const memory = this.protections.of(query.partition);
    const choice = this.#cacheAware.choose({ candidates, prefix, unread, guard, memory }, now);
    return this.#bookCacheAware(query, prefix, choice);
  }

  /** A seed does not keep the last usable worker of a model for itself: that would be an outage. */
  #candidates(query: SelectionQuery, now: MonotonicMs): Candidates {
    const candidates = findCandidates(this.#fleet, this.bookings, query, now);
    const { healthy, leases } = candidates;
    if (leases === 0 || healthy.length !== leases) return candidates;
    for (const { identity } of healthy) this.bookings.shareLease(identity.generation);
    return findCandidates(this.#fleet, this.bookings, query, now);
  }

  #ruleOf(model: ModelId): ModelRule {
    return this.#options.models.get(model) ?? DEFAULT_RULE;
  }

  #protectionsOf(
    { partition }: SelectionQuery,
    prefix: PromptPrefix | undefined,
    now: MonotonicMs,
  ): readonly ProtectionEntry[] {
    const budget = this.#options.selection.max_cached_owners_per_prefix;
    const protections = this.protections.of(partition);
    if (prefix === undefined || budget === 0 || protections.seeds === 0) return NO_PROTECTIONS;
    return protections.snapshot(this.lookup.chains(prefix), now);
  }

  /** The routing key decides. Nothing is reserved: the key would bring the request here anyway. */
  #stick(
    query: SelectionQuery,
    { selectable }: Candidates,
    prefix: PromptPrefix | undefined,
  ): Selection {
    const worker = workerOfKey(query.routingKey ?? "", selectable);
    const claim = this.#claim(query, worker);
    const decision = loadDecision("sticky_key", "routing_key", prefix);
    const trace = traceOf(prefix, worker, undefined);
    return { ok: true, worker, decision, booking: claim, claim, trace };
  }

  #bookCacheAware(
    query: SelectionQuery,
    prefix: PromptPrefix | undefined,
    choice: CacheAwareChoice,
  ): Selection {
    const { worker, ownership } = choice;
    const decision = cacheDecision(choice, prefix);
    if (worker === undefined) return { ok: false, rejection: ownersFull(), decision };
    const known = ownership?.owners.includes(worker) === true;
    const lastSuccessAt = known ? ownership.lastSuccessAt(worker) : undefined;
    const trace = traceOf(prefix, worker, lastSuccessAt);
    const budget = this.#options.selection.max_cached_owners_per_prefix;
    const pending =
      ownership === undefined || known || budget === 0
        ? NOTHING_HELD
        : this.pending.add(ownership.keys, ownership.blocks, worker.identity.generation);
    return this.#book(query, worker, decision, trace, pending);
  }

  #book(
    query: SelectionQuery,
    worker: Worker,
    decision: SelectionDecision,
    trace: PrefixTrace | undefined,
    pending: Disposer,
  ): Selection {
    const estimate = this.#options.selection.fallback_output_token_estimate;
    const reservation = this.bookings.reserve(worker, workTokens(query, estimate));
    const claim = this.#claim(query, worker);
    const booking = (): void => {
      claim();
      reservation();
      pending();
    };
    return { ok: true, worker, decision, booking, claim, trace };
  }

  #claim({ model, partition }: SelectionQuery, worker: Worker): Disposer {
    const claim = this.bookings.claim(worker, partition, model);
    invariant(claim !== undefined, "a candidate is registered, serves the model and is not leased");
    return claim;
  }

  #nobody(
    { model, partition }: SelectionQuery,
    { withheld }: Candidates,
    policy: SelectionPolicy,
  ): Selection {
    if (withheld) {
      const decision = loadDecision(policy, "leased_worker_block", undefined);
      return { ok: false, rejection: leased(), decision };
    }
    const rejection = this.isServed(model, partition) ? unusable(model) : unserved(model);
    return { ok: false, rejection, decision: undefined };
  }
}

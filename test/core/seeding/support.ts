// A fleet that seeds: the selector's bench (blocks of four, model and partition of its own), engines that
// report through the same reading of samples as in production, proofs, and a seeder over all of it.

import { expect } from "chai";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { invariant } from "../../../extproc/core/model/invariant.js";
import type { PrefixProtections } from "../../../extproc/core/prefixes/protections.js";
import type { PromptContent } from "../../../extproc/core/identity/prompt.js";
import type { SelectionQuery } from "../../../extproc/core/selection/decision.js";
import type { HeadroomTarget } from "../../../extproc/core/seeding/headroom.js";
import type { ProofSubject } from "../../../extproc/core/scheduler/admission-proof.js";
import type { SeedProof } from "../../../extproc/core/seeding/proof.js";
import { SEED_REFUSALS } from "../../../extproc/core/seeding/refusals.js";
import type { SeedingRules } from "../../../extproc/core/seeding/rules.js";
import type { Seed } from "../../../extproc/core/seeding/seed.js";
import { Seeder, type Seeding } from "../../../extproc/core/seeding/seeder.js";
import type { SampleToken, TelemetrySource } from "../../../extproc/core/workers/telemetry.js";
import {
  readSample,
  type RankReading,
  type WorkerReading,
} from "../../../extproc/core/workers/telemetry-reading.js";
import type { TelemetryDelivery } from "../../../extproc/core/workers/telemetry-store.js";
import type { Worker } from "../../../extproc/core/workers/worker.js";
import { Bench, DEMO, POOL, tokens, type Ask, type BenchOptions } from "../selection/support.js";

/** Running, waiting, token usage, utilization, ceiling: one rank as a native engine reports it. */
export function r(
  running: number,
  waiting: number,
  tokenUsage: number,
  utilization: number,
  maxRunning: number,
): RankReading {
  return {
    ...{ running, waiting, total: running + waiting, waitingUncachedTokens: 0 },
    ...{ usedTokens: 0, maxTokens: 1000, tokenUsage, utilization, maxRunning },
  };
}

/** An engine with this many free places. */
export const free = (slots: number): RankReading => r(0, 0, 0.1, 0.1, slots);
/** An engine that is full and whose requests wait. */
export const FULL = r(38, 64, 0.89, 0.4, 38);

export const PROMPT = tokens(1, 8);
export const LONGER = tokens(1, 12);

export const TENANT = tenantKey("auth:alice");
export const SUBJECT: ProofSubject = {
  tenant: TENANT,
  requestId: "request 1",
  model: DEMO,
  partition: POOL,
};

/** What a proof is to those who use one: fresh -> claimed, fresh -> revoked; a wrong subject is told first. */
export class ProofDouble implements SeedProof {
  state: "fresh" | "claimed" | "revoked" = "fresh";
  spent = 0;
  readonly #subject: ProofSubject;

  constructor(subject: ProofSubject = SUBJECT) {
    this.#subject = subject;
  }

  claim(subject: ProofSubject): ReturnType<SeedProof["claim"]> {
    const own = this.#subject;
    if (subject.tenant !== own.tenant) return { ok: false, failure: "tenant_mismatch" };
    if (subject.requestId !== own.requestId) return { ok: false, failure: "request_mismatch" };
    if (subject.model !== own.model) return { ok: false, failure: "model_mismatch" };
    if (subject.partition !== own.partition) return { ok: false, failure: "partition_mismatch" };
    if (this.state === "claimed") return { ok: false, failure: "already_claimed" };
    if (this.state === "revoked") return { ok: false, failure: "revoked" };
    this.state = "claimed";
    return {
      ok: true,
      claim: {
        spend: () => {
          this.spent += 1;
          expect(this.spent, "a claim is spent once").to.equal(1);
        },
      },
    };
  }
}

export type SeedBenchOptions = BenchOptions & { readonly rules?: Partial<SeedingRules> };
export type SeedAskSketch = Ask & {
  readonly proof?: SeedProof;
  readonly subject?: ProofSubject;
  readonly spread?: boolean;
};

export class SeedBench extends Bench {
  readonly seeder: Seeder;
  #samples = 0;

  constructor({ rules, ...options }: SeedBenchOptions = {}) {
    super({
      workers: 3,
      ownership: "events",
      ...options,
      selection: {
        max_cached_owners_per_prefix: 8,
        cache_owner_spill_cooldown_secs: 5,
        ...options.selection,
      },
    });
    const { registry, selection, selector, telemetry } = this;
    this.seeder = new Seeder({
      rules: {
        ...{ mode: "enforce", seedCap: 1, maxTokenUsage: 0.9 },
        partitions: new Set([POOL]),
        ...rules,
      },
      fleet: {
        registry,
        partitionOf: (worker) => worker.labels.admission_partition ?? POOL,
      },
      models: new Map([
        [
          DEMO,
          {
            policy: options.policy ?? "cache_aware",
            ownership: options.ownership ?? "events",
          },
        ],
      ]),
      ...{ selection, selector, telemetry },
    });
  }

  /** Of the one partition. */
  get protections(): PrefixProtections {
    return this.selector.protections.of(POOL);
  }

  /**
   * Publishes what the engines answer to one round of polls, in the order of registration; undefined =
   * the poll failed. An answer that cannot be read is no answer, as in the poller.
   */
  room(
    answers: readonly (RankReading | readonly RankReading[] | undefined)[],
    over: Partial<WorkerReading> & { readonly source?: TelemetrySource } = {},
  ): void {
    this.#samples += 1;
    const token: SampleToken = { kind: "timestamp", value: `sample ${String(this.#samples)}` };
    const workers = [...this.registry.all()];
    const deliveries = workers.flatMap((worker, index): TelemetryDelivery[] => {
      const answer = answers[index];
      if (answer === undefined) return [];
      const ranks = (isRanks(answer) ? answer : [answer]).map((rank, id) => ({
        rank: id,
        ...rank,
      }));
      const read = readSample({ source: "sglang_loads", token, ranks, ...over });
      if (read.kind === "unknown") return [];
      const { liveLoad } = worker.runtime;
      return [{ identity: worker.identity, sample: read.sample, observedAt: this.now, liveLoad }];
    });
    const urls = workers.map(({ identity }) => identity.url);
    this.telemetry.publish(urls, deliveries, this.now);
  }

  /** Worker 0 holds PROMPT by its engine's own word and is full; the others have 38 places each. */
  incident(): this {
    this.stored(0, PROMPT);
    this.room([FULL, free(38), free(38)]);
    return this;
  }

  targets(): readonly HeadroomTarget[] {
    return this.seeder.headroom.snapshot(POOL, DEMO, this.now);
  }

  /** Slots by worker in the order of the snapshot: "w0 0, w1 43". */
  slots(): string {
    return this.targets()
      .map(({ worker, slots }) => `w${String(this.numberOf(worker))} ${String(slots)}`)
      .join(", ");
  }

  target(index: number): HeadroomTarget {
    const target = this.targets().find(({ worker }) => worker === this.worker(index));
    invariant(target !== undefined, `worker ${String(index)} is not in the snapshot`);
    return target;
  }

  query({ prompt, ...over }: Ask): SelectionQuery {
    return {
      ...{ model: DEMO, partition: POOL, targetWorkerUrl: undefined, excludedWorkerUrls: [] },
      ...{ routingKey: undefined, outputLimitTokens: undefined },
      prompt: prompt === undefined ? undefined : this.selector.hash(DEMO, prompt),
      ...over,
    };
  }

  /** Tries to seed; with a proof of its own unless one is given. */
  try({ proof, subject = SUBJECT, spread = false, ...ask }: SeedAskSketch = {}): Seeding {
    const { tenant, requestId } = subject;
    const query = this.query({ prompt: PROMPT, ...ask });
    const { model, partition } = query;
    const own = proof ?? new ProofDouble({ tenant, requestId, model, partition });
    const seeding = this.seeder.seed({ tenant, requestId, proof: own, query, spread }, this.now);
    if (!seeding.ok) expect(SEED_REFUSALS).to.include(seeding.refusal);
    return seeding;
  }

  /** A seed that must come about, held and not sent. */
  seed(ask: SeedAskSketch = {}): Seed {
    const seeding = this.try(ask);
    expect(seeding, JSON.stringify(seeding)).to.have.property("ok", true);
    return (seeding as Seeding & { readonly ok: true }).seed;
  }

  /** What becomes of a try, leaving nothing behind: "w1 cache_aware_distribution_seed" or the refusal. */
  seeds(ask: SeedAskSketch = {}): string {
    const seeding = this.try(ask);
    if (!seeding.ok) return seeding.refusal;
    seeding.seed.release(this.now);
    return `w${String(this.numberOf(seeding.seed.worker))} ${seeding.seed.plan.kind}`;
  }

  /** Sends a seed as the life of a request does; gives back its live load. */
  send(seed: Seed): () => void {
    expect(seed.verify(this.now)).to.equal(undefined);
    const load = seed.worker.runtime.holdLoad();
    seed.dispatched();
    return load;
  }

  /** A seed that is on its way, and how to end it. */
  sent(ask: SeedAskSketch = {}): { seed: Seed; end: (success: boolean) => void } {
    const seed = this.seed(ask);
    const load = this.send(seed);
    const end = (success: boolean): void => {
      if (success) seed.markSuccess();
      load();
      seed.release(this.now);
    };
    return { seed, end };
  }

  phases(prompt: PromptContent = PROMPT): string[] {
    return this.protections.snapshot([this.keysOf(prompt)], this.now).map(({ phase }) => phase);
  }

  /** Numbers of the workers that the event index names for the longest match of a prompt. */
  published(prompt: PromptContent = PROMPT): number[] {
    invariant(prompt.kind === "tokens", "events speak of tokens");
    const match = this.selector.events.match(DEMO, prompt.tokens);
    const generations = new Set(match.owners.map(({ generation }) => generation));
    return [...this.registry.all()].flatMap((worker: Worker, index) =>
      generations.has(worker.identity.generation) ? [index] : [],
    );
  }
}

function isRanks(answer: RankReading | readonly RankReading[]): answer is readonly RankReading[] {
  return Array.isArray(answer);
}

// A whole core that seeds: engines that report by hand, one long prompt that requests share, and proofs of
// the fair queue or of credits.

import type { CreditsConfig } from "../../extproc/core/model/config.js";
import type { SeedRecord } from "../../extproc/core/request/seed-record.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { ConfigSketch } from "./config.js";
import { bytes, FROM_WORKER, responseHead, type Driven, type HeadSketch } from "./desk.js";
import { FeedbackDesk, type Report } from "./feedback-desk.js";

/** Longer than two blocks of 256 characters. */
export const SHARED_PROMPT = "Once upon a time there was a weir. ".repeat(20);

export const GOOD_ANSWER = {
  object: "chat.completion",
  choices: [{ index: 0, finish_reason: "stop" }],
  usage: { prompt_tokens: 200, completion_tokens: 5 },
};

/** An engine whose requests wait: the partition refuses by `engine_waiting`. */
export const DROWNING: Report = { running: 64, waiting: 64, tokenUsage: 0.6 };
export const IDLE: Report = { running: 0, waiting: 0, tokenUsage: 0.1 };

export const COOLDOWN_MS = 5_000;

export function chatBody(over: object = {}): Uint8Array {
  return bytes({
    model: "demo",
    messages: [{ role: "user", content: SHARED_PROMPT }],
    ...over,
  });
}

/** Everything that seeding needs, with proofs of the fair queue. */
export function seedingSketch(over: ConfigSketch = {}): ConfigSketch {
  return {
    models: { demo: { policy: "cache_aware" } },
    selection: { max_cached_owners_per_prefix: 8, cache_owner_spill_cooldown_secs: 5 },
    seeding: { partitions: ["global"], seed_cap: 1, proof_source: "scheduler" },
    ...over,
  };
}

export class SeedingDesk extends FeedbackDesk {
  constructor(over: ConfigSketch = {}, credits: Partial<CreditsConfig> = {}) {
    super({ mode: "enforce" }, seedingSketch(over), credits);
  }

  /** The cluster of the worker that a request was sent to; else its refusal's code. */
  placeOf(driven: Driven): string {
    const verdict = driven.last();
    if (verdict?.kind === "route") return verdict.worker.cluster;
    return verdict?.kind === "refuse" ? verdict.rejection.code : "nothing";
  }

  ask(body: object = {}, head: HeadSketch = {}): Driven {
    return this.drive(head, chatBody(body));
  }

  /** One success makes a worker the owner of the prompt: its place. */
  own(head: HeadSketch = {}): string {
    this.report(IDLE, IDLE);
    const first = this.ask({}, head);
    this.reply(first);
    return this.placeOf(first);
  }

  /** The owner drowns, the other worker is idle. */
  drown(owner: string, peer: Report = IDLE): void {
    if (owner === "worker_1") this.report(DROWNING, peer);
    else this.report(peer, DROWNING);
  }

  /** Lets a whole answer of the worker pass that got the request. */
  reply(
    driven: Driven,
    body: unknown = GOOD_ANSWER,
    over: Parameters<typeof responseHead>[0] = {},
    complete = true,
  ): void {
    const attributes = { ...FROM_WORKER, clusterName: this.placeOf(driven), ...over.attributes };
    this.desk.responseHeaders(driven.request, responseHead({ ...over, attributes }), this.now);
    driven.request.firstByte(this.now);
    driven.request.responseBody(bytes(body));
    this.desk.end(driven.request, complete, this.now);
  }

  /** What the last settled request says of its seed. */
  get seed(): SeedRecord | undefined {
    return this.last.seed;
  }

  get last(): SettlementRecord {
    const record = this.settled.at(-1);
    if (record === undefined) throw new Error("nothing was settled");
    return record;
  }

  /** How many workers count as owners of the shared prompt. */
  get owners(): number {
    return this.urls.filter((url) => {
      const worker = this.registry.get(url);
      return worker !== undefined && this.blocksOf(worker.identity.generation) > 0;
    }).length;
  }

  blocksOf(generation: number): number {
    return this.core.selector.committed.blocksOf(generation);
  }

  /** Leases held, and phases of the protected prefixes. */
  get guarded(): readonly [number, readonly string[]] {
    const { leases, protections } = this.core.seeder.explain(this.now);
    return [leases.length, protections.map(({ phase }) => phase)];
  }
}

/** The other of the two workers. */
export function peerOf(place: string): string {
  return place === "worker_1" ? "worker_2" : "worker_1";
}

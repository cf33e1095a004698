// May a prefix get one more holder now? Spreading a hot prefix is good once and harmful at once many
// times: each new holder computes it anew. So a prefix gets at most one new holder in a cooldown: an
// ordinary spill or a seed, whichever comes first. Two stores, both of this process:
//   replication   prefix -> the last spill or seed on it; spills and seeds both read it
//   protections   prefix -> its seed only, at most `maxSeeds`; read for every request of a partition
//                 that seeds, hence small
// A seed is one record in both stores, so its phase and time agree. Each method is one step without an
// await: reading and writing cannot be told apart from outside, and no locks are needed.

import type { MonotonicMs } from "../model/time.js";
import { prefixId, type BlockKeys } from "./block-keys.js";

/** The worker that a seed goes to: only this very registration of it. */
export interface SeedTarget {
  readonly url: string;
  readonly revision: number;
}

/** In the order in which snapshots list them. */
export const PROTECTION_PHASES = ["active", "success_cooldown", "failure_quarantine"] as const;
export type ProtectionPhase = (typeof PROTECTION_PHASES)[number];

export interface ProtectionEntry {
  readonly phase: ProtectionPhase;
  readonly target: SeedTarget;
}

/** A seed as the state page lists it. */
export interface SeedProtection extends ProtectionEntry {
  /** Length of the prefix. */
  readonly blocks: number;
  /** Since it is in this phase. */
  readonly ageMs: number;
}

/** The right to seed a prefix; it is held until it is dropped, however long that takes. */
export interface SeedClaim {
  /** The seed's answer ended well. */
  markSuccess(): void;
  /**
   * Ends the claim; acts once. Marked: the prefix cools down. Not marked but dispatched: it is in
   * quarantine. Never dispatched: no worker has seen it, and it is free at once.
   */
  drop(dispatched: boolean, now: MonotonicMs): void;
}

export type Spill =
  { readonly kind: "new" | "joined"; readonly owner: string } | { readonly kind: "refused" };

/** Seeds under way or cooling down at once: every request of a seeding partition is held against each. */
const MAX_SEEDS = 64;
/** Prefixes remembered at once, about 20 MB; over it the oldest goes, but no seed that still binds. */
const MAX_REPLICATIONS = 65_536;
/** What is remembered longer than any cooldown needs, for a while: cooldowns, and at least a minute. */
const KEPT_COOLDOWNS = 4;
const KEPT_MS_MIN = 60_000;

interface Ordinary {
  readonly kind: "ordinary";
  readonly changedAt: MonotonicMs;
  /** Url of the worker that the spill went to, which may not have reported the prefix yet. */
  readonly provisionalOwner: string;
}

interface Seed {
  readonly kind: "seed";
  phase: ProtectionPhase;
  changedAt: MonotonicMs;
  readonly target: SeedTarget;
  readonly blocks: number;
}

export class PrefixProtections {
  readonly #replication = new Map<string, Ordinary | Seed>();
  readonly #protections = new Map<string, Seed>();
  readonly #cooldownMs: number;
  readonly #maxSeeds: number;
  readonly #maxReplications: number;

  /** `cooldownMs` 0 = no seeds, and spills are neither remembered nor refused. */
  constructor(options: {
    readonly cooldownMs: number;
    readonly maxSeeds?: number;
    readonly maxReplications?: number;
  }) {
    this.#cooldownMs = options.cooldownMs;
    this.#maxSeeds = options.maxSeeds ?? MAX_SEEDS;
    this.#maxReplications = options.maxReplications ?? MAX_REPLICATIONS;
  }

  /** Seeds that are under way, cooling down or in quarantine. */
  get seeds(): number {
    return this.#protections.size;
  }

  /** Prefixes whose last spill or seed is remembered. */
  get entries(): number {
    return this.#replication.size;
  }

  /** Claims the right to seed the first `blocks` blocks (1..count); undefined when it is refused. */
  claimSeed(
    keys: BlockKeys,
    blocks: number,
    target: SeedTarget,
    now: MonotonicMs,
  ): SeedClaim | undefined {
    if (this.#cooldownMs === 0) return undefined;
    for (const [id, seed] of this.#protections) {
      if (!this.#holds(seed, now)) this.#protections.delete(id);
    }
    const id = prefixId(keys, blocks);
    if (this.#protections.has(id) || this.#protections.size >= this.#maxSeeds) return undefined;
    const last = this.#replication.get(id);
    if (last !== undefined && this.#holds(last, now)) return undefined;
    const seed: Seed = { kind: "seed", phase: "active", changedAt: now, target, blocks };
    this.#protections.set(id, seed);
    this.#remember(id, seed);
    return this.#claim(id, seed);
  }

  /**
   * An ordinary request wants a new holder for the first `blocks` blocks (1..count). It joins the
   * worker of a spill younger than the cooldown if that is among the `candidates` (urls), else
   * `choose` names one; a seed refuses it until it has cooled down.
   */
  spill(
    keys: BlockKeys,
    blocks: number,
    candidates: ReadonlySet<string>,
    choose: () => string,
    now: MonotonicMs,
  ): Spill {
    if (this.#cooldownMs === 0) return { kind: "new", owner: choose() };
    const id = prefixId(keys, blocks);
    const last = this.#replication.get(id);
    if (last !== undefined && this.#holds(last, now)) {
      if (last.kind === "seed") return { kind: "refused" };
      if (candidates.has(last.provisionalOwner)) {
        return { kind: "joined", owner: last.provisionalOwner };
      }
    }
    const owner = choose();
    this.#remember(id, { kind: "ordinary", changedAt: now, provisionalOwner: owner });
    return { kind: "new", owner };
  }

  /** Url of the worker that the prefix was last spilled to, if that is younger than the cooldown. */
  provisionalOwner(keys: BlockKeys, blocks: number, now: MonotonicMs): string | undefined {
    const last = this.#replication.get(prefixId(keys, blocks));
    if (last?.kind !== "ordinary" || !this.#holds(last, now)) return undefined;
    return last.provisionalOwner;
  }

  /**
   * All seeds whose prefix begins the request, none collapsed, sorted by url, revision and phase.
   * A request may have several chains of keys (of its tokens, of its text).
   */
  snapshot(chains: readonly BlockKeys[], now: MonotonicMs): readonly ProtectionEntry[] {
    const entries: ProtectionEntry[] = [];
    for (const [id, seed] of this.#protections) {
      const { phase, target, blocks } = seed;
      if (!this.#holds(seed, now)) continue;
      if (chains.some((keys) => keys.count >= blocks && prefixId(keys, blocks) === id)) {
        entries.push({ phase, target });
      }
    }
    return entries.sort(byTargetAndPhase);
  }

  /** Every seed that binds, sorted like a snapshot. O(seeds). */
  list(now: MonotonicMs): readonly SeedProtection[] {
    return [...this.#protections.values()]
      .filter((seed) => this.#holds(seed, now))
      .map(({ phase, target, blocks, changedAt }) => ({
        ...{ phase, target, blocks },
        ageMs: now - changedAt,
      }))
      .sort(byTargetAndPhase);
  }

  /** Forgets what nothing depends on any more. To be called once per cooldown, not more than 1 / s. */
  collect(now: MonotonicMs): void {
    for (const [id, seed] of this.#protections) {
      if (seed.phase !== "active" && now - seed.changedAt > this.#cooldownMs) {
        this.#protections.delete(id);
      }
    }
    const keptMs = Math.max(KEPT_COOLDOWNS * this.#cooldownMs, KEPT_MS_MIN);
    for (const [id, last] of this.#replication) {
      if (!isActive(last) && now - last.changedAt > keptMs) this.#replication.delete(id);
    }
  }

  #claim(id: string, seed: Seed): SeedClaim {
    let succeeded = false;
    return {
      markSuccess: () => {
        succeeded = true;
      },
      drop: (dispatched, now) => {
        if (seed.phase !== "active" || this.#replication.get(id) !== seed) return;
        if (!succeeded && !dispatched) {
          this.#replication.delete(id);
          this.#protections.delete(id);
          return;
        }
        seed.phase = succeeded ? "success_cooldown" : "failure_quarantine";
        seed.changedAt = now;
      },
    };
  }

  /** Whether an entry still binds: an active seed always does, all else until it is cooldown old. */
  #holds(entry: Ordinary | Seed, now: MonotonicMs): boolean {
    return isActive(entry) || now - entry.changedAt < this.#cooldownMs;
  }

  /** Entries stand in the order of their making, so the oldest that may go is found first. */
  #remember(id: string, entry: Ordinary | Seed): void {
    this.#replication.delete(id);
    this.#replication.set(id, entry);
    if (this.#replication.size <= this.#maxReplications) return;
    for (const [oldest, last] of this.#replication) {
      if (last.kind === "seed" && this.#holds(last, entry.changedAt)) continue;
      this.#replication.delete(oldest);
      return;
    }
  }
}

/** Whether two snapshots say the same. */
export function sameProtections(
  one: readonly ProtectionEntry[],
  other: readonly ProtectionEntry[],
): boolean {
  return (
    one.length === other.length &&
    one.every((entry, at) => {
      const twin = other[at];
      return twin !== undefined && byTargetAndPhase(entry, twin) === 0;
    })
  );
}

function isActive(entry: Ordinary | Seed): boolean {
  return entry.kind === "seed" && entry.phase === "active";
}

function byTargetAndPhase(one: ProtectionEntry, other: ProtectionEntry): number {
  if (one.target.url !== other.target.url) return one.target.url < other.target.url ? -1 : 1;
  if (one.target.revision !== other.target.revision) {
    return one.target.revision - other.target.revision;
  }
  return PROTECTION_PHASES.indexOf(one.phase) - PROTECTION_PHASES.indexOf(other.phase);
}

// What is counted of seeds: leases by what became of them, refusals and ends by reason, and what is under
// way now. All of that the core counts itself and is read when it is scraped. Two things only the record
// of a request tells: that it was of the wrong kind to try, and why a seed's answer made nobody an owner.
// Partitions are those of the configuration, reasons are closed lists, so the labels are bounded. No
// gauge has a series where no partition seeds.

import { Counter, type Registry } from "prom-client";
import type { PartitionProtections } from "../../core/prefixes/partition-protections.js";
import { PROTECTION_PHASES } from "../../core/prefixes/protections.js";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import type { SeedEvent } from "../../core/seeding/counts.js";
import { seedingPartitions } from "../../core/seeding/rules.js";
import type { Seeder } from "../../core/seeding/seeder.js";
import type { MonotonicMs } from "../../core/model/time.js";
import { gauge } from "./gauges.js";

export interface SeedingSources {
  readonly seeder: Pick<Seeder, "counts" | "leases" | "rules">;
  readonly protections: Pick<PartitionProtections, "list">;
  readonly now: () => MonotonicMs;
}

type Labels<Name extends string> = Readonly<Record<Name, string>>;

/** What becomes of a lease, as its metric names it. */
const LEASE_EVENTS: Readonly<Partial<Record<SeedEvent["event"], string>>> = {
  lease_acquired: "acquired",
  lease_verified: "verified",
  lease_voided: "voided",
};

export class SeedingMetrics {
  readonly #registry: Registry;
  readonly #ineligible: Counter<"partition" | "reason">;
  readonly #uncommitted: Counter<"partition" | "reason">;

  constructor(registry: Registry) {
    this.#registry = registry;
    const byReason = (name: string, help: string): Counter<"partition" | "reason"> =>
      new Counter({ name, help, labelNames: ["partition", "reason"], registers: [registry] });
    this.#ineligible = byReason(
      "weir_seed_ineligible_total",
      "Requests refused by the engines' feedback that may not try to seed.",
    );
    this.#uncommitted = byReason(
      "weir_seed_uncommitted_total",
      "Seeds whose answer made nobody an owner.",
    );
  }

  settled({ seed, partition }: SettlementRecord): void {
    if (seed === undefined || partition === undefined) return;
    if (seed.kind === "ineligible") this.#ineligible.inc({ partition, reason: seed.reason });
    if (seed.kind !== "seeded" || seed.uncommitted === undefined) return;
    this.#uncommitted.inc({ partition, reason: seed.uncommitted });
  }

  /** Adds what is read when it is scraped, once the parts exist. */
  observe(sources: SeedingSources): void {
    this.#observeNow(sources);
    const { counts } = sources.seeder;
    const counted = <Name extends string>(
      name: string,
      help: string,
      labelNames: readonly Name[],
      labelsOf: (event: SeedEvent) => Labels<Name> | undefined,
    ): void => {
      new Counter<string>({
        name: `weir_${name}`,
        help,
        labelNames: ["partition", ...labelNames],
        registers: [this.#registry],
        collect() {
          this.reset();
          for (const { partition, event, count } of counts.all()) {
            const labels = labelsOf(event);
            if (labels !== undefined) this.inc({ partition, ...labels }, count);
          }
        },
      });
    };
    counted("seed_leases_total", "Leases by what became of them.", ["event"], (seed) => {
      const event = LEASE_EVENTS[seed.event];
      return event === undefined ? undefined : { event };
    });
    counted("seed_lease_voids_total", "Leases that did not let go.", ["reason"], (seed) =>
      seed.event === "lease_voided" ? { reason: seed.fault } : undefined,
    );
    counted("seed_refusals_total", "Requests that could not seed.", ["reason"], (seed) =>
      seed.event === "refused" ? { reason: seed.refusal } : undefined,
    );
    counted("seeds_total", "Seeds that have ended.", ["kind", "outcome"], (seed) =>
      seed.event === "ended" ? { kind: seed.kind, outcome: seed.outcome } : undefined,
    );
  }

  #observeNow({ seeder, protections, now }: SeedingSources): void {
    const { rules, leases } = seeder;
    const partitions = seedingPartitions(rules);
    gauge(this.#registry, "seed_leases", "Leases that are held.", ["partition"], (set) => {
      for (const partition of partitions) set({ partition }, leases.count(partition));
    });
    gauge(
      this.#registry,
      "seed_protections",
      "Prefixes that are guarded because of a seed, by phase.",
      ["phase"],
      (set) => {
        if (partitions.length === 0) return;
        const all = protections.list(now());
        for (const phase of PROTECTION_PHASES) {
          set({ phase }, all.filter((each) => each.phase === phase).length);
        }
      },
    );
  }
}

// What is counted of capacity credits: every operation by its outcome, and how many credits hold a slot.
// A token that nobody knows belongs to no partition; it is counted under `unknown`.

import { Counter, type Registry } from "prom-client";
import type { PartitionName } from "../../core/model/ids.js";
import type { CreditRegistry, OnCreditOperation } from "../../core/scheduler/credit-registry.js";
import { gauge } from "./gauges.js";

/** Value of the label `partition` where there is none. */
const UNKNOWN = "unknown";

export class CreditMetrics {
  readonly #registry: Registry;
  readonly #operations: Counter<"partition" | "outcome">;

  constructor(registry: Registry) {
    this.#registry = registry;
    this.#operations = new Counter({
      name: "weir_capacity_credit_operations_total",
      help: "Operations on capacity credits by outcome.",
      labelNames: ["partition", "outcome"],
      registers: [registry],
    });
  }

  /** Counts one operation. */
  readonly operation: OnCreditOperation = (partition, outcome) => {
    this.#operations.inc({ partition: partition ?? UNKNOWN, outcome });
  };

  /** Adds the gauge of the slots that credits hold; without series while credits are off. */
  observe(
    credits: Pick<CreditRegistry, "active"> | undefined,
    partitions: () => Iterable<{ readonly name: PartitionName }>,
  ): void {
    gauge(
      this.#registry,
      "capacity_credit_active",
      "Credits that hold a slot.",
      ["partition"],
      (set) => {
        if (credits === undefined) return;
        for (const { name } of partitions()) set({ partition: name }, credits.active(name));
      },
    );
  }
}

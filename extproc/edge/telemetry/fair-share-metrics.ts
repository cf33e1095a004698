// What fair sharing counts: charges, waits and refusals from the settlement record of each request, and
// gauges that read the ledger when they are scraped. A tenant is a label only if the configuration names
// it; all others are summed under `other`.

import { Counter, Histogram, type Registry } from "prom-client";
import type { Ledger } from "../../core/fairshare/ledger.js";
import type { Profile } from "../../core/fairshare/profile.js";
import { tenantKey } from "../../core/model/ids.js";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import { gauge, single } from "./gauges.js";
import { OTHER, type LabelCap } from "./label-cap.js";
import { WAIT_BUCKETS_S } from "./metric-families.js";

/** Value of the label `model` where the flat weights apply. */
const FLAT_MODEL = "global";

export class FairShareMetrics {
  readonly #registry: Registry;
  readonly #tenants: LabelCap;
  readonly #charged: Counter<"tenant">;
  readonly #chargedOfModel: Counter<"model" | "bucket" | "tenant">;
  readonly #fallbacks: Counter<"reason">;
  readonly #unknownTenants: Counter<"tenant">;
  readonly #rejections: Counter<"reason">;
  readonly #queueWait: Histogram<"model" | "tenant" | "class">;

  constructor(registry: Registry, tenants: LabelCap) {
    this.#registry = registry;
    this.#tenants = tenants;
    const counter = <Label extends string>(
      name: string,
      help: string,
      ...labelNames: Label[]
    ): Counter<Label> =>
      new Counter({ name: `weir_fair_share_${name}`, help, labelNames, registers: [registry] });
    this.#charged = counter(
      "charged_output_tokens_total",
      "Output tokens charged at settlement.",
      "tenant",
    );
    this.#chargedOfModel = counter(
      "model_charged_output_tokens_total",
      "Output tokens charged in the profile of a model.",
      "model",
      "bucket",
      "tenant",
    );
    this.#fallbacks = counter(
      "fallback_total",
      "Estimates, charges and profiles that fell back to a default.",
      "reason",
    );
    this.#unknownTenants = counter(
      "unknown_tenant_total",
      "Requests of tenants without a weight of their own.",
      "tenant",
    );
    this.#rejections = counter(
      "queue_rejections_total",
      "Requests that found no place in the queue, by the limit they met.",
      "reason",
    );
    this.#queueWait = new Histogram({
      name: "weir_fair_share_queue_wait_seconds",
      help: "Time in the queue of requests that got a slot.",
      labelNames: ["model", "tenant", "class"],
      buckets: WAIT_BUCKETS_S,
      registers: [registry],
    });
  }

  /** Counts one inference request that has ended. */
  settled(record: SettlementRecord): void {
    const { share, charge, queueRefusal } = record;
    const tenant = this.#tenants.value(record.tenant);
    for (const reason of [record.estimateFallback, record.requestModelFallback]) {
      if (reason !== undefined) this.#fallbacks.inc({ reason });
    }
    if (queueRefusal !== undefined) this.#rejections.inc({ reason: queueRefusal });
    if (share?.weighted === false) this.#unknownTenants.inc({ tenant });
    if (!record.admitted) return;
    const model = share?.profile;
    if (share !== undefined) {
      const labels = { model: model ?? FLAT_MODEL, tenant, class: record.class };
      this.#queueWait.observe(labels, record.queuedMs / 1_000);
    }
    if (charge === undefined) return;
    if (charge.kind === "missing_usage" || charge.kind === "interrupted") {
      this.#fallbacks.inc({ reason: charge.kind });
    }
    if (charge.tokens === 0) return;
    this.#charged.inc({ tenant }, charge.tokens);
    if (share === undefined || model === undefined) return;
    this.#chargedOfModel.inc({ model, bucket: share.bucket, tenant }, charge.tokens);
  }

  /** Adds the gauges of a ledger. */
  observe(ledger: Ledger): void {
    gauge(
      this.#registry,
      "fair_share_reserved_output_tokens",
      "Output tokens booked for running requests.",
      ["tenant"],
      (set) => {
        let others = ledger.overflow.reserved;
        for (const account of ledger.accounts()) {
          if (this.#tenants.value(account.key) === OTHER) others += account.reserved;
          else set({ tenant: account.key }, account.reserved);
        }
        set({ tenant: OTHER }, others);
      },
    );
    gauge(
      this.#registry,
      "fair_share_virtual_finish",
      "Service per weight of a tenant, estimates of running requests included.",
      ["model", "tenant"],
      (set) => {
        for (const profile of [ledger.flat, ...ledger.profiles.values()]) {
          this.#setFinishes(ledger, profile, set);
        }
      },
    );
    gauge(
      this.#registry,
      "fair_share_other_bucket_virtual_finish",
      "Service per weight of the tenants that a model's profile does not name, together.",
      ["model"],
      (set) => {
        for (const { model, other } of ledger.profiles.values()) {
          if (model !== undefined && other !== undefined) set({ model }, other.virtualFinish);
        }
      },
    );
    const figure = (name: string, help: string, read: () => number): void => {
      single(this.#registry, `fair_share_${name}`, help, read);
    };
    figure("tracked_tenants", "Tenants with an account of their own.", () => ledger.tracked);
    figure(
      "overflow_requests",
      "Requests booked on the account that tenants beyond the cap share.",
      () => ledger.overflowed,
    );
  }

  #setFinishes(
    ledger: Ledger,
    profile: Profile,
    set: (labels: Readonly<Record<string, string>>, amount: number) => void,
  ): void {
    const model = profile.model ?? FLAT_MODEL;
    for (const name of this.#tenants.names) {
      const tenant = tenantKey(name);
      const clock = profile.clockOf(profile.standing(tenant).bucket);
      const entry = ledger.account(tenant)?.existingEntry(clock);
      if (entry !== undefined) set({ model, tenant }, entry.virtualFinish);
    }
    if (profile.other !== undefined) set({ model, tenant: OTHER }, profile.other.virtualFinish);
  }
}

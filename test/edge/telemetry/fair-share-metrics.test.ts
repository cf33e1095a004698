// The figures of fair sharing, on a ledger driven by hand.

import { expect } from "chai";
import { Registry } from "prom-client";
import { Ledger } from "../../../extproc/core/fairshare/ledger.js";
import { modelId, tenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { SettlementRecord } from "../../../extproc/core/request/settlement-record.js";
import { FairShareMetrics } from "../../../extproc/edge/telemetry/fair-share-metrics.js";
import { LabelCap } from "../../../extproc/edge/telemetry/label-cap.js";
import { fairConfig, type FairSketch } from "../../support/fair.js";

/** As much of a record as these metrics read. */
function record(over: Partial<SettlementRecord>): SettlementRecord {
  const base: Partial<SettlementRecord> = {
    tenant: tenantKey("auth:acme"),
    class: "default",
    admitted: true,
    queuedMs: 30,
    charge: { kind: "observed", tokens: 37, clockTokens: 37 },
    share: { profile: undefined, bucket: "flat", weighted: true },
    ...over,
  };
  return base as SettlementRecord;
}

interface Bench {
  readonly metrics: FairShareMetrics;
  readonly ledger: Ledger;
  readonly series: (name: string) => Promise<Record<string, number>>;
}

function bench(sketch: FairSketch = {}): Bench {
  const registry = new Registry();
  const metrics = new FairShareMetrics(registry, new LabelCap(["auth:acme", "auth:b"], 32));
  const ledger = new Ledger(fairConfig(sketch), monotonicMs(0));
  metrics.observe(ledger);
  return {
    metrics,
    ledger,
    series: async (name) => {
      const found = (await registry.getMetricsAsJSON()).find((one) => one.name === name);
      return Object.fromEntries(
        (found?.values ?? [])
          .filter((value) => !("metricName" in value) || value.metricName === `${name}_count`)
          .map(({ labels, value }) => [Object.values(labels).join(" "), value]),
      );
    },
  };
}

const serve = (ledger: Ledger, tenant: string, model: string | undefined, tokens: number): void => {
  const accounting = model === undefined ? undefined : modelId(model);
  const ticket = ledger.enter(tenantKey(tenant), accounting, monotonicMs(0));
  ticket.reserve(tokens);
  ticket.settle({ tokens, clockTokens: tokens });
};

describe("FairShareMetrics", () => {
  it("counts the tokens charged, per named tenant and for all others together", async () => {
    const { metrics, series } = bench();
    metrics.settled(record({}));
    metrics.settled(record({}));
    metrics.settled(record({ tenant: tenantKey("ip:1.2.3.4") }));
    metrics.settled(record({ tenant: tenantKey("ip:1.2.3.5") }));
    expect(await series("weir_fair_share_charged_output_tokens_total")).to.deep.equal({
      "auth:acme": 74,
      other: 74,
    });
    expect(await series("weir_fair_share_model_charged_output_tokens_total")).to.deep.equal({});
  });

  it("counts the tokens of a profile by bucket, and the wait of whoever got a slot", async () => {
    const { metrics, series } = bench();
    const profile = modelId("m");
    metrics.settled(record({ share: { profile, bucket: "explicit", weighted: true } }));
    metrics.settled(
      record({
        tenant: tenantKey("auth:x"),
        share: { profile, bucket: "other", weighted: false },
      }),
    );
    metrics.settled(record({ admitted: false, charge: undefined }));
    expect(await series("weir_fair_share_model_charged_output_tokens_total")).to.deep.equal({
      "m explicit auth:acme": 37,
      "m other other": 37,
    });
    expect(await series("weir_fair_share_queue_wait_seconds")).to.deep.equal({
      "m auth:acme default": 1,
      "m other default": 1,
    });
    expect(await series("weir_fair_share_unknown_tenant_total")).to.deep.equal({ other: 1 });
  });

  it("counts each fallback and each refusal of the queue by its reason", async () => {
    const { metrics, series } = bench();
    metrics.settled(
      record({
        estimateFallback: "invalid_estimate",
        requestModelFallback: "missing_request_model",
        charge: { kind: "interrupted", tokens: 256, clockTokens: 256 },
      }),
    );
    metrics.settled(record({ admitted: false, charge: undefined, queueRefusal: "tenant_limit" }));
    metrics.settled(record({ admitted: false, charge: undefined, queueRefusal: "global_limit" }));
    expect(await series("weir_fair_share_fallback_total")).to.deep.equal({
      invalid_estimate: 1,
      missing_request_model: 1,
      interrupted: 1,
    });
    expect(await series("weir_fair_share_queue_rejections_total")).to.deep.equal({
      tenant_limit: 1,
      global_limit: 1,
    });
  });

  it("shows what is booked now, with the sum of all others under other", async () => {
    const { ledger, series } = bench();
    const tickets = ["auth:acme", "ip:1", "ip:2"].map((tenant, index) => {
      const ticket = ledger.enter(tenantKey(tenant), undefined, monotonicMs(0));
      ticket.reserve(10 * (index + 1));
      return ticket;
    });
    const booked = "weir_fair_share_reserved_output_tokens";
    expect(await series(booked)).to.deep.equal({ "auth:acme": 10, other: 50 });
    for (const ticket of tickets) ticket.cancel();
    expect(await series(booked)).to.deep.equal({ "auth:acme": 0, other: 0 });
  });

  it("shows the virtual finish of named tenants, and of the bucket of others as its own", async () => {
    const { ledger, series } = bench({
      profiles: { m: { weights: { "auth:acme": 4 }, other: 2 } },
    });
    serve(ledger, "auth:acme", undefined, 8);
    serve(ledger, "auth:acme", "m", 8);
    serve(ledger, "auth:b", "m", 10);
    serve(ledger, "ip:1", "m", 10);
    expect(await series("weir_fair_share_other_bucket_virtual_finish")).to.deep.equal({ m: 12 });
    expect(await series("weir_fair_share_virtual_finish")).to.deep.equal({
      "global auth:acme": 8,
      "m auth:acme": 2,
      "m auth:b": 10,
      "m other": 12,
    });
    expect(await series("weir_fair_share_tracked_tenants")).to.deep.equal({ "": 3 });
  });
});

// What each settlement does to the metrics, on a registry of its own.

import { expect } from "chai";
import { tenantKey, modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { PartitionView } from "../../../extproc/core/scheduler/admission.js";
import type { SettlementRecord } from "../../../extproc/core/request/settlement-record.js";
import { LabelCap } from "../../../extproc/edge/telemetry/label-cap.js";
import {
  createMetricsRegistry,
  metricsPage,
} from "../../../extproc/edge/telemetry/metrics-registry.js";
import { Metrics } from "../../../extproc/edge/telemetry/metrics.js";
import { healthyRegistry } from "../../support/workers.js";

const RECORD: SettlementRecord = {
  requestId: "r",
  tenant: tenantKey("auth:acme"),
  tenantSource: "metadata",
  refusedValues: [],
  endpoint: "chat",
  model: modelId("demo"),
  accountingModel: undefined,
  requestedClass: "default",
  class: "default",
  unknownPriorityValue: false,
  promoted: false,
  credit: false,
  feedbackReason: undefined,
  queueRefusal: undefined,
  share: undefined,
  requestModelFallback: undefined,
  preemptedBy: undefined,
  partition: partitionName("global"),
  unknownPartitionHeader: false,
  worker: { url: "http://127.0.0.1:8101", id: "w1", generation: 1, revision: 1 },
  selection: {
    policy: "cache_aware",
    result: "cached_owner_hold",
    engineLoad: "cached_owner_scoped",
    ownership: "committed",
    owners: 2,
    matchedBlocks: 3,
    promptBlocks: 4,
  },
  seed: undefined,
  staleHoldings: 5,
  stream: false,
  outcome: "success",
  rejection: undefined,
  status: 200,
  codeDetails: "via_upstream",
  admitted: true,
  waited: false,
  queuedMs: 0,
  timeToFirstByteMs: 120,
  durationMs: 500,
  estimateTokens: 256,
  estimateFallback: undefined,
  charge: { kind: "observed", tokens: 37, clockTokens: 37 },
  promptTokens: 9,
  cachedTokens: undefined,
  cutHold: false,
};

function metrics(tenants: readonly string[] = ["auth:acme"], topN = 32): Metrics {
  return new Metrics({
    registry: createMetricsRegistry(false),
    feedbackMode: "off",
    models: new LabelCap(["demo"], 10),
    tenants: new LabelCap(tenants, topN),
    startTimeSeconds: 1_700_000_000,
  });
}

async function lines(of: Metrics): Promise<readonly string[]> {
  const { text } = await metricsPage(of.registry);
  return text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

async function value(of: Metrics, series: string): Promise<number | undefined> {
  const line = (await lines(of)).find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

describe("Metrics", () => {
  it("counts an observed answer: admission, wait, first byte, charge, selection", async () => {
    const all = metrics();
    all.received();
    all.admitted();
    all.settled(RECORD);
    for (const [series, expected] of [
      ["weir_http_admission_received_total", 1],
      ["weir_http_admission_admitted_total", 1],
      ["weir_http_admission_success_total", 1],
      ['weir_settlements_total{kind="observed"}', 1],
      ['weir_fair_share_charged_output_tokens_total{tenant="auth:acme"}', 37],
      ['weir_worker_selection_total{model="demo",policy="cache_aware"}', 1],
      ['weir_cache_aware_engine_decisions_total{result="cached_owner_scoped"}', 1],
      ['weir_cache_aware_replication_decisions_total{model="demo",result="cached_owner_hold"}', 1],
      ['weir_cache_aware_prefix_owner_count_sum{model="demo"}', 2],
      ['weir_prefix_owner_stale_total{worker="http://127.0.0.1:8101"}', 5],
      ['weir_scheduler_queue_wait_seconds_count{class="default"}', 1],
      ['weir_scheduler_admit_total{class="default",outcome="admitted"}', 1],
      [
        'weir_scheduler_partition_admit_total{partition="global",class="default",outcome="admitted"}',
        1,
      ],
      ['weir_time_to_first_byte_seconds_sum{model="demo"}', 0.12],
      ["weir_http_admission_process_start_time_seconds", 1_700_000_000],
    ] as const) {
      expect(await value(all, series), series).to.equal(expected);
    }
  });

  it("counts why a refused request may not seed", async () => {
    const all = metrics();
    all.settled({ ...RECORD, seed: { kind: "ineligible", reason: "several_answers" } });
    const series = 'weir_seed_ineligible_total{partition="global",reason="several_answers"}';
    expect(await value(all, series)).to.equal(1);
  });

  it("counts each outcome in its own series and a refusal by its code", async () => {
    const all = metrics();
    const outcomes = ["http_4xx", "http_5xx", "interrupted", "pre_admission_interrupted"] as const;
    for (const outcome of outcomes) all.settled({ ...RECORD, outcome });
    const refused = { outcome: "rejected", admitted: false, charge: undefined } as const;
    all.settled({ ...RECORD, ...refused, rejection: "scheduler_queue_full" });
    all.settled({ ...RECORD, ...refused, endpoint: undefined, rejection: "unknown_path" });
    for (const outcome of [...outcomes, "rejected"]) {
      const series = `weir_http_admission_${outcome}_total`;
      expect(await value(all, series), series).to.equal(1);
    }
    expect(await value(all, 'weir_rejections_total{code="scheduler_queue_full"}')).to.equal(1);
    expect(await value(all, 'weir_rejections_total{code="unknown_path"}')).to.equal(1);
  });

  it("counts fallbacks, refused values, unknown partitions and cut holds by their reasons", async () => {
    const all = metrics();
    all.settled({
      ...RECORD,
      estimateFallback: "untrusted_estimate",
      unknownPartitionHeader: true,
      cutHold: true,
      refusedValues: [{ header: "x-weir-tenant-id", reason: "duplicate" }],
      charge: { kind: "missing_usage", tokens: 256, clockTokens: 256 },
    });
    for (const series of [
      'weir_fair_share_fallback_total{reason="untrusted_estimate"}',
      'weir_fair_share_fallback_total{reason="missing_usage"}',
      'weir_identity_refused_values_total{reason="duplicate"}',
      "weir_unknown_partition_header_total",
      "weir_envoy_cut_hold_total",
    ]) {
      expect(await value(all, series), series).to.equal(1);
    }
  });

  it("counts promotions, preemptions, clamps and unknown priorities, and ends a request in one outcome", async () => {
    const all = metrics();
    all.settled({
      ...RECORD,
      class: "bulk",
      requestedClass: "system",
      unknownPriorityValue: true,
      promoted: true,
      preemptedBy: "system",
    });
    const refused = { outcome: "rejected", admitted: false, waited: true } as const;
    all.settled({ ...RECORD, ...refused, rejection: "scheduler_queue_timeout" });
    all.settled({ ...RECORD, ...refused, waited: false, rejection: "scheduler_queue_full" });
    all.settled({ ...RECORD, outcome: "pre_admission_interrupted", admitted: false, waited: true });
    all.rateChecked(true);
    all.rateChecked(false);
    for (const series of [
      'weir_scheduler_admit_total{class="bulk",outcome="preempted"}',
      'weir_scheduler_admit_total{class="default",outcome="rejected_queue_timeout"}',
      'weir_scheduler_admit_total{class="default",outcome="rejected_queue_full"}',
      'weir_scheduler_admit_total{class="default",outcome="client_cancelled"}',
      'weir_scheduler_preemption_total{victim_class="bulk",by_class="system"}',
      'weir_scheduler_clamp_total{tenant="auth:acme",requested_class="system",effective_class="bulk"}',
      'weir_scheduler_unknown_priority_value_total{tenant="auth:acme"}',
      'weir_scheduler_starvation_promotion_total{class="bulk"}',
      'weir_http_rate_limit_total{result="allowed"}',
      'weir_http_rate_limit_total{result="rejected"}',
    ]) {
      expect(await value(all, series), series).to.equal(1);
    }
    expect(
      await value(all, 'weir_scheduler_admit_total{class="bulk",outcome="admitted"}'),
    ).to.equal(undefined);
  });

  it("never charges or counts a pass-through request as admission", async () => {
    const all = metrics();
    all.settled({ ...RECORD, endpoint: "pass_through", charge: undefined, admitted: false });
    expect(await value(all, "weir_http_admission_success_total")).to.equal(0);
    expect(await value(all, 'weir_settlements_total{kind="observed"}')).to.equal(undefined);
  });

  it("keeps a flood of tenants and models in one series each: 100,000 names give `other`", async () => {
    const all = metrics(["auth:acme"]);
    for (let index = 0; index < 100_000; index += 1) {
      all.settled({
        ...RECORD,
        tenant: tenantKey(`ip:${String(index)}`),
        model: modelId(`m${String(index)}`),
        charge: { kind: "observed", tokens: 1, clockTokens: 1 },
      });
    }
    const text = await lines(all);
    expect(text.length).to.be.below(200);
    expect(
      await value(all, 'weir_fair_share_charged_output_tokens_total{tenant="other"}'),
    ).to.equal(100_000);
  });

  it("reads its gauges at each scrape and drops the series of a worker that is gone", async () => {
    const all = metrics();
    const url = "http://127.0.0.1:1";
    const workers = healthyRegistry([{ url }]);
    workers.get(url)?.runtime.holdLoad();
    const view: PartitionView = {
      name: partitionName("p"),
      capacity: 8,
      queue_size: 10,
      in_flight: [0, 1, 2, 0],
      queued: [2, 0, 0, 0],
      reserved: [0, 0, 4, 0],
      queue_share: [5, 3, 1, 1],
      retry_after_secs: [9, 3, 1, 1],
      next: [[], [], [], []],
    };
    all.observe({
      partitions: () => [
        view,
        { ...view, name: partitionName("q"), capacity: 2, retry_after_secs: [1, 1, 1, 7] },
      ],
      capacity: () => ({
        total: 10,
        partitions: new Map(),
        healthyReplicas: new Map([[partitionName("p"), 3]]),
      }),
      workers,
      ledger: undefined,
      counts: () => ({ live: 5, queued: 2 }),
      now: () => monotonicMs(0),
    });
    for (const [series, expected] of [
      ['weir_scheduler_partition_capacity{partition="p"}', 8],
      ['weir_scheduler_partition_inflight{partition="p",class="interactive"}', 2],
      ['weir_scheduler_partition_queue_depth{partition="p",class="bulk"}', 2],
      ['weir_scheduler_partition_queue_size_limit{partition="p",class="default"}', 3],
      ['weir_scheduler_partition_utilization{partition="p"}', 0.375],
      ['weir_scheduler_partition_healthy_replicas{partition="p"}', 3],
      ['weir_scheduler_partition_healthy_replicas{partition="q"}', 0],
      ['weir_scheduler_inflight{class="interactive"}', 4],
      ['weir_scheduler_queue_depth{class="bulk"}', 4],
      ['weir_scheduler_queue_size_limit{class="bulk"}', 10],
      ['weir_scheduler_retry_after_seconds{class="bulk"}', 9],
      ['weir_scheduler_retry_after_seconds{class="system"}', 7],
      // default: 1 in flight on 2 - 4 kept = at least 1 slot in q; full there.
      ['weir_scheduler_class_capacity_pressure{class="default"}', 1],
      ["weir_scheduler_utilization", 0.6],
      ["weir_http_admission_active", 6],
      ["weir_http_admission_queued", 2],
      ["weir_http_admission_limit", 10],
      ["weir_http_admission_queue_capacity", 20],
      ["weir_requests_live", 5],
      [`weir_worker_requests_active{worker="${url}"}`, 1],
      [`weir_worker_healthy{worker="${url}"}`, 1],
      [`weir_worker_breaker_open{worker="${url}"}`, 0],
    ] as const) {
      expect(await value(all, series), series).to.equal(expected);
    }
    workers.remove(url);
    expect((await lines(all)).filter((line) => line.includes(url))).to.deep.equal([]);
  });
});

describe("LabelCap", () => {
  it("pins the first names in code-unit order, up to its limit, once each", () => {
    const cap = new LabelCap(["b", "a", "c", "a"], 2);
    expect(["a", "b", "c", "d", undefined].map((name) => cap.value(name))).to.deep.equal([
      "a",
      "b",
      "other",
      "other",
      "other",
    ]);
  });
});

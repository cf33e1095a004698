import { readFileSync } from "node:fs";
import { expect } from "chai";
import { pino } from "pino";
import { modelId, partitionName, tenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { SettlementRecord } from "../../../extproc/core/request/settlement-record.js";
import { logSettlement } from "../../../extproc/edge/telemetry/request-log.js";

const EVERYTHING: SettlementRecord = {
  requestId: "r-1",
  tenant: tenantKey("auth:acme"),
  tenantSource: "metadata",
  refusedValues: [{ header: "x-weir-tenant-id", reason: "duplicate" }],
  endpoint: "chat",
  model: modelId("demo"),
  accountingModel: modelId("other"),
  requestedClass: "system",
  class: "bulk",
  unknownPriorityValue: false,
  partition: partitionName("global"),
  unknownPartitionHeader: false,
  worker: { url: "http://127.0.0.1:1", id: "w1", generation: 1, revision: 1 },
  selection: {
    policy: "cache_aware",
    result: "cached_owner_hold",
    engineLoad: "cached_owner_scoped",
    ownership: "committed",
    owners: 2,
    matchedBlocks: 3,
    promptBlocks: 4,
  },
  seed: {
    kind: "seeded",
    story: {
      kind: "cache_aware_distribution_seed",
      workerUrl: "http://127.0.0.1:1",
      workerRevision: 2,
      telemetryRevision: 7,
      ownership: "committed",
      owners: 1,
      matchedBlocks: 3,
      occupied: 4,
      slots: 5,
      plannedAt: monotonicMs(1_000),
    },
    outcome: "failed",
    uncommitted: "no_usage",
    published: false,
  },
  staleHoldings: 5,
  stream: true,
  outcome: "http_5xx",
  rejection: "scheduler_preempted",
  status: 503,
  codeDetails: "via_upstream",
  admitted: true,
  waited: true,
  queuedMs: 12.345,
  promoted: true,
  credit: true,
  feedbackReason: "running_limit",
  queueRefusal: "tenant_limit",
  share: { profile: modelId("other"), bucket: "explicit", weighted: true },
  requestModelFallback: undefined,
  preemptedBy: "system",
  timeToFirstByteMs: 20.06,
  durationMs: 30,
  estimateTokens: 256,
  estimateFallback: undefined,
  charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
  promptTokens: 3,
  cachedTokens: 2,
  cutHold: true,
};

function lineOf(record: SettlementRecord): Record<string, unknown> {
  const lines: string[] = [];
  logSettlement(pino({ base: null }, { write: (line: string) => lines.push(line) }), record);
  expect(lines).to.have.length(1);
  return JSON.parse(lines[0] ?? "") as Record<string, unknown>;
}

describe("logSettlement", () => {
  it("writes every field that docs/metrics.md names, and no other", () => {
    const page = readFileSync("docs/metrics.md", "utf8");
    const table = page.slice(page.indexOf("## The log")).split("\n");
    const documented = table
      .filter((line) => line.startsWith("| `"))
      .flatMap((line) => (line.split("|")[1] ?? "").split(","))
      .map((cell) => cell.trim().replaceAll("`", ""));
    const { level, time, msg, ...fields } = lineOf(EVERYTHING);
    expect([level, typeof time, msg]).to.deep.equal([30, "number", "request settled"]);
    expect(Object.keys(fields)).to.have.members(documented);
  });

  it("says by what, how and for whose cache the worker was chosen", () => {
    expect(lineOf(EVERYTHING)).to.include({
      selection_policy: "cache_aware",
      selection: "cached_owner_hold",
      engine_load: "cached_owner_scoped",
      prefix_source: "committed",
      prefix_owners: 2,
      matched_blocks: 3,
      prompt_blocks: 4,
      stale_holdings: 5,
    });
  });

  it("tells the whole story of a seed, or why the request did not become one", () => {
    expect(lineOf(EVERYTHING)["seed"]).to.deep.equal({
      result: "failed",
      reason: "no_usage",
      kind: "cache_aware_distribution_seed",
      published: false,
      worker_url: "http://127.0.0.1:1",
      worker_revision: 2,
      telemetry_revision: 7,
      ownership: "committed",
      owners: 1,
      matched_blocks: 3,
      occupied: 4,
      slots: 5,
    });
    const seedOf = (seed: SettlementRecord["seed"]): unknown =>
      lineOf({ ...EVERYTHING, seed })["seed"];
    expect(seedOf({ kind: "ineligible", reason: "streaming" })).to.deep.equal({
      result: "ineligible",
      reason: "streaming",
    });
    expect(seedOf({ kind: "refused", refusal: "plan_no_clean_peer" })).to.deep.equal({
      result: "refused",
      reason: "plan_no_clean_peer",
    });
    expect(lineOf({ ...EVERYTHING, seed: undefined })).to.not.have.property("seed");
  });

  it("rounds times to a tenth of a millisecond and leaves out what does not apply", () => {
    expect(lineOf(EVERYTHING)).to.include({
      queue_ms: 12.3,
      first_byte_ms: 20.1,
      class: "bulk",
      requested_class: "system",
    });
    const quiet = lineOf({
      ...EVERYTHING,
      requestedClass: "bulk",
      promoted: false,
      preemptedBy: undefined,
      cutHold: false,
      refusedValues: [],
      selection: undefined,
      staleHoldings: 0,
    });
    expect(quiet).to.not.have.any.keys(
      "requested_class",
      "promoted",
      "preempted_by",
      "cut_hold",
      "refused_values",
      "selection",
      "matched_blocks",
      "stale_holdings",
    );
  });
});

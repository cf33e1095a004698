// The one log line of each request, made from its settlement record.

import type { SeedRecord } from "../../core/request/seed-record.js";
import type { SettlementRecord } from "../../core/request/settlement-record.js";
import type { Log } from "./log.js";

/** What became of a refused request as a seed, and on what ground; the times are those of the line. */
function seedFields(seed: SeedRecord | undefined): object | undefined {
  switch (seed?.kind) {
    case undefined:
      return undefined;
    case "ineligible":
      return { result: "ineligible", reason: seed.reason };
    case "refused":
      return { result: "refused", reason: seed.refusal };
    case "seeded": {
      const { story, outcome, uncommitted, published } = seed;
      return {
        result: outcome,
        reason: uncommitted,
        kind: story.kind,
        published,
        worker_url: story.workerUrl,
        worker_revision: story.workerRevision,
        telemetry_revision: story.telemetryRevision,
        ownership: story.ownership,
        owners: story.owners,
        matched_blocks: story.matchedBlocks,
        occupied: story.occupied,
        slots: story.slots,
      };
    }
  }
}

const roundMs = (value: number): number => Math.round(value * 10) / 10;

/** Writes the line; undefined fields are left out. */
export function logSettlement(log: Log, record: SettlementRecord): void {
  const { charge, worker, selection, timeToFirstByteMs } = record;
  log.info(
    {
      request_id: record.requestId,
      tenant: record.tenant,
      tenant_source: record.tenantSource,
      endpoint: record.endpoint,
      model: record.model,
      accounting_model: record.accountingModel,
      class: record.class,
      requested_class: record.requestedClass === record.class ? undefined : record.requestedClass,
      partition: record.partition,
      worker: worker?.id,
      worker_url: worker?.url,
      selection_policy: selection?.policy,
      selection: selection?.result,
      engine_load: selection?.engineLoad,
      prefix_owners: selection?.owners,
      prefix_source: selection?.ownership,
      matched_blocks: selection?.matchedBlocks,
      prompt_blocks: selection?.promptBlocks,
      seed: seedFields(record.seed),
      stale_holdings: record.staleHoldings > 0 ? record.staleHoldings : undefined,
      stream: record.stream,
      outcome: record.outcome,
      code: record.rejection,
      status: record.status,
      code_details: record.codeDetails,
      share_model: record.share?.profile,
      share_bucket: record.share?.bucket,
      queue_refusal: record.queueRefusal,
      feedback: record.feedbackReason,
      queue_ms: roundMs(record.queuedMs),
      first_byte_ms: timeToFirstByteMs === undefined ? undefined : roundMs(timeToFirstByteMs),
      duration_ms: roundMs(record.durationMs),
      estimate_tokens: record.estimateTokens,
      charged_tokens: charge?.tokens,
      kind: charge?.kind,
      prompt_tokens: record.promptTokens,
      cached_tokens: record.cachedTokens,
      refused_values: record.refusedValues.length > 0 ? record.refusedValues : undefined,
      credit: record.credit || undefined,
      promoted: record.promoted || undefined,
      preempted_by: record.preemptedBy,
      cut_hold: record.cutHold || undefined,
    },
    "request settled",
  );
}

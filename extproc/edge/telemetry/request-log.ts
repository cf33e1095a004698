// The one log line of each request, made from its settlement record.

import type { SettlementRecord } from "../../core/request/settlement-record.js";
import type { Log } from "./log.js";

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

// What `GET /state/selection` shows: how each model's workers are chosen and how it was decided so far,
// what each worker is known to hold, what is booked on it, and how much memory that takes.

import type { WeirConfig } from "../../core/model/config.js";
import type { WorkerSelector } from "../../core/selection/selector.js";
import type { WorkerRegistry } from "../../core/workers/registry.js";

export function selectionPage(
  { models, selection }: Pick<WeirConfig, "models" | "selection">,
  selector: WorkerSelector,
  workers: WorkerRegistry,
): object {
  const { committed, events, bookings, protections } = selector;
  const served = new Set([...workers.all()].flatMap((worker) => [...worker.models]));
  const decisions = [...selector.decisions.all()];
  return {
    max_cached_owners_per_prefix: selection.max_cached_owners_per_prefix,
    cache_owner_spill_cooldown_secs: selection.cache_owner_spill_cooldown_secs,
    index_bytes: { committed: committed.bytes, events: events.bytes },
    index_bytes_max_per_worker: selection.max_tree_size,
    protected_prefixes: protections.entries,
    seeded_prefixes: protections.seeds,
    models: Array.from(served, (model) => ({
      model,
      policy: models.get(model)?.policy ?? "power_of_two",
      ownership: models.get(model)?.ownership ?? "committed",
      events_block_size: events.hasData(model) ? events.blockSizeOf(model) : null,
      decisions: decisions
        .filter((decision) => decision.model === model)
        .map(({ policy, result, count }) => ({ policy, result, count })),
    })),
    workers: Array.from(workers.all(), ({ identity, runtime }) => ({
      url: identity.url,
      live_load: runtime.liveLoad,
      processed: runtime.processed,
      reserved_tokens: bookings.reservedTokens(identity.generation),
      claims: bookings.claims(identity.generation),
      leased: bookings.leaseOf(identity.generation) !== undefined,
      committed_blocks: committed.blocksOf(identity.generation),
      event_blocks: events.blocksOf(identity.generation),
    })),
  };
}

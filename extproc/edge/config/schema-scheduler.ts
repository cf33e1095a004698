// The section `scheduler`: slots, classes, ceilings of tenants, partitions and queues. Bounds that
// need a second value (a partition's mode, sums of partitions) stand in rules-scheduler.ts.

import { z } from "zod";
import { PRIORITY_CLASSES } from "../../core/model/priority.js";
import { DEFAULTS } from "./defaults.js";
import { atLeast, decimal, mapping, name, named, oneOf, onOff, someOf } from "./fields.js";
import { tenantName, whole } from "./fields.js";

const SCHEDULER = DEFAULTS.scheduler;

/** Slots are counted in 16 bits by the engines that report them. */
export const SLOTS_MAX = 65_535;
const WAITERS_MAX = 1_000_000;
/** Soft shares are weights, so only their proportions matter; 32 bits keep the sums exact. */
const SOFT_SHARE_MAX = 4_294_967_295;
/** A request that waits for an hour has lost its client. */
const WAIT_SECS_MAX = 3600;
/** Far above what one process answers. */
const REQUESTS_PER_SECOND_MAX = 1_000_000;

const priorityClass = oneOf(PRIORITY_CLASSES);

const classes = someOf(
  PRIORITY_CLASSES,
  mapping({
    reserved_floor: whole(0, SLOTS_MAX).describe(
      "Slots kept back for the class whatever the capacity; scaled to a partition's part.",
    ),
    reserved_per_slot: atLeast(0)
      .default(0)
      .describe("Share of the capacity kept back for the class."),
    queue_size: whole(0, SOFT_SHARE_MAX).describe("Soft share of the queue; reported only."),
    queue_timeout_secs: whole(1, WAIT_SECS_MAX).describe("Longest wait of the class for a slot."),
    starvation_threshold_secs: whole(1, WAIT_SECS_MAX).describe(
      "Wait after which the class may take a slot that is kept back for another.",
    ),
    can_preempt: onOff.describe("May end a lower request that has no first byte yet."),
  }),
);

const tenantPolicies = named(
  mapping({
    max_class: priorityClass.describe("Highest class of the tenant; a higher wish is lowered."),
  }),
  tenantName,
);

const partitions = named(
  mapping({
    max_concurrent_requests: whole(1, SLOTS_MAX)
      .optional()
      .describe("Slots; required unless the partition follows its healthy replicas."),
    capacity_from_healthy_replicas: onOff
      .default(false)
      .describe("Slots follow the healthy workers of the partition; the same for all partitions."),
    max_concurrent_requests_per_healthy_replica: whole(1, SLOTS_MAX)
      .optional()
      .describe("Slots per healthy worker; absent = what the workers report."),
    queue_size: whole(0, WAITERS_MAX).describe("Waiters of the partition; 0 = nobody waits."),
  }),
);

const SLOTS_ALLOWED = `must be -1 (what the workers report) or a whole number from 1 to ${String(SLOTS_MAX)}`;
const slotsOrReported = z
  .int({ error: SLOTS_ALLOWED })
  .min(-1, { error: SLOTS_ALLOWED })
  .max(SLOTS_MAX, { error: SLOTS_ALLOWED })
  .refine((value) => value !== 0, { error: SLOTS_ALLOWED });

export const schedulerSection = mapping({
  enabled: onOff
    .default(SCHEDULER.enabled)
    .describe("Classes and partitions; false = one plain limiter."),
  max_concurrent_requests: slotsOrReported
    .default(SCHEDULER.max_concurrent_requests)
    .describe("Most requests in flight; -1 = what the workers report, in the limiter no limit."),
  queue_size: whole(0, WAITERS_MAX)
    .default(SCHEDULER.queue_size)
    .describe("Most waiters; with partitions, the most their sizes may add up to."),
  queue_timeout_secs: whole(1, WAIT_SECS_MAX)
    .optional()
    .describe("Longest wait in the limiter's queue; with the scheduler each class has its own."),
  queue_timeout_status: oneOf([408, 429, 503])
    .default(SCHEDULER.queue_timeout_status)
    .describe("HTTP status of a request that waited in vain."),
  rate_limit_tokens_per_second: whole(0, REQUESTS_PER_SECOND_MAX)
    .optional()
    .describe(
      "Requests per second beside the slots; absent or 0 = no check. Limiter: tokens that come back " +
        "by themselves; absent = as many as its slots, 0 = none.",
    ),
  classes: classes
    .prefault(SCHEDULER.classes)
    .describe("Settings of a class; a listed class replaces its whole default."),
  default_max_class: priorityClass
    .default(SCHEDULER.default_max_class)
    .describe("Highest class of tenants without a policy."),
  tenant_policies: tenantPolicies
    .prefault(SCHEDULER.tenant_policies)
    .describe("Highest class of single tenants, by tenant key."),
  reserved_share_max: decimal(0, 1)
    .default(SCHEDULER.reserved_share_max)
    .describe("Part of a partition's slots that all classes together may keep back."),
  starvation_max_share: decimal(0, 1)
    .default(SCHEDULER.starvation_max_share)
    .describe("Part of a partition's last 64 grants that may go to a starved class first."),
  admission_partitions: partitions
    .prefault(SCHEDULER.admission_partitions)
    .describe("Pools with slots and a queue of their own; empty = one pool."),
  default_admission_partition: name
    .default(SCHEDULER.default_admission_partition)
    .describe("Partition of requests that belong to no other."),
  adaptive_capacity: oneOf(["auto", true, false])
    .default(SCHEDULER.adaptive_capacity)
    .describe("Slots of a partition follow its engines; auto = with mode enforce and partitions."),
  fallback_to_limiter: onOff
    .default(SCHEDULER.fallback_to_limiter)
    .describe("Run the limiter when classes, tenant_policies or partitions are wrong."),
});

// Turns the checked section `scheduler` into the tables the core indexes by class and partition. A
// class that is listed replaces its whole default: mixing a written floor with a default timeout
// would give a class that nobody designed. With the scheduler off there are no partitions, because
// the limiter has one pool, and a request must not be tied to the workers of a pool it does not use.

import type {
  AdaptiveAdmissionMode,
  ClassConfig,
  PartitionConfig,
  SchedulerConfig,
} from "../../core/model/config.js";
import { partitionName, tenantKey, type PartitionName } from "../../core/model/ids.js";
import { className, perClass, rankOf } from "../../core/model/priority.js";
import { CLASS_DEFAULTS, LIMITER_QUEUE_TIMEOUT_SECS } from "./defaults.js";
import { adaptiveCapacity } from "./freeze-adaptive-admission.js";
import type { FileConfig } from "./schema.js";

type SchedulerSection = FileConfig["scheduler"];

/** The section as the core reads it; every class and timeout is filled in. */
export function schedulerConfig(
  section: SchedulerSection,
  mode: AdaptiveAdmissionMode,
  seedCap: number,
): SchedulerConfig {
  const slots = section.max_concurrent_requests;
  return {
    enabled: section.enabled,
    max_concurrent_requests: slots === -1 ? undefined : slots,
    queue_size: section.queue_size,
    queue_timeout_secs: section.queue_timeout_secs ?? LIMITER_QUEUE_TIMEOUT_SECS,
    queue_timeout_status: section.queue_timeout_status,
    classes: perClass<ClassConfig>((rank) => {
      const name = className(rank);
      return { ...(section.classes[name] ?? CLASS_DEFAULTS[name]) };
    }),
    default_max_class: rankOf(section.default_max_class),
    tenant_policies: new Map(
      Object.entries(section.tenant_policies).map(([tenant, policy]) => [
        tenantKey(tenant),
        rankOf(policy.max_class),
      ]),
    ),
    reserved_share_max: section.reserved_share_max,
    starvation_max_share: section.starvation_max_share,
    rate_limit_tokens_per_second: section.rate_limit_tokens_per_second,
    admission_partitions: section.enabled ? partitionConfigs(section) : new Map(),
    default_admission_partition: partitionName(section.default_admission_partition),
    adaptive_capacity: adaptiveCapacity(section, mode, seedCap),
  };
}

function partitionConfigs(section: SchedulerSection): Map<PartitionName, PartitionConfig> {
  return new Map(
    Object.entries(section.admission_partitions).map(([name, partition]) => [
      partitionName(name),
      {
        max_concurrent_requests: partition.max_concurrent_requests,
        max_concurrent_requests_per_healthy_replica:
          partition.max_concurrent_requests_per_healthy_replica,
        queue_size: partition.queue_size,
      },
    ]),
  );
}

// The fleets that are simulated, as weir.yaml describes them, and a second, naive calculation of how
// many slots each partition has: from what the healthy workers report now, by the rules as they are
// written down, sharing no code with Weir.

import type { SelectionPolicy } from "../../extproc/core/model/selection-config.js";
import { PRIORITY_CLASSES, type PriorityClass } from "../../extproc/core/model/priority.js";
import type { ConfigSketch } from "../support/config.js";
import type { FairRule } from "./fair-book.js";

export interface ClassRule {
  readonly name: PriorityClass;
  readonly reservedFloor: number;
  readonly reservedPerSlot: number;
  readonly queueTimeoutSecs: number;
  readonly starvationSecs: number;
  readonly canPreempt: boolean;
}

const rule = (
  name: PriorityClass,
  [reservedFloor, reservedPerSlot]: readonly [number, number],
  [queueTimeoutSecs, starvationSecs]: readonly [number, number],
  canPreempt: boolean,
): ClassRule => ({
  name,
  reservedFloor,
  reservedPerSlot,
  queueTimeoutSecs,
  starvationSecs,
  canPreempt,
});

/** By rank. Short times, so that every rule meets its moment often. */
export const CLASSES: readonly ClassRule[] = [
  rule("bulk", [0, 0], [40, 8], false),
  rule("default", [0, 0.1], [20, 5], false),
  rule("interactive", [4, 0.25], [10, 3], true),
  rule("system", [3, 0], [6, 2], true),
];

/** Reservations of all classes together take at most this part of the capacity. */
const RESERVED_SHARE_MAX = 0.5;
export const STARVATION_MAX_SHARE = 0.25;
const ASSUMED_SLOTS = 64;

export interface PartitionRule {
  readonly name: string;
  readonly queueSize: number;
  /** Slots of a partition that does not follow its workers. */
  readonly maximum?: number;
  /** Slots per healthy worker; absent = what its workers report. */
  readonly perReplica?: number;
}

export interface WorkerRule {
  readonly cluster: string;
  readonly port: number;
  readonly model: string;
  /** Requests that the engine works on at once. */
  readonly slots: number;
}

export interface FleetPlan {
  readonly title: string;
  /** The operator's limit. */
  readonly maximum: number;
  readonly partitions: readonly PartitionRule[];
  readonly workers: readonly WorkerRule[];
  /** Absent = waiters of a class are served in the order of arrival. */
  readonly fair?: FairRule;
  /** How workers are chosen; absent = by two choices. */
  readonly policy?: SelectionPolicy;
}

/** The model `gamma` has no partition of its own. */
const WORKERS: readonly WorkerRule[] = [
  { cluster: "a1", port: 1, model: "alpha", slots: 6 },
  { cluster: "a2", port: 2, model: "alpha", slots: 6 },
  { cluster: "b1", port: 3, model: "beta", slots: 6 },
  { cluster: "d1", port: 4, model: "gamma", slots: 4 },
  { cluster: "d2", port: 5, model: "gamma", slots: 4 },
];

/**
 * Ceiling and weights that meet their moment often. Weights are powers of two; two tenants have none of
 * their own in the profile of `alpha`, and share what is left.
 */
const FAIR: FairRule = {
  weights: { "ip:203.0.113.1": 4, "ip:203.0.113.2": 0.5 },
  defaultWeight: 1,
  profiles: { alpha: { weights: { "ip:203.0.113.1": 1, "ip:203.0.113.3": 2 }, other: 0.5 } },
  maxQueuedPerTenant: 12,
};

export const FLEETS: readonly FleetPlan[] = [
  {
    title: "with partitions of a fixed size",
    maximum: 26,
    workers: WORKERS,
    partitions: [
      { name: "alpha", maximum: 12, queueSize: 30 },
      { name: "beta", maximum: 6, queueSize: 6 },
      { name: "default", maximum: 8, queueSize: 40 },
    ],
  },
  {
    title: "with partitions that follow their workers",
    maximum: 24,
    workers: WORKERS,
    partitions: [
      { name: "alpha", perReplica: 5, queueSize: 30 },
      { name: "beta", queueSize: 6 },
      { name: "default", queueSize: 40 },
    ],
  },
  {
    title: "with fair sharing between its tenants",
    maximum: 24,
    workers: WORKERS,
    partitions: [
      { name: "alpha", perReplica: 5, queueSize: 30 },
      { name: "beta", queueSize: 6 },
      { name: "default", queueSize: 40 },
    ],
    fair: FAIR,
  },
  {
    title: "with workers chosen by their caches",
    maximum: 24,
    workers: WORKERS,
    partitions: [
      { name: "alpha", perReplica: 5, queueSize: 30 },
      { name: "beta", queueSize: 6 },
      { name: "default", queueSize: 40 },
    ],
    policy: "cache_aware",
  },
];

/** Tenants are addresses; the ceiling of the third is that of everybody without a policy. */
export const TENANTS = [
  { address: "203.0.113.1", ceiling: 3, policy: true },
  { address: "203.0.113.2", ceiling: 1, policy: true },
  { address: "203.0.113.3", ceiling: 2, policy: false },
  { address: "203.0.113.4", ceiling: 0, policy: true },
] as const;

export const urlOf = (port: number): string => `http://127.0.0.1:${String(port)}`;

function modelsOf({ workers, policy }: FleetPlan): ConfigSketch {
  if (policy === undefined) return {};
  return Object.fromEntries(workers.map(({ model }) => [model, { policy }]));
}

/** The fleet as weir.yaml has it. */
export function fleetConfig(plan: FleetPlan): ConfigSketch {
  return {
    workers: plan.workers.map(({ cluster, port, model, slots }) => ({
      url: urlOf(port),
      cluster,
      models: [model],
      labels: { max_running_requests: slots },
    })),
    models: modelsOf(plan),
    trust: { admission_partition: true, request_model: true, output_token_estimate: true },
    fair_share: plan.fair === undefined ? { enabled: false } : fairShareOf(plan.fair),
    scheduler: {
      max_concurrent_requests: plan.maximum,
      queue_size: 100,
      classes: Object.fromEntries(
        CLASSES.map((one) => [
          one.name,
          {
            reserved_floor: one.reservedFloor,
            reserved_per_slot: one.reservedPerSlot,
            queue_size: 100,
            queue_timeout_secs: one.queueTimeoutSecs,
            starvation_threshold_secs: one.starvationSecs,
            can_preempt: one.canPreempt,
          },
        ]),
      ),
      default_max_class: "interactive",
      tenant_policies: Object.fromEntries(
        TENANTS.filter(({ policy }) => policy).map(({ address, ceiling }) => [
          `ip:${address}`,
          { max_class: PRIORITY_CLASSES[ceiling] },
        ]),
      ),
      reserved_share_max: RESERVED_SHARE_MAX,
      starvation_max_share: STARVATION_MAX_SHARE,
      admission_partitions: Object.fromEntries(
        plan.partitions.map(({ name, maximum, perReplica, queueSize }) => [
          name,
          {
            queue_size: queueSize,
            ...(maximum === undefined
              ? { capacity_from_healthy_replicas: true }
              : { max_concurrent_requests: maximum }),
            ...(perReplica === undefined
              ? {}
              : { max_concurrent_requests_per_healthy_replica: perReplica }),
          },
        ]),
      ),
    },
  };
}

function fairShareOf(rule: FairRule): ConfigSketch {
  return {
    default_weight: rule.defaultWeight,
    tenant_weights: rule.weights,
    model_profiles: Object.fromEntries(
      Object.entries(rule.profiles).map(([model, { weights, other }]) => [
        model,
        { tenant_weights: weights, other_weight: other },
      ]),
    ),
    max_queued_requests_per_tenant: rule.maxQueuedPerTenant,
  };
}

/** One worker as Weir should see it now. */
export interface WorkerState {
  readonly rule: WorkerRule;
  present: boolean;
  /** Undefined until its first check. */
  healthy: boolean | undefined;
  failedChecks: number;
  generation: number;
  /** The ceiling it reports. */
  reported: number | undefined;
  /** The partition it is labelled with. */
  label: string | undefined;
}

const CHECKS_TO_FAIL = 2;

export class FleetState {
  readonly plan: FleetPlan;
  readonly workers: readonly WorkerState[];
  readonly #floors: ReadonlyMap<string, readonly number[]>;
  #generations: number;

  /** All workers are there and healthy. */
  constructor(plan: FleetPlan) {
    this.plan = plan;
    this.#generations = plan.workers.length;
    this.workers = plan.workers.map((one, index) => ({
      rule: one,
      present: true,
      healthy: true,
      failedChecks: 0,
      generation: index + 1,
      reported: one.slots,
      label: undefined,
    }));
    const atStart = this.slots();
    this.#floors = new Map(
      plan.partitions.map(({ name, maximum, perReplica }) => {
        const nominal = maximum ?? perReplica ?? atStart.get(name) ?? 0;
        return [
          name,
          CLASSES.map(({ reservedFloor }) => Math.ceil((reservedFloor * nominal) / plan.maximum)),
        ];
      }),
    );
  }

  checked(worker: WorkerState, passed: boolean): void {
    worker.healthy ??= passed;
    worker.failedChecks = passed ? 0 : worker.failedChecks + 1;
    if (passed) worker.healthy = true;
    else if (worker.failedChecks >= CHECKS_TO_FAIL) worker.healthy = false;
  }

  /** Forgotten and, later, registered anew. */
  register(worker: WorkerState, present: boolean): void {
    worker.present = present;
    worker.healthy = undefined;
    worker.failedChecks = 0;
    if (!present) return;
    this.#generations += 1;
    worker.generation = this.#generations;
  }

  /** The partition in which a worker's slots count. */
  partitionOf({ label, rule: { model } }: WorkerState): string {
    return this.#known(label ?? model) ?? "default";
  }

  /** The partition of a request that names one, or names none. */
  partitionFor(named: string | undefined, model: string): string {
    return this.#known(named) ?? this.#known(model) ?? "default";
  }

  /** Some worker of the partition is there for the model. */
  serves(model: string, partition: string): boolean {
    return this.workers.some(
      (worker) =>
        worker.present && worker.rule.model === model && this.partitionOf(worker) === partition,
    );
  }

  /** Slots of each partition now. */
  slots(): Map<string, number> {
    const healthy = this.workers.filter((worker) => worker.present && worker.healthy === true);
    const offered = sum(healthy.map(({ reported }) => reported ?? ASSUMED_SLOTS));
    const fleet = healthy.length === 0 ? this.plan.maximum : Math.min(offered, this.plan.maximum);
    const weights = new Map(
      this.plan.partitions.map(({ name, maximum, perReplica }) => {
        const own = healthy.filter((worker) => this.partitionOf(worker) === name);
        const reporting = own.flatMap(({ reported }) => reported ?? []);
        if (maximum !== undefined) return [name, maximum];
        if (perReplica !== undefined) return [name, perReplica * own.length];
        if (reporting.length > 0) {
          return [name, Math.floor((sum(reporting) * own.length) / reporting.length)];
        }
        return [name, healthy.length === 0 ? 0 : Math.floor((fleet * own.length) / healthy.length)];
      }),
    );
    return naiveSplit(weights, Math.min(fleet, sum([...weights.values()])));
  }

  /** Slots kept back per class in a partition of this many slots. */
  reserved(partition: string, slots: number): number[] {
    const kept = [0, 0, 0, 0];
    let left = Math.floor(RESERVED_SHARE_MAX * slots);
    for (const rank of [3, 2, 1, 0]) {
      const floor = this.#floors.get(partition)?.[rank] ?? 0;
      const share = Math.ceil((CLASSES[rank]?.reservedPerSlot ?? 0) * slots);
      kept[rank] = Math.min(slots, Math.max(floor, share), left);
      left -= kept[rank] ?? 0;
    }
    return kept;
  }

  #known(name: string | undefined): string | undefined {
    return this.plan.partitions.find((partition) => partition.name === name)?.name;
  }
}

export const sum = (values: readonly number[]): number =>
  values.reduce((left, right) => left + right, 0);

/** Largest remainders over the weights, ties to the smaller name. */
function naiveSplit(weights: ReadonlyMap<string, number>, total: number): Map<string, number> {
  const all = sum([...weights.values()]);
  const shares = new Map<string, number>();
  for (const [name, weight] of weights) {
    shares.set(name, all === 0 ? 0 : Math.floor((weight * total) / all));
  }
  if (all === 0) return shares;
  const byRemainder = [...weights].sort(
    ([a, one], [b, other]) => ((other * total) % all) - ((one * total) % all) || (a < b ? -1 : 1),
  );
  const left = total - sum([...shares.values()]);
  for (const [name] of byRemainder.slice(0, left)) shares.set(name, (shares.get(name) ?? 0) + 1);
  return shares;
}

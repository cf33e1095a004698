// Capacity credits in tests: bindings, predictable tokens, and a registry on virtual time whose slots are
// counted by hand.

import { modelId, partitionName, tenantKey } from "../../extproc/core/model/ids.js";
import { monotonicMs, type MonotonicMs } from "../../extproc/core/model/time.js";
import type { CreditBinding } from "../../extproc/core/scheduler/credit-binding.js";
import {
  CreditRegistry,
  type CreditArm,
  type CreditHold,
  type CreditIssue,
  type CreditRedeem,
} from "../../extproc/core/scheduler/credit-registry.js";

export const POOL = partitionName("pool");

export function binding(over: Partial<CreditBinding> = {}): CreditBinding {
  return {
    generation: "g1",
    policyEpoch: 7n,
    partition: POOL,
    model: modelId("demo"),
    tenant: tenantKey("header:a"),
    requestId: "req-1",
    estimateTokens: 1_024,
    ...over,
  };
}

/** One binding for each of the seven facts in which it differs from `binding()`. */
export const OTHER_BINDINGS: readonly CreditBinding[] = [
  binding({ generation: "g2" }),
  binding({ policyEpoch: 8n }),
  binding({ partition: partitionName("other") }),
  binding({ model: modelId("other") }),
  binding({ tenant: tenantKey("header:b") }),
  binding({ requestId: "req-2" }),
  binding({ estimateTokens: 2_048 }),
];

/** Bytes that never repeat and are no secret. */
export function countingBytes(): (bytes: number) => Uint8Array {
  let count = 0;
  return (bytes) => {
    count += 1;
    const made = new Uint8Array(bytes);
    new DataView(made.buffer).setUint32(0, count);
    return made;
  };
}

/** A hold that knows whether it was released, how often, and when. */
export class TestHold implements CreditHold {
  releases = 0;
  onRelease: () => void = () => undefined;
  readonly release = (): void => {
    this.releases += 1;
    this.onRelease();
  };
}

export interface RegistrySketch {
  readonly ttlMs?: number;
  readonly retentionMs?: number;
  readonly rememberedMax?: number;
  /** Slots there are; a released hold gives its own back, a redeemed one does not. */
  readonly slots?: number;
}

export class RegistryBench {
  readonly registry: CreditRegistry<TestHold>;
  readonly holds: TestHold[] = [];
  /** What was counted, as `partition outcome`. */
  readonly operations: string[] = [];
  readonly wakes: number[] = [];
  /** Asked for a slot, successfully or not. */
  acquisitions = 0;
  slots: number;
  now: MonotonicMs = monotonicMs(0);

  constructor(sketch: RegistrySketch = {}) {
    this.slots = sketch.slots ?? 1_000;
    this.registry = new CreditRegistry<TestHold>({
      generation: "g1",
      ttlMs: sketch.ttlMs ?? 30_000,
      retentionMs: sketch.retentionMs ?? 600_000,
      secureRandom: countingBytes(),
      acquire: () => this.#acquire(),
      onOperation: (partition, outcome) => {
        this.operations.push(`${partition ?? "unknown"} ${outcome}`);
      },
      onWake: (at) => {
        this.wakes.push(at);
      },
      ...(sketch.rememberedMax === undefined ? {} : { rememberedMax: sketch.rememberedMax }),
    });
  }

  at(seconds: number): this {
    this.now = monotonicMs(seconds * 1_000);
    return this;
  }

  issue(over: Partial<CreditBinding> = {}): CreditIssue {
    return this.registry.issue(binding(over), this.now);
  }

  /** Issues a credit that must be issued, and gives its token. */
  token(over: Partial<CreditBinding> = {}): string {
    const issued = this.issue(over);
    if (!issued.ok) throw new Error(issued.failure);
    return issued.token;
  }

  arm(token: string, dispatchId = "d-1", bound: CreditBinding = binding()): CreditArm {
    return this.registry.arm(token, bound, dispatchId, this.now);
  }

  redeem(token: string, bound: CreditBinding = binding()): CreditRedeem<TestHold> {
    return this.registry.redeem(token, bound, this.now);
  }

  cancel(token: string): void {
    this.registry.cancel(token, this.now);
  }

  maintain(): void {
    this.registry.maintain(this.now);
  }

  get active(): number {
    return this.registry.active(POOL);
  }

  #acquire(): TestHold | undefined {
    this.acquisitions += 1;
    if (this.slots === 0) return undefined;
    this.slots -= 1;
    const hold = new TestHold();
    hold.onRelease = () => {
      this.slots += 1;
    };
    this.holds.push(hold);
    return hold;
  }
}

export const failure = (answer: { readonly ok: boolean; readonly failure?: string }): string =>
  answer.ok ? "ok" : (answer.failure ?? "");

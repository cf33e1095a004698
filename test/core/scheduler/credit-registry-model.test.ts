// The registry of credits over a real scheduler and ledger, against a naive model on random schedules: a
// plain list of credits that is walked through at each step. Checked after each step: the answer; that
// slots in use are active credits and running requests, nothing else; that booked and charged tokens are
// their sums; that nobody waits beside a free slot; that memory is what the model remembers.

import { expect } from "chai";
import fc from "fast-check";
import { GLOBAL_PARTITION } from "../../../extproc/core/model/config.js";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { AdmissionProof } from "../../../extproc/core/scheduler/admission-proof.js";
import { sumOf } from "../../../extproc/core/scheduler/admission.js";
import { sameBinding, type CreditBinding } from "../../../extproc/core/scheduler/credit-binding.js";
import { CreditRegistry } from "../../../extproc/core/scheduler/credit-registry.js";
import type { SlotHold } from "../../../extproc/core/scheduler/slot-hold.js";
import { binding, countingBytes, failure } from "../../support/credits.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench } from "../../support/scheduler.js";

const TTL_MS = 2_000;
const RETENTION_MS = 5_000;
const REMEMBERED_MAX = 5;
const SLOTS = 3;
const TENANTS = ["header:a", "header:b"] as const;
const STATE_FAILURES = {
  redeemed: "already_redeemed",
  cancelled: "cancelled",
  expired: "expired",
} as const;

interface NaiveCredit {
  readonly token: string;
  readonly bound: CreditBinding;
  state: "active" | keyof typeof STATE_FAILURES;
  deadline: number;
  dispatch: string | undefined;
  forgetAt: number;
}

interface Running {
  readonly name: string;
  readonly tenant: string;
  readonly estimate: number;
}

/** In what an issue differs from the plain one of its request. */
type Odd = "nothing" | "generation" | "estimate";

type Step =
  | { readonly do: "issue"; readonly which: number; readonly odd: Odd }
  | { readonly do: "arm"; readonly which: number; readonly odd: boolean; readonly dispatch: string }
  | { readonly do: "redeem"; readonly which: number; readonly odd: boolean }
  | { readonly do: "cancel"; readonly which: number }
  | { readonly do: "finish"; readonly which: number; readonly tokens: number | undefined }
  | { readonly do: "ask"; readonly tenant: number }
  | { readonly do: "resize"; readonly slots: number }
  | { readonly do: "pass"; readonly ms: number };

const index = fc.nat({ max: 7 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("issue"),
      which: index,
      odd: fc.constantFrom("nothing", "nothing", "nothing", "nothing", "generation", "estimate"),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("arm"),
      which: index,
      odd: oneIn(6),
      dispatch: fc.constantFrom("d-1", "d-2", ""),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("redeem"), which: index, odd: oneIn(4) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("cancel"), which: index }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("finish"),
      which: index,
      tokens: fc.option(fc.nat({ max: 50 }), { nil: undefined }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("ask"), tenant: fc.nat({ max: 1 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("resize"), slots: fc.nat({ max: SLOTS }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("pass"),
      ms: fc.constantFrom(0, 1, 300, 700, 1_000, TTL_MS - 1, TTL_MS, RETENTION_MS),
    }),
  },
);

function oneIn(count: number): fc.Arbitrary<boolean> {
  return fc.nat({ max: count - 1 }).map((drawn) => drawn === 0);
}

/** Eight requests of two tenants, each with its estimate. */
function requestOf(which: number): CreditBinding {
  return binding({
    partition: GLOBAL_PARTITION,
    tenant: tenantKey(TENANTS[which % 2] ?? "header:a"),
    requestId: `req-${String(which >> 1)}`,
    estimateTokens: 10 + which,
  });
}

class Both {
  readonly fair = fairQueueing();
  readonly bench = new SchedulerBench({ capacity: SLOTS, queueSize: 3, fair: this.fair });
  readonly registry: CreditRegistry<SlotHold<string>>;
  /** In the order of issue. */
  readonly credits: NaiveCredit[] = [];
  /** In the order of death. */
  readonly dead: NaiveCredit[] = [];
  /** Every token that was ever given, in order; the last ones are tried again. */
  readonly tokens: string[] = ["A".repeat(43)];
  readonly bound = new Map<string, CreditBinding>();
  readonly running: Running[] = [];
  readonly charged = new Map<string, number>();
  waiting = new Map<string, Running>();
  capacity = SLOTS;
  #requests = 0;
  #granted = 0;

  constructor() {
    this.registry = new CreditRegistry<SlotHold<string>>({
      generation: "g1",
      ttlMs: TTL_MS,
      retentionMs: RETENTION_MS,
      rememberedMax: REMEMBERED_MAX,
      secureRandom: countingBytes(),
      acquire: (bound, now) => this.bench.scheduler.hold(bound, now),
      onOperation: () => undefined,
      onWake: () => undefined,
    });
  }

  run(one: Step): void {
    if (one.do === "pass") this.bench.advance(one.ms);
    else this.#act(one);
    this.bench.scheduler.dispatch(this.bench.now);
    this.#hearGrants();
    this.check();
  }

  end(): void {
    for (const credit of this.credits) this.registry.cancel(credit.token, this.bench.now);
    this.#due();
    for (const credit of this.#active()) this.#kill(credit, "cancelled");
    while (this.running.length > 0 || this.waiting.size > 0) {
      this.bench.resize(SLOTS);
      this.capacity = SLOTS;
      this.#hearGrants();
      this.#finish(0, 1);
      this.bench.scheduler.dispatch(this.bench.now);
      this.#hearGrants();
    }
    this.check();
    expect(sumOf(this.bench.view().in_flight)).to.equal(0);
  }

  check(): void {
    const { bench, registry, credits, running, fair } = this;
    const active = this.#active();
    const view = bench.view();
    expect(sumOf(view.in_flight), "slots").to.equal(active.length + running.length);
    expect(registry.active(GLOBAL_PARTITION), "active").to.equal(active.length);
    expect(registry.remembered, "remembered").to.equal(credits.length);
    expect(sumOf(view.queued), "waiters").to.equal(this.waiting.size);
    if (this.waiting.size > 0) expect(sumOf(view.in_flight) >= this.capacity).to.equal(true);
    for (const tenant of TENANTS) {
      const held = active.filter(({ bound }) => bound.tenant === tenant);
      const runs = running.filter((one) => one.tenant === tenant);
      const booked =
        held.reduce((sum, { bound }) => sum + bound.estimateTokens, 0) +
        runs.reduce((sum, { estimate }) => sum + estimate, 0);
      const account = fair.ledger.account(tenantKey(tenant));
      expect(account?.reserved ?? 0, `booked of ${tenant}`).to.equal(booked);
      expect(account?.active ?? 0).to.equal(held.length + runs.length);
      expect(account?.charged ?? 0, `charged of ${tenant}`).to.equal(this.charged.get(tenant) ?? 0);
    }
  }

  #act(one: Exclude<Step, { readonly do: "pass" }>): void {
    switch (one.do) {
      case "issue":
        this.#issue(requestOf(one.which), one.odd);
        break;
      case "arm":
        this.#arm(this.#tokenOf(one.which), one.odd, one.dispatch);
        break;
      case "redeem":
        this.#redeem(this.#tokenOf(one.which), one.odd);
        break;
      case "cancel":
        this.#cancel(this.#tokenOf(one.which));
        break;
      case "finish":
        this.#finish(one.which, one.tokens);
        break;
      case "ask":
        this.#ask(TENANTS[one.tenant] ?? "header:a");
        break;
      case "resize":
        this.capacity = one.slots;
        this.bench.resize(one.slots);
        break;
    }
  }

  #issue(request: CreditBinding, odd: Odd): void {
    const { generation, estimateTokens } = request;
    const bound = {
      ...request,
      generation: odd === "generation" ? "g0" : generation,
      estimateTokens: odd === "estimate" ? estimateTokens + 100 : estimateTokens,
    };
    const answer = this.registry.issue(bound, this.bench.now);
    if (odd === "generation") {
      expect(failure(answer)).to.equal("wrong_generation");
      return;
    }
    this.#due();
    const known = this.credits.find(
      (each) => each.bound.tenant === bound.tenant && each.bound.requestId === bound.requestId,
    );
    if (known !== undefined) {
      const expected = !sameBinding(known.bound, bound)
        ? "request_conflict"
        : known.state === "active"
          ? "ok"
          : STATE_FAILURES[known.state];
      expect(failure(answer)).to.equal(expected);
      if (answer.ok) {
        expect(answer).to.deep.include({ token: known.token, newlyIssued: false });
        expect(answer.expiresInMs).to.equal(known.deadline - this.bench.now);
      }
      return;
    }
    const full = this.credits.length === REMEMBERED_MAX;
    const [oldestDead] = this.dead;
    const free = this.capacity - this.#active().length - this.running.length;
    if (free <= 0 || (full && oldestDead === undefined)) {
      expect(failure(answer)).to.equal("no_capacity");
      return;
    }
    if (!answer.ok) throw new Error(`refused although there is room: ${answer.failure}`);
    expect(answer).to.deep.include({ expiresInMs: TTL_MS, newlyIssued: true });
    expect(this.tokens).to.not.include(answer.token);
    if (full && oldestDead !== undefined) this.#forget(oldestDead);
    this.tokens.push(answer.token);
    this.bound.set(answer.token, bound);
    this.credits.push({
      token: answer.token,
      bound,
      state: "active",
      deadline: this.bench.now + TTL_MS,
      dispatch: undefined,
      forgetAt: 0,
    });
  }

  #arm(token: string, odd: boolean, dispatch: string): void {
    const bound = this.#boundOf(token, odd);
    const answer = this.registry.arm(token, bound, dispatch, this.bench.now);
    this.#due();
    const credit = this.credits.find((each) => each.token === token);
    let expected = "ok";
    if (dispatch === "") expected = "invalid_binding";
    else if (credit === undefined) expected = "unknown";
    else if (odd) expected = "binding_mismatch";
    else if (credit.state !== "active") expected = STATE_FAILURES[credit.state];
    else if (credit.dispatch !== undefined && credit.dispatch !== dispatch) {
      expected = "already_armed";
    }
    expect(failure(answer)).to.equal(expected);
    if (!answer.ok || credit === undefined) return;
    expect(answer.newlyArmed).to.equal(credit.dispatch === undefined);
    if (answer.newlyArmed) credit.deadline = this.bench.now + TTL_MS;
    credit.dispatch = dispatch;
    expect(answer.expiresInMs).to.equal(credit.deadline - this.bench.now);
  }

  #redeem(token: string, odd: boolean): void {
    const bound = this.#boundOf(token, odd);
    const { now } = this.bench;
    const answer = this.registry.redeem(token, bound, now);
    this.#due();
    const credit = this.credits.find((each) => each.token === token);
    let expected = "ok";
    if (credit === undefined) expected = "unknown";
    else if (odd) expected = "binding_mismatch";
    else if (credit.state !== "active") expected = STATE_FAILURES[credit.state];
    expect(failure(answer)).to.equal(expected);
    if (!answer.ok || credit === undefined) return;
    this.#kill(credit, "redeemed");
    this.#requests += 1;
    const name = `r-${String(this.#requests)}`;
    const { tenant, model, partition, requestId, generation, policyEpoch } = bound;
    const proof = new AdmissionProof(
      { tenant, requestId: name, model, partition },
      { source: "redeemed_credit", creditRequestId: requestId, generation, policyEpoch },
    );
    this.bench.permits.set(name, answer.hold.admit(name, proof, now));
    this.running.push({ name, tenant, estimate: bound.estimateTokens });
  }

  #cancel(token: string): void {
    this.registry.cancel(token, this.bench.now);
    this.#due();
    const credit = this.credits.find((each) => each.token === token);
    if (credit?.state === "active") this.#kill(credit, "cancelled");
  }

  /** Ends a running request: settled with what it cost, or dropped, which costs the estimate. */
  #finish(which: number, tokens: number | undefined): void {
    const [one] = this.running.splice(which % Math.max(1, this.running.length), 1);
    if (one === undefined) return;
    const cost = tokens ?? one.estimate;
    this.charged.set(one.tenant, (this.charged.get(one.tenant) ?? 0) + cost);
    if (tokens === undefined) this.bench.release(one.name);
    else this.bench.settle(one.name, tokens);
  }

  #ask(tenant: string): void {
    this.#requests += 1;
    const one = { name: `o-${String(this.#requests)}`, tenant, estimate: 10 };
    const kind = this.bench.admit(one.name, "default", GLOBAL_PARTITION, {
      tenant,
      estimateTokens: 10,
    });
    if (kind === "granted") this.running.push(one);
    if (kind === "queued") this.waiting.set(one.name, one);
    // A newcomer may take the place of another tenant's waiter.
    for (const name of this.bench.displaced.splice(0)) this.waiting.delete(name);
  }

  #hearGrants(): void {
    for (const { request } of this.bench.timedOut.splice(0)) this.waiting.delete(request);
    for (const name of this.bench.granted.slice(this.#granted)) {
      const one = this.waiting.get(name);
      this.waiting.delete(name);
      if (one !== undefined) this.running.push(one);
    }
    this.#granted = this.bench.granted.length;
  }

  #active(): NaiveCredit[] {
    return this.credits.filter(({ state }) => state === "active");
  }

  #kill(credit: NaiveCredit, state: keyof typeof STATE_FAILURES): void {
    credit.state = state;
    credit.forgetAt = this.bench.now + RETENTION_MS;
    this.dead.push(credit);
  }

  #forget(credit: NaiveCredit): void {
    this.credits.splice(this.credits.indexOf(credit), 1);
    this.dead.splice(this.dead.indexOf(credit), 1);
  }

  /** What falls due by now, in the order of the deadlines. */
  #due(): void {
    const { now } = this.bench;
    const overdue = this.#active().filter(({ deadline }) => deadline <= now);
    overdue.sort((one, other) => one.deadline - other.deadline);
    for (const credit of overdue) this.#kill(credit, "expired");
    for (const credit of this.dead.filter(({ forgetAt }) => forgetAt <= now)) this.#forget(credit);
  }

  /** Mostly one of the last tokens, sometimes one that was never given. */
  #tokenOf(which: number): string {
    return this.tokens[Math.max(0, this.tokens.length - 1 - which)] ?? "";
  }

  #boundOf(token: string, odd: boolean): CreditBinding {
    const bound = this.bound.get(token) ?? requestOf(0);
    return odd ? { ...bound, policyEpoch: bound.policyEpoch + 1n } : bound;
  }
}

describe("the registry of credits against a naive model", () => {
  it("answers alike, and slots and charges reconcile, whatever happens in whatever order", () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 150, size: "max" }), (steps) => {
        const both = new Both();
        for (const one of steps) both.run(one);
        both.end();
      }),
      { numRuns: 200 },
    );
  });
});

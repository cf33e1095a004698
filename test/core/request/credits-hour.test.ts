// An hour of an allocator's traffic on virtual time, at a whole core: credits issued, armed, redeemed, lost,
// cancelled, replayed and presented wrongly; requests that end in every way; ordinary requests of all
// classes between them; workers that come and go; engines that refuse. Checked every simulated second: slots
// in use are active credits and live requests, booked tokens are their estimates. Checked at the end:
// nothing is left. The seed is printed; SIM_SEED replays it.

import { expect } from "chai";
import { tenantKey, type TenantKey } from "../../../extproc/core/model/ids.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { CreditBinding } from "../../../extproc/core/scheduler/credit-binding.js";
import { Chance } from "../../sim/chance.js";
import { chosenSeed } from "../../sim/chosen-seed.js";
import { EventQueue } from "../../sim/event-queue.js";
import { Allocator, CREDITS, creditSketch, outcomeOf } from "../../support/credit-desk.js";
import { binding, POOL } from "../../support/credits.js";
import { NOTHING_LEFT, type Driven } from "../../support/desk.js";
import { FeedbackDesk, URLS } from "../../support/feedback-desk.js";

const MINUTE_MS = 60_000;
const SLOTS = 24;
const TTL_MS = 2_000;
const RETENTION_SECS = 20;
/** Credits the allocator wants outstanding. */
const WINDOW = 16;
const TENANTS: readonly TenantKey[] = ["header:a", "header:b", "header:c"].map(tenantKey);
const CLASSES = ["bulk", "default", "interactive", "system"] as const;
const PLAIN = { reserved_floor: 0, reserved_per_slot: 0, queue_size: 50, queue_timeout_secs: 20 };
const PATIENT = { ...PLAIN, starvation_threshold_secs: 5, can_preempt: false };
const URGENT = { ...PATIENT, reserved_floor: 2, can_preempt: true };

class Traffic {
  readonly chance: Chance;
  readonly outcomes = new Map<string, number>();
  readonly bench: FeedbackDesk;
  readonly allocator: Allocator;
  readonly #endMs: number;
  readonly #events = new EventQueue();
  readonly #live = new Set<Driven>();
  readonly #down = new Set<string>();
  readonly #spent: (readonly [string, CreditBinding])[] = [];
  #outstanding = 0;
  #requests = 0;

  constructor(seed: number, minutes: number, adaptiveCapacity: boolean) {
    this.chance = new Chance(seed);
    this.#endMs = minutes * MINUTE_MS;
    this.bench = new FeedbackDesk(
      { mode: "enforce" },
      creditSketch(SLOTS, {
        scheduler: {
          queue_size: 60,
          admission_partitions: { [POOL]: { max_concurrent_requests: SLOTS, queue_size: 60 } },
          default_max_class: "system",
          classes: { bulk: PATIENT, default: PATIENT, interactive: URGENT, system: URGENT },
          adaptive_capacity: adaptiveCapacity,
          rate_limit_tokens_per_second: 14,
        },
      }),
      { ...CREDITS, ttl_ms: TTL_MS, terminal_retention_secs: RETENTION_SECS },
    );
    this.allocator = new Allocator(this.bench);
  }

  run(): void {
    this.#every(50, () => {
      this.#issue();
    });
    this.#every(80, () => {
      if (this.chance.once(0.6)) this.#ordinary();
    });
    this.#every(500, () => {
      this.#engines();
    });
    this.#every(1_000, () => {
      this.#check();
    });
    for (;;) {
      const next = this.#events.next();
      const { deadline } = this.bench;
      if (deadline !== undefined && deadline <= (next?.atMs ?? this.#endMs)) {
        this.bench.deadline = undefined;
        this.bench.now = monotonicMs(Math.max(this.bench.now, deadline));
        this.bench.desk.expire(this.bench.now);
        if (next !== undefined) this.#events.plan(next.atMs, next.label, next.run);
      } else if (next === undefined) {
        return;
      } else {
        this.bench.now = monotonicMs(next.atMs);
        next.run();
      }
      this.#turns();
    }
  }

  /** Lets time pass until no credit is remembered any more. */
  drainMemory(): void {
    for (let second = 0; second <= RETENTION_SECS + 5; second += 1) {
      this.bench.advance(1_000);
      this.bench.desk.expire(this.bench.now);
    }
  }

  /** Lets everything that is left end. */
  finish(): void {
    for (const url of this.#down) this.bench.registry.recordHealth(url, true);
    for (let round = 0; round < 100; round += 1) {
      for (const driven of [...this.#live]) this.bench.answer(driven);
      for (const driven of [...this.#live])
        this.bench.desk.end(driven.request, false, this.bench.now);
      this.#forgetEnded();
      this.bench.advance(1_000);
      this.bench.desk.expire(this.bench.now);
    }
  }

  /** Charges that are provisional still. */
  charges(): number {
    const { ledger } = this.bench;
    return TENANTS.reduce((sum, tenant) => sum + (ledger?.account(tenant)?.active ?? 0), 0);
  }

  /** Tokens of those charges. */
  booked(): number {
    return TENANTS.reduce((sum, tenant) => sum + this.bench.tokens(tenant)[1], 0);
  }

  #turns(): void {
    for (let asked = this.bench.moreWork; asked > 0; asked = this.bench.moreWork) {
      this.bench.moreWork = 0;
      this.bench.desk.turn(this.bench.now);
    }
  }

  #every(periodMs: number, run: () => void): void {
    const again = (atMs: number): void => {
      if (atMs >= this.#endMs) return;
      this.#events.plan(atMs, "tick", () => {
        run();
        again(atMs + periodMs);
      });
    };
    again(periodMs);
  }

  #in(ms: number, run: () => void): void {
    this.#events.plan(this.bench.now + ms, "later", run);
  }

  #issue(): void {
    if (this.#outstanding >= WINDOW) return;
    this.#requests += 1;
    const bound = binding({
      tenant: this.chance.pick(TENANTS),
      requestId: `req-${String(this.#requests)}`,
      estimateTokens: this.chance.whole(1, 4_000),
    });
    const issued = this.allocator.issue(bound);
    this.#count(`issue ${issued.ok ? "ok" : issued.failure}`);
    if (!issued.ok) return;
    const { token } = issued;
    this.#outstanding += 1;
    const arms = this.chance.once(0.4);
    const lost = this.chance.once(0.1);
    const cancels = this.chance.once(0.08);
    if (this.chance.once(0.1)) this.allocator.issue(bound);
    if (arms) {
      this.#in(this.chance.exponential(400), () => {
        const { credits } = this.allocator;
        const armed = credits.arm(token, bound, "d-1", this.bench.now);
        this.#count(`arm ${armed.ok ? "ok" : armed.failure}`);
      });
    }
    this.#in(lost ? 2 * TTL_MS : this.chance.exponential(700), () => {
      this.#outstanding -= 1;
      if (lost) return;
      if (cancels) this.allocator.credits.cancel(token, this.bench.now);
      else this.#redeem(token, bound);
    });
  }

  #redeem(token: string, bound: CreditBinding): void {
    if (this.chance.once(0.05)) {
      this.#send(this.allocator.send(token, { ...bound, policyEpoch: 9n }), "wrong");
    }
    if (this.chance.once(0.05)) {
      this.#send(this.allocator.send(token, bound, { "x-weir-request-model": null }), "unreadable");
    }
    this.#send(this.allocator.send(token, bound), "redeem");
    this.#spent.push([token, bound]);
    if (this.#spent.length > 50) this.#spent.shift();
    if (this.chance.once(0.05)) {
      const [old, about] = this.chance.pick(this.#spent);
      this.#send(this.allocator.send(old, about), "replay");
    }
  }

  #ordinary(): void {
    const headers = {
      "x-weir-tenant-id": this.chance.pick(TENANTS).replace("header:", ""),
      "x-weir-priority": this.chance.pick(CLASSES),
    };
    this.#send(this.bench.drive({ headers }), "ordinary");
  }

  /** Follows a request to its end. */
  #send(driven: Driven, what: string): void {
    this.#count(`${what} ${outcomeOf(driven)}`);
    if (driven.request.ended) return;
    this.#live.add(driven);
    this.#in(this.chance.exponential(1_500), () => {
      this.#end(driven);
    });
  }

  #end(driven: Driven): void {
    const how = this.chance.unit();
    const running = driven.last()?.kind === "route";
    if (running && how < 0.75) this.bench.answer(driven, usageOf(this.chance.whole(0, 3_000)));
    else if (running && how < 0.8) this.bench.answer(driven, {}, 503);
    else if (running && how < 0.82) this.bench.desk.fail(driven.request, this.bench.now);
    else this.bench.desk.end(driven.request, false, this.bench.now);
    this.#live.delete(driven);
  }

  #engines(): void {
    const pressure = this.chance.once(0.1);
    const one = (): object => ({
      running: this.chance.whole(0, 12),
      waiting: pressure ? this.chance.whole(1, 9) : 0,
    });
    this.bench.report(one(), this.chance.once(0.9) ? one() : undefined);
    const url = this.chance.pick(URLS);
    if (this.chance.once(0.02)) {
      this.#down.add(url);
      for (let check = 0; check < 2; check += 1) this.bench.registry.recordHealth(url, false);
    } else if (this.chance.once(0.2)) {
      this.#down.delete(url);
      this.bench.registry.recordHealth(url, true);
    }
  }

  #check(): void {
    this.#forgetEnded();
    const { live, queued } = this.bench.desk.counts;
    const { inFlight } = this.bench.leftovers();
    expect(live, "requests").to.equal(this.#live.size);
    expect(inFlight, "slots").to.equal(this.allocator.active + live - queued);
    expect(this.charges(), "charges").to.equal(inFlight);
    expect(this.allocator.active).to.be.at.most(this.#outstanding);
    if (live === 0 && this.allocator.active === 0) expect(this.booked()).to.equal(0);
  }

  #forgetEnded(): void {
    for (const driven of this.#live) if (driven.request.ended) this.#live.delete(driven);
  }

  #count(what: string): void {
    this.outcomes.set(what, (this.outcomes.get(what) ?? 0) + 1);
  }
}

const usageOf = (tokens: number): object => ({ usage: { completion_tokens: tokens } });

/** What must have been met, or the run shows little. */
const MET = [
  "issue ok",
  "issue no_capacity",
  "arm ok",
  "redeem route",
  "redeem 409 capacity_credit_expired",
  "redeem 429 rate_limited",
  "wrong 409 capacity_credit_binding_mismatch",
  "unreadable 400 invalid_capacity_credit",
  "replay 409 capacity_credit_already_redeemed",
  "ordinary route",
  "ordinary hold",
];

function leavesNothing(minutes: number, adaptiveCapacity: boolean): ReadonlyMap<string, number> {
  const seed = chosenSeed();
  console.log(`      SIM_SEED=${String(seed)}`);
  const traffic = new Traffic(seed, minutes, adaptiveCapacity);
  traffic.run();
  traffic.finish();
  expect(traffic.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  const { allocator } = traffic;
  expect([allocator.active, traffic.charges(), traffic.booked()]).to.deep.equal([0, 0, 0]);
  traffic.drainMemory();
  expect(allocator.credits.remembered).to.equal(0);
  return traffic.outcomes;
}

describe("an allocator's traffic", function () {
  this.timeout(60_000);

  it("of an hour leaves no slot, charge, waiter or credit behind, with slots that follow the engines", () => {
    expect([...leavesNothing(60, true).keys()]).to.include.members(MET);
  });

  it("of ten minutes leaves nothing behind either when the engines refuse after the redemption", () => {
    const met = [...leavesNothing(10, false).keys()];
    expect(met).to.include("redeem 429 adaptive_admission_saturated");
  });
});

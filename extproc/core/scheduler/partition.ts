// One partition: its slots, its lanes, and the step that joins them. A step serves at most one waiter:
// first a starved lane, ignoring reservations and within the bound of promotions; then the highest
// class that has a waiter and may take a slot.
//
// Invariants: slots in use = permits and holds not yet released; waiters <= queue size between calls; within the
// requests of one tenant in a lane nobody is passed, and without fair sharing within the lane. A shrink below what is in use takes nothing away.

import type { FairTicket } from "../fairshare/ticket.js";
import { CREDIT_PRIORITY } from "../identity/priority.js";
import type { PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import { perClass, RANKS, RANKS_DOWN, type ClassRank } from "../model/priority.js";
import { after, type MonotonicMs } from "../model/time.js";
import type { AdmissionAsk, PartitionView, QueueLimit } from "./admission.js";
import { Lanes, newWaiter, type FairQueueing, type LaneWaiter } from "./lanes.js";
import type { PartitionSettings } from "./partition-settings.js";
import { Admitted, type Permit } from "./permit.js";
import { Preemption, type Victim } from "./preemption.js";
import { PromotionWindow } from "./promotions.js";
import { ReleaseRate } from "./release-rate.js";
import { classReservations } from "./reservations.js";
import { SlotHold, type HoldAsk } from "./slot-hold.js";
import { SlotPool } from "./slot-pool.js";

export interface Grant<T> {
  readonly waiter: LaneWaiter<T>;
  readonly permit: Permit;
}

/** Class of everything that is admitted by a credit. */
const CREDIT_RANK = CREDIT_PRIORITY.effective;
/** A lane is starved when its head is older than its threshold, so not at the very moment. */
const PAST_THRESHOLD_MS = 1;

export class Partition<T> {
  readonly name: PartitionName;
  readonly settings: PartitionSettings;
  readonly #slots = new SlotPool();
  readonly #lanes = new Lanes<T>();
  readonly #promotions: PromotionWindow;
  readonly #preemption = new Preemption<T>();
  readonly #rate: ReleaseRate;
  readonly #fair: FairQueueing | undefined;
  readonly #onChanged: (partition: Partition<T>) => void;

  constructor(
    settings: PartitionSettings,
    capacity: number,
    fair: FairQueueing | undefined,
    onChanged: (partition: Partition<T>) => void,
    now: MonotonicMs,
  ) {
    this.name = settings.name;
    this.settings = settings;
    this.#promotions = new PromotionWindow(settings.starvationMaxShare);
    this.#rate = new ReleaseRate(now);
    this.#fair = fair;
    this.#onChanged = onChanged;
    this.setCapacity(capacity);
  }

  get queued(): number {
    return this.#lanes.size;
  }

  /** The limit that a waiter, already among the others, has crossed. */
  limitCrossedBy(waiter: LaneWaiter<T>): QueueLimit | undefined {
    const tenantMax = this.#fair?.maxQueuedPerTenant;
    if (tenantMax !== undefined && this.#lanes.queuedLike(waiter) > tenantMax) {
      return "tenant_limit";
    }
    return this.#lanes.size > this.settings.queueSize ? "global_limit" : undefined;
  }

  setCapacity(slots: number): void {
    if (slots === this.#slots.capacity) return;
    const { reservations, reservedShareMax } = this.settings;
    this.#slots.resize(slots, classReservations(reservations, slots, reservedShareMax));
  }

  /** Takes a slot for a request that meets no waiter at all. */
  tryAdmit(ask: AdmissionAsk<T>, now: MonotonicMs): Permit | undefined {
    if (this.#lanes.size > 0 || !this.#slots.tryTake(ask.rank)) return undefined;
    this.#promotions.dispatched(undefined);
    const how = { queuedMs: 0, promoted: false, spared: false };
    const ticket = this.#enter(ask, now);
    if (ticket !== undefined) this.#lanes.pass(ask.rank, ticket);
    return this.#permit(ask, how, ticket, now);
  }

  /**
   * Takes a slot for a credit, past whoever waits: by the rule of its class, or else out of what is kept
   * back for higher ones. Undefined when there is none, or nobody keeps accounts.
   */
  hold(ask: HoldAsk, now: MonotonicMs): SlotHold<T> | undefined {
    const ledger = this.#fair?.ledger;
    if (ledger === undefined) return undefined;
    const slots = this.#slots;
    if (!slots.tryTake(CREDIT_RANK) && !slots.tryTakeIgnoringReservations(CREDIT_RANK)) {
      return undefined;
    }
    const ticket = ledger.enter(ask.tenant, ask.model, now);
    this.#lanes.pass(CREDIT_RANK, ticket);
    ticket.reserve(ask.estimateTokens);
    return new SlotHold<T>(
      ask.tenant,
      (request, proof, at) => {
        // From now on it may give way to somebody who waits already.
        this.#onChanged(this);
        this.#promotions.dispatched(undefined);
        const facts = { rank: CREDIT_RANK, queuedMs: 0, promoted: false, spared: false, proof };
        return this.#admitted(request, facts, ticket, at);
      },
      () => {
        ticket.cancel();
        this.#slotFreed(CREDIT_RANK);
      },
    );
  }

  /** Queues a request, also beyond the limits: the caller takes it out again if nothing serves it. */
  enqueue(ask: AdmissionAsk<T>, now: MonotonicMs): LaneWaiter<T> {
    const patienceMs = this.settings.classes[ask.rank].queueTimeoutMs;
    const waiter = newWaiter(ask, now, patienceMs, this.#enter(ask, now));
    const catchUpTokens = (this.#fair?.catchUpTokensPerSlot ?? 0) * this.#slots.capacity;
    this.#lanes.push(waiter, catchUpTokens);
    return waiter;
  }

  /** Takes out the waiter that gives up its place in a full queue to a newcomer. */
  makeRoomFor(newcomer: LaneWaiter<T>): LaneWaiter<T> | undefined {
    const displaced = this.#lanes.givesWayTo(newcomer);
    if (displaced !== undefined) this.remove(displaced);
    return displaced;
  }

  /** Serves one waiter, if one can be served. */
  step(now: MonotonicMs): Grant<T> | undefined {
    if (this.#lanes.size === 0 || this.#slots.free === 0) return undefined;
    return this.#promote(now) ?? this.#serveHighest(now);
  }

  /**
   * Marks one victim for the waiters, if one is needed and would help. A lane that is due for a
   * promotion would get the freed slot, so nobody gives way for a higher class then.
   */
  preempt(now: MonotonicMs): Victim<T> | undefined {
    if (this.#lanes.size === 0) return undefined;
    const promoted = this.#promotions.allowsContested ? this.#lowestStarved(now) : undefined;
    return this.#preemption.mark(
      this.#lanes.depths,
      (rank) =>
        this.settings.classes[rank].canPreempt && (promoted === undefined || promoted >= rank),
      this.#slots,
    );
  }

  /** Takes a waiter out, wherever it stands; false when it no longer waits. */
  remove(waiter: LaneWaiter<T>): boolean {
    const left = this.#lanes.remove(waiter);
    if (left) waiter.share?.ticket.leave();
    return left;
  }

  /** Takes out one waiter whose time is over; with `all`, any waiter. */
  expire(now: MonotonicMs, all: boolean): LaneWaiter<T> | undefined {
    const waiter = all ? this.#anyWaiter() : this.#lanes.overdue(now);
    if (waiter !== undefined) this.remove(waiter);
    return waiter;
  }

  /**
   * The moment at which a lane becomes starved while a slot is free that its class rule keeps from
   * it. Without such a slot nothing falls due: the next release is a step of its own.
   */
  nextPromotion(now: MonotonicMs): MonotonicMs | undefined {
    if (this.#slots.free === 0) return undefined;
    let earliest: MonotonicMs | undefined;
    for (const rank of RANKS) {
      const head = this.#lanes.head(rank);
      if (head === undefined) continue;
      const at = this.#starvedAt(head);
      if (at > now && (earliest === undefined || at < earliest)) earliest = at;
    }
    return earliest;
  }

  /** Deadline of the lane heads; the earliest moment at which `expire` finds somebody. */
  nextDeadline(): MonotonicMs | undefined {
    let earliest: MonotonicMs | undefined;
    for (const rank of RANKS) {
      const deadline = this.#lanes.head(rank)?.deadline;
      if (deadline !== undefined && (earliest === undefined || deadline < earliest)) {
        earliest = deadline;
      }
    }
    return earliest;
  }

  /** Whole seconds after which a refused request of a class may come again. */
  retryAfterS(rank: ClassRank, now: MonotonicMs): number {
    let ahead = 0;
    for (const higher of RANKS) if (higher >= rank) ahead += this.#lanes.depth(higher);
    return this.#rate.retryAfterS(ahead, this.settings.classes[rank].queueTimeoutMs / 1_000, now);
  }

  view(now: MonotonicMs): PartitionView {
    return {
      name: this.name,
      capacity: this.#slots.capacity,
      queue_size: this.settings.queueSize,
      in_flight: this.#slots.inFlight,
      queued: this.#lanes.depths,
      reserved: this.#slots.reserved,
      queue_share: perClass((rank) => this.settings.classes[rank].queueShare),
      retry_after_secs: perClass((rank) => this.retryAfterS(rank, now)),
      next: perClass((rank) => this.#lanes.explain(rank)),
    };
  }

  #promote(now: MonotonicMs): Grant<T> | undefined {
    let chosen: ClassRank | undefined;
    let chosenContested = false;
    for (const rank of RANKS) {
      const head = this.#lanes.head(rank);
      // The highest class is never starved: nobody stands before it.
      if (rank === 3 || head === undefined || this.#starvedAt(head) > now) continue;
      const contested = this.#contested(rank);
      if (contested && !this.#promotions.allowsContested) continue;
      const fewer =
        chosen !== undefined && this.#promotions.countOf(rank) < this.#promotions.countOf(chosen);
      if (chosen === undefined || fewer) {
        chosen = rank;
        chosenContested = contested;
      }
    }
    if (chosen === undefined) return undefined;
    invariant(this.#slots.tryTakeIgnoringReservations(chosen), "a step has a free slot");
    this.#promotions.dispatched(chosenContested ? chosen : undefined);
    return this.#serve(chosen, { promoted: true, spared: chosenContested }, now);
  }

  #serveHighest(now: MonotonicMs): Grant<T> | undefined {
    for (const rank of RANKS_DOWN) {
      if (this.#lanes.depth(rank) === 0 || !this.#slots.tryTake(rank)) continue;
      this.#promotions.dispatched(undefined);
      return this.#serve(rank, { promoted: false, spared: false }, now);
    }
    return undefined;
  }

  /** True when a waiter of a higher class could take the slot under its rule. */
  #contested(rank: ClassRank): boolean {
    return RANKS_DOWN.some(
      (higher) =>
        higher > rank && this.#lanes.depth(higher) > 0 && this.#slots.available(higher) > 0,
    );
  }

  /** The lowest lane that is over its threshold. */
  #lowestStarved(now: MonotonicMs): ClassRank | undefined {
    return RANKS.find((rank) => {
      const head = this.#lanes.head(rank);
      return rank !== 3 && head !== undefined && this.#starvedAt(head) <= now;
    });
  }

  /** Serves a lane, which need not be its oldest waiter. */
  #serve(
    rank: ClassRank,
    how: { readonly promoted: boolean; readonly spared: boolean },
    now: MonotonicMs,
  ): Grant<T> {
    const waiter = this.#lanes.shift(rank);
    invariant(waiter !== undefined, "a lane that is served has a waiter");
    const { promoted, spared } = how;
    const facts = { promoted, spared, queuedMs: now - waiter.enqueuedAt };
    return { waiter, permit: this.#permit(waiter, facts, waiter.share?.ticket, now) };
  }

  #enter({ tenant, model }: AdmissionAsk<T>, now: MonotonicMs): FairTicket | undefined {
    return this.#fair?.ledger.enter(tenant, model, now);
  }

  #permit(
    { request, rank, estimateTokens, proof }: AdmissionAsk<T>,
    how: { readonly queuedMs: number; readonly promoted: boolean; readonly spared: boolean },
    ticket: FairTicket | undefined,
    now: MonotonicMs,
  ): Permit {
    ticket?.reserve(estimateTokens);
    const { queuedMs, promoted, spared } = how;
    return this.#admitted(request, { rank, queuedMs, promoted, spared, proof }, ticket, now);
  }

  /** `spared`: it is no victim, since it passed a higher class to end the starving of its lane. */
  #admitted(
    request: T,
    facts: Pick<Permit, "rank" | "queuedMs" | "promoted" | "proof"> & { readonly spared: boolean },
    ticket: FairTicket | undefined,
    now: MonotonicMs,
  ): Permit {
    const { rank, queuedMs, promoted, spared, proof } = facts;
    const open = spared ? undefined : this.#preemption.open[rank];
    const about = { partition: this.name, rank, queuedMs, promoted, proof };
    return new Admitted<T>(request, about, ticket, now, open, (admitted) => {
      this.#preemption.released(admitted);
      this.#slotFreed(admitted.rank);
    });
  }

  #slotFreed(rank: ClassRank): void {
    this.#slots.release(rank);
    this.#rate.released();
    this.#onChanged(this);
  }

  #starvedAt(head: LaneWaiter<T>): MonotonicMs {
    const { starvationThresholdMs } = this.settings.classes[head.rank];
    return after(head.enqueuedAt, starvationThresholdMs + PAST_THRESHOLD_MS);
  }

  #anyWaiter(): LaneWaiter<T> | undefined {
    for (const rank of RANKS) {
      const head = this.#lanes.head(rank);
      if (head !== undefined) return head;
    }
    return undefined;
  }
}

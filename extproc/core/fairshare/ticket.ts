// One request as the ledger sees it: it waits, then runs on an estimate, then is settled, each step
// once. Whatever comes after the last step changes nothing.

import { invariant } from "../model/invariant.js";
import type { ModelId } from "../model/ids.js";
import type { Account } from "./account.js";
import type { ClockEntry, FairClock } from "./fair-clock.js";
import type { LaneTime } from "./lane-time.js";

/** A clock and the entry that moves in it. */
export interface Contender {
  readonly clock: FairClock;
  readonly entry: ClockEntry;
}

/**
 * Where a request contends: flat, or in the profile of a model, there as a named tenant or inside the
 * bucket of all others.
 */
export type Bucket = "flat" | "explicit" | "other";

export interface Standing {
  /** The model whose profile applies; undefined = the flat weights. */
  readonly profile: ModelId | undefined;
  readonly bucket: Bucket;
  /** The tenant has a weight of its own there. */
  readonly weighted: boolean;
}

/** Output tokens of a finished request. */
export interface Settlement {
  /** For the totals. */
  readonly tokens: number;
  /** For the clocks: at least 1 for work that ran, 0 for work that did not. */
  readonly clockTokens: number;
}

/** Hears when an account begins or ceases to have requests. */
export interface AccountListener {
  readonly onBusy: (account: Account) => void;
  readonly onIdle: (account: Account) => void;
}

type State = "queued" | "reserved" | "over";

export class FairTicket {
  readonly standing: Standing;
  /** From the outermost contender in. */
  readonly contenders: readonly Contender[];
  readonly #account: Account;
  readonly #listener: AccountListener;
  /** The times of the contests it takes part in, as its contenders. */
  #times: readonly LaneTime[] = [];
  #state: State = "queued";
  #estimateTokens = 0;

  /** Registers a waiting request. */
  constructor(
    standing: Standing,
    contenders: readonly Contender[],
    account: Account,
    listener: AccountListener,
  ) {
    this.standing = standing;
    this.contenders = contenders;
    this.#account = account;
    this.#listener = listener;
    if (account.queued + account.active === 0) listener.onBusy(account);
    account.queued += 1;
    for (const { clock, entry } of contenders) clock.register(entry);
  }

  /** Key of the account that is charged. */
  get payer(): string {
    return this.#account.key;
  }

  /** It waits in a lane, or runs there without having waited. Once, before anything else. */
  enterLane(times: readonly LaneTime[]): void {
    this.#times = times;
    for (const [depth, time] of times.entries()) {
      const contender = this.contenders[depth];
      if (contender !== undefined) time.enter(contender.entry);
    }
  }

  /** It was chosen for a slot and is booked its estimate, output tokens >= 0. */
  reserve(estimateTokens: number): void {
    invariant(this.#state === "queued", "only a waiting request is booked");
    this.#state = "reserved";
    this.#estimateTokens = Math.max(1, estimateTokens);
    this.#account.queued -= 1;
    this.#account.active += 1;
    this.#account.reserved += this.#estimateTokens;
    for (const { clock, entry } of this.contenders) clock.reserve(entry, this.#estimateTokens);
  }

  /** It left the queue without having run. */
  leave(): void {
    if (this.#state !== "queued") return;
    this.#state = "over";
    this.#account.queued -= 1;
    for (const { clock, entry } of this.contenders) clock.unregister(entry);
    this.#leaveLane(0);
    this.#idle();
  }

  /** It has ended and cost this. */
  settle({ tokens, clockTokens }: Settlement): void {
    if (this.#state !== "reserved") return;
    this.#state = "over";
    this.#account.active -= 1;
    this.#account.reserved -= this.#estimateTokens;
    this.#account.charged += tokens;
    for (const { clock, entry } of this.contenders) {
      clock.settle(entry, this.#estimateTokens, clockTokens);
    }
    this.#leaveLane(clockTokens);
    this.#idle();
  }

  /** The work never ran, or was taken away: it costs nothing. */
  cancel(): void {
    this.settle({ tokens: 0, clockTokens: 0 });
  }

  /** Nobody knows what became of it: the estimate stands. */
  drop(): void {
    this.settle({ tokens: this.#estimateTokens, clockTokens: this.#estimateTokens });
  }

  #leaveLane(chargedTokens: number): void {
    for (const [depth, time] of this.#times.entries()) {
      const contender = this.contenders[depth];
      if (contender !== undefined) time.exit(contender.entry, chargedTokens);
    }
  }

  #idle(): void {
    if (this.#account.queued + this.#account.active === 0) this.#listener.onIdle(this.#account);
  }
}

// Who has been charged what, for the whole process: one account per tenant, one clock for the flat
// weights and two per model profile. All partitions share it, so what a tenant gets in one pool counts
// in all others that use the same clock.
//
// Tenant keys come from clients, so the number of accounts is bounded. An account is forgotten only
// when that earns its tenant nothing: nothing waits or runs, and it is not ahead of any clock. When
// `max_tracked_tenants` accounts cannot be forgotten, further tenants share one overflow account, and
// with it one share. Totals of forgotten accounts move there: sums never lose a token.

import type { FairShareConfig } from "../model/config.js";
import type { ModelId, TenantKey } from "../model/ids.js";
import type { MonotonicMs } from "../model/time.js";
import { Account } from "./account.js";
import { flatProfile, modelProfile, type Profile } from "./profile.js";
import { FairTicket, type AccountListener, type Standing } from "./ticket.js";

/** Between two looks for accounts to forget; an account is kept at least that long after its last use. */
export const SWEEP_EVERY_MS = 60_000;
/** At the cap a look may come sooner, but never for every new name: it walks through all idle accounts. */
export const SWEEP_AT_CAP_EVERY_MS = 1_000;
/** Part of the accounts that a look at the cap leaves at most, so that looks stay rare. */
export const KEEP_AT_CAP = 0.9;
/** Key of the account that tenants beyond the cap share; no tenant key is spelled like it. */
export const OVERFLOW_KEY = "overflow";

export class Ledger {
  readonly overflow = new Account(OVERFLOW_KEY, true);
  readonly flat: Profile;
  readonly profiles: ReadonlyMap<ModelId, Profile>;
  readonly #accounts = new Map<TenantKey, Account>();
  readonly #listed: ReadonlySet<string>;
  readonly #maxTracked: number;
  /** Accounts without a request, the one idle for longest first, since when. */
  readonly #idle = new Map<Account, MonotonicMs>();
  #now: MonotonicMs;
  #sweptAt: MonotonicMs;
  #sweptAtCapAt: MonotonicMs | undefined;
  #overflowed = 0;
  #forgotten = 0;

  constructor(config: FairShareConfig, now: MonotonicMs) {
    this.flat = flatProfile(config);
    this.profiles = new Map(
      Array.from(config.model_profiles, ([model, profile]) => [
        model,
        modelProfile(model, profile, config.default_weight),
      ]),
    );
    this.#listed = new Set(
      [config, ...config.model_profiles.values()].flatMap(({ tenant_weights }) => [
        ...tenant_weights.keys(),
      ]),
    );
    this.#maxTracked = config.max_tracked_tenants;
    this.#now = now;
    this.#sweptAt = now;
  }

  /** Accounts of their own. */
  get tracked(): number {
    return this.#accounts.size;
  }

  /** Requests that were booked on the overflow account. */
  get overflowed(): number {
    return this.#overflowed;
  }

  /** Accounts whose totals were moved to the overflow account. */
  get forgotten(): number {
    return this.#forgotten;
  }

  /** Where a request of a tenant for a model contends; `model` undefined = no model was vouched for. */
  standing(tenant: TenantKey, model: ModelId | undefined): Standing {
    return this.#profile(model).standing(tenant);
  }

  /** Registers a waiting request. */
  enter(tenant: TenantKey, model: ModelId | undefined, now: MonotonicMs): FairTicket {
    this.#now = now;
    if (now - this.#sweptAt >= SWEEP_EVERY_MS) this.#sweep(now);
    const profile = this.#profile(model);
    const standing = profile.standing(tenant);
    const account = this.#accountFor(tenant, now);
    const contenders = profile.contenders(account, standing.bucket);
    return new FairTicket(standing, contenders, account, this.#listener);
  }

  /** The account of a tenant; undefined when it has none of its own. */
  account(tenant: TenantKey): Account | undefined {
    return this.#accounts.get(tenant);
  }

  accounts(): Iterable<Account> {
    return this.#accounts.values();
  }

  #profile(model: ModelId | undefined): Profile {
    return (model === undefined ? undefined : this.profiles.get(model)) ?? this.flat;
  }

  #accountFor(tenant: TenantKey, now: MonotonicMs): Account {
    const known = this.#accounts.get(tenant);
    if (known !== undefined) return known;
    const listed = this.#listed.has(tenant);
    if (!listed && this.#full(now)) {
      this.#overflowed += 1;
      return this.overflow;
    }
    const account = new Account(tenant, listed);
    this.#accounts.set(tenant, account);
    return account;
  }

  #full(now: MonotonicMs): boolean {
    if (this.#accounts.size < this.#maxTracked) return false;
    const last = this.#sweptAtCapAt;
    if (last === undefined || now - last >= SWEEP_AT_CAP_EVERY_MS) {
      this.#sweptAtCapAt = now;
      this.#makeRoom();
    }
    return this.#accounts.size >= this.#maxTracked;
  }

  #sweep(now: MonotonicMs): void {
    this.#sweptAt = now;
    for (const [account, since] of this.#idle) {
      if (now - since < SWEEP_EVERY_MS) return;
      this.#forgetIfSpent(account);
    }
  }

  #makeRoom(): void {
    const target = Math.floor(KEEP_AT_CAP * this.#maxTracked);
    for (const account of this.#idle.keys()) {
      if (this.#accounts.size <= target) return;
      this.#forgetIfSpent(account);
    }
  }

  #forgetIfSpent(account: Account): void {
    if (!account.isSpent) return;
    account.close();
    this.#idle.delete(account);
    this.#accounts.delete(account.key as TenantKey);
    this.overflow.charged += account.charged;
    this.#forgotten += 1;
  }

  readonly #listener: AccountListener = {
    onBusy: (account) => this.#idle.delete(account),
    onIdle: (account) => {
      if (!account.listed) this.#idle.set(account, this.#now);
    },
  };
}

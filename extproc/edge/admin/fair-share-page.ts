// What `GET /state/fair-share` shows: each tenant's totals and its standing in every clock it contends
// in, and for each lane who is next and why. It names tenants, which the other pages do not.

import type { Account } from "../../core/fairshare/account.js";
import type { Choice } from "../../core/fairshare/contest.js";
import type { ClockEntry } from "../../core/fairshare/fair-clock.js";
import type { Ledger } from "../../core/fairshare/ledger.js";
import type { Profile } from "../../core/fairshare/profile.js";
import type { Bucket } from "../../core/fairshare/ticket.js";
import { tenantKey } from "../../core/model/ids.js";
import { className, RANKS } from "../../core/model/priority.js";
import type { PartitionView } from "../../core/scheduler/admission.js";

/** Tenants on one page: those with requests first. A page must not hold up the streams. */
export const TENANTS_ON_PAGE_MAX = 1_000;
/** How the flat shares are called where others bear the name of a model. */
const FLAT = "global";
const BUCKETS: readonly Bucket[] = ["explicit", "other"];

/**
 * @param ledger undefined = fair sharing is off
 * @param only the key of the one tenant to show
 */
export function fairSharePage(
  ledger: Ledger | undefined,
  partitions: readonly PartitionView[],
  only: string | undefined,
): object {
  if (ledger === undefined) return { enabled: false };
  const profiles = [ledger.flat, ...ledger.profiles.values()];
  const shown = only === undefined ? busiest(ledger) : one(ledger, only);
  return {
    enabled: true,
    profiles: profiles.map(profileState),
    next: partitions.flatMap(lanesOf),
    tracked_tenants: ledger.tracked,
    forgotten_tenants: ledger.forgotten,
    overflow: { ...totals(ledger.overflow), requests: ledger.overflowed },
    tenants: shown.map((account) => ({
      tenant: account.key,
      ...totals(account),
      shares: profiles.flatMap((profile) => sharesOf(account, profile)),
    })),
  };
}

function profileState(profile: Profile): object {
  const { model, clock, other } = profile;
  const state = { model: model ?? FLAT, virtual_time: clock.virtualTime };
  return other === undefined ? state : { ...state, other: entryState(other) };
}

function totals(account: Account): object {
  const { charged, reserved, queued, active } = account;
  return { charged, reserved, queued, active };
}

function entryState(entry: ClockEntry): object {
  const { weight, queued, active, virtualFinish } = entry;
  return { weight, virtual_finish: virtualFinish, queued, active };
}

function sharesOf(account: Account, profile: Profile): object[] {
  const buckets: readonly Bucket[] = profile.other === undefined ? ["flat"] : BUCKETS;
  return buckets.flatMap((bucket) => {
    const entry = account.existingEntry(profile.clockOf(bucket));
    return entry === undefined
      ? []
      : [{ model: profile.model ?? FLAT, bucket, ...entryState(entry) }];
  });
}

/** Accounts with requests, then others, up to the limit; within the page the most charged first. */
function busiest(ledger: Ledger): readonly Account[] {
  const busy: Account[] = [];
  const idle: Account[] = [];
  for (const account of ledger.accounts()) {
    if (account.queued + account.active > 0) busy.push(account);
    else if (idle.length < TENANTS_ON_PAGE_MAX) idle.push(account);
    if (busy.length === TENANTS_ON_PAGE_MAX) break;
  }
  return [...busy, ...idle]
    .slice(0, TENANTS_ON_PAGE_MAX)
    .sort((one, other) => other.charged - one.charged);
}

function one(ledger: Ledger, key: string): readonly Account[] {
  const account = ledger.account(tenantKey(key));
  return account === undefined ? [] : [account];
}

/** One line for each lane in which somebody waits. */
function lanesOf(view: PartitionView): object[] {
  return RANKS.flatMap((rank) => {
    const choices = view.next[rank];
    return choices.length === 0
      ? []
      : [{ partition: view.name, class: className(rank), choice: choices.map(choiceState) }];
  });
}

function choiceState({ entry, reason, runnerUp }: Choice): object {
  return {
    contender: entry.key,
    virtual_finish: entry.virtualFinish,
    reason,
    runner_up: runnerUp?.key ?? null,
    runner_up_virtual_finish: runnerUp?.virtualFinish ?? null,
    why: why(entry, reason, runnerUp),
  };
}

function why(
  entry: ClockEntry,
  reason: Choice["reason"],
  runnerUp: ClockEntry | undefined,
): string {
  const other = runnerUp?.key ?? "";
  switch (reason) {
    case "only":
      return `only ${entry.key} waits here`;
    case "lowest":
      return `${entry.key} has had less service per weight than ${other}`;
    case "tie":
      return `${entry.key} and ${other} have had the same; named tenants go first, then the smaller key`;
  }
}

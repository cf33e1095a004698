// What `GET /state/fair-share` shows: each tenant's totals and its standing in every clock it contends
// in, and for each lane who is next and why. It names tenants, which the other pages do not.

import type { Account } from "../../core/fairshare/account.js";
import type { Choice } from "../../core/fairshare/contest.js";
import type { ClockEntry } from "../../core/fairshare/fair-clock.js";
import type { Ledger } from "../../core/fairshare/ledger.js";
import type { Profile } from "../../core/fairshare/profile.js";
import type { Bucket } from "../../core/fairshare/ticket.js";
import { byteOrder } from "../../core/model/byte-order.js";
import { tenantKey } from "../../core/model/ids.js";
import { IndexedHeap, type HeapNode } from "../../core/model/indexed-heap.js";
import { className, RANKS } from "../../core/model/priority.js";
import type { PartitionView } from "../../core/scheduler/admission.js";

/** Tenants on one page; a page must not hold up the streams. */
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
  const shown = only === undefined ? foremost(ledger) : one(ledger, only);
  return {
    enabled: true,
    profiles: profiles.map(profileState),
    next: partitions.flatMap(lanesOf),
    tracked_tenants: ledger.tracked,
    forgotten_tenants: ledger.forgotten,
    overflow: { ...totals(ledger.overflow), requests: ledger.overflowed },
    tenants_shown: shown.length,
    tenants_total: ledger.tracked,
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

/**
 * The accounts a person looks for first, up to the limit: tenants the configuration names, then those
 * with requests, then the most charged. One pass over all accounts, which may be a million; only the
 * best so far are kept, the least of them on top of a heap.
 */
function foremost(ledger: Ledger): readonly Account[] {
  const heap = new IndexedHeap<Account>((one, other) => pageOrder(one, other) > 0);
  const kept = new Map<Account, HeapNode<Account>>();
  for (const account of ledger.accounts()) {
    const least = heap.first;
    if (kept.size >= TENANTS_ON_PAGE_MAX && least !== undefined) {
      if (pageOrder(least, account) < 0) continue;
      const node = kept.get(least);
      if (node !== undefined) heap.remove(node);
      kept.delete(least);
    }
    kept.set(account, heap.push(account));
  }
  return [...kept.keys()].sort(pageOrder);
}

/** Below 0 when `one` stands before `other` on the page. */
function pageOrder(one: Account, other: Account): number {
  if (one.listed !== other.listed) return one.listed ? -1 : 1;
  const busy = hasRequests(one);
  if (busy !== hasRequests(other)) return busy ? -1 : 1;
  return other.charged - one.charged || byteOrder(one.key, other.key);
}

const hasRequests = ({ queued, active }: Account): boolean => queued + active > 0;

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

function choiceState(choice: Choice): object {
  const { entry, position, reason, runnerUp, runnerUpPosition } = choice;
  return {
    contender: entry.key,
    position,
    reason,
    runner_up: runnerUp?.key ?? null,
    runner_up_position: runnerUpPosition ?? null,
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

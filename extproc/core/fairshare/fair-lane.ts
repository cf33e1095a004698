// The choice of the next waiter of one class lane in one partition. Where several profiles meet in a
// lane, the one of the oldest waiter has the turn, so that models take turns by age; within the
// profile the contest decides. Debt is only ever compared among those that wait here, so nothing that
// happens elsewhere can keep a slot of this partition idle.

import type { ModelId } from "../model/ids.js";
import { Contest, type Choice, type Stand } from "./contest.js";
import type { FairTicket } from "./ticket.js";

export class FairLane<W> {
  readonly #contests = new Map<ModelId | undefined, Contest<W>>();

  /** Lets a waiter contend; each waits behind the earlier ones of its own tenant. */
  join(ticket: FairTicket, waiter: W): Stand<W> {
    const { profile } = ticket.standing;
    let contest = this.#contests.get(profile);
    if (contest === undefined) {
      contest = new Contest<W>();
      this.#contests.set(profile, contest);
    }
    return contest.join(ticket.contenders, waiter);
  }

  leave(ticket: FairTicket, stand: Stand<W>): void {
    this.#contests.get(ticket.standing.profile)?.leave(stand);
  }

  /** Whom to serve next, when the oldest waiter of the lane is of this profile. */
  next(profile: ModelId | undefined): W | undefined {
    return this.#contests.get(profile)?.next;
  }

  explain(profile: ModelId | undefined): readonly Choice[] {
    return this.#contests.get(profile)?.explain() ?? [];
  }
}

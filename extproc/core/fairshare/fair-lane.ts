// The choice of the next waiter of one class lane in one partition. Where several profiles meet in a
// lane they take turns: each waiter that comes adds a turn for its profile, the oldest turn is next, and
// within the profile the contest decides who uses it. A grant uses up the oldest turn, whoever was
// served: if the turn stayed with a waiter that is in debt in its profile, that waiter would keep all
// others of the lane waiting.
//
// Debt is only ever compared among those that wait here, so nothing that happens elsewhere can keep a
// slot of this partition idle.

import type { ModelId } from "../model/ids.js";
import { LinkedQueue, type QueueNode } from "../model/linked-queue.js";
import { Contest, type Choice, type Stand } from "./contest.js";
import type { FairTicket } from "./ticket.js";

interface Turn<W> {
  /** Whose leaving takes the turn away; not whom it serves. */
  holder: FairPlace<W>;
}

/** Where a waiter stands in its lane. */
export interface FairPlace<W> {
  readonly profile: ModelId | undefined;
  readonly stand: Stand<W>;
  turn: QueueNode<Turn<W>> | undefined;
}

export class FairLane<W> {
  readonly #contests = new Map<ModelId | undefined, Contest<W>>();
  readonly #turns = new LinkedQueue<Turn<W>>();

  /**
   * Lets a waiter contend; each waits behind the earlier ones of its own tenant.
   *
   * @param catchUpTokens how far behind the next one of the lane a tenant may begin, output tokens
   */
  join(ticket: FairTicket, waiter: W, catchUpTokens: number): FairPlace<W> {
    this.pass(ticket);
    const { profile } = ticket.standing;
    const stand = this.#contestOf(profile).join(ticket.contenders, waiter, catchUpTokens);
    const place: FairPlace<W> = { profile, stand, turn: undefined };
    place.turn = this.#turns.push({ holder: place });
    return place;
  }

  /** A request takes part in this lane's time; it need not wait here. */
  pass(ticket: FairTicket): void {
    ticket.enterLane(this.#contestOf(ticket.standing.profile).timesOf(ticket.contenders));
  }

  /** Takes the waiter out that has the turn; its profile's oldest turn is used up. */
  serve(place: FairPlace<W>): void {
    const first = this.#turns.head?.holder;
    if (first !== undefined && first !== place) {
      const { turn } = first;
      first.turn = place.turn;
      if (place.turn !== undefined) place.turn.value.holder = first;
      place.turn = turn;
    }
    this.leave(place);
  }

  /** Takes a waiter out that gives up. */
  leave(place: FairPlace<W>): void {
    if (place.turn !== undefined) this.#turns.remove(place.turn);
    place.turn = undefined;
    this.#contests.get(place.profile)?.leave(place.stand);
  }

  /** Whom to serve next. */
  get next(): W | undefined {
    return this.#contestInTurn?.next;
  }

  /** Why the next one is the next, from the outermost contest in. */
  explain(): readonly Choice[] {
    return this.#contestInTurn?.explain() ?? [];
  }

  #contestOf(profile: ModelId | undefined): Contest<W> {
    let contest = this.#contests.get(profile);
    if (contest === undefined) {
      contest = new Contest<W>();
      this.#contests.set(profile, contest);
    }
    return contest;
  }

  get #contestInTurn(): Contest<W> | undefined {
    const first = this.#turns.head;
    return first === undefined ? undefined : this.#contests.get(first.holder.profile);
  }
}

// The handle of an admitted request: it owns one slot of its partition until it is released, knows
// whether the request can still be preempted, and gives everything back once.

import type { FairTicket, Settlement, Standing } from "../fairshare/ticket.js";
import { invariant } from "../model/invariant.js";
import type { PartitionName } from "../model/ids.js";
import type { LinkedQueue, QueueNode } from "../model/linked-queue.js";
import type { ClassRank } from "../model/priority.js";
import type { MonotonicMs } from "../model/time.js";
import type { AdmissionProof } from "./admission-proof.js";
import { FirstByteCell } from "./first-byte.js";

/** What a request sees of its admission. */
export interface Permit {
  readonly partition: PartitionName;
  readonly rank: ClassRank;
  /** Time spent in the queue; 0 for a request that never waited. */
  readonly queuedMs: number;
  /** It passed its class rule because its lane was starved. */
  readonly promoted: boolean;
  /** The shares that apply to it; undefined without fair sharing. */
  readonly standing: Standing | undefined;
  /** The witness of its admission, where there is one; revoked, unless claimed, by its release. */
  readonly proof: AdmissionProof | undefined;
  /**
   * The answer has begun: from now on the request is not preempted. False when it was preempted
   * before; the answer must then not reach the client.
   */
  readonly firstByte: (now: MonotonicMs) => boolean;
  /** Replaces what the tenant was booked by what the request cost; only the first call counts. */
  readonly settle: (settlement: Settlement) => void;
  /** Gives the slot back; a second call does nothing. A charge not settled by now stays as booked. */
  readonly release: () => void;
}

/** One admitted request as its partition keeps it. */
export class Admitted<T> implements Permit {
  readonly request: T;
  readonly partition: PartitionName;
  readonly rank: ClassRank;
  readonly queuedMs: number;
  readonly promoted: boolean;
  readonly proof: AdmissionProof | undefined;
  readonly #ticket: FairTicket | undefined;
  readonly #admittedAt: MonotonicMs;
  readonly #cell = new FirstByteCell();
  readonly #onRelease: (admitted: Admitted<T>) => void;
  #released = false;
  /** The requests of its class that can be preempted, last admitted at the end, and its place there. */
  readonly #open: LinkedQueue<Admitted<T>> | undefined;
  readonly #node: QueueNode<Admitted<T>> | undefined;

  constructor(
    request: T,
    facts: Pick<Permit, "partition" | "rank" | "queuedMs" | "promoted"> &
      Partial<Pick<Permit, "proof">>,
    ticket: FairTicket | undefined,
    now: MonotonicMs,
    open: LinkedQueue<Admitted<T>> | undefined,
    onRelease: (admitted: Admitted<T>) => void,
  ) {
    this.request = request;
    this.partition = facts.partition;
    this.rank = facts.rank;
    this.queuedMs = facts.queuedMs;
    this.promoted = facts.promoted;
    this.proof = facts.proof;
    this.#ticket = ticket;
    this.#admittedAt = now;
    this.#open = open;
    this.#onRelease = onRelease;
    this.#node = open?.push(this);
  }

  get standing(): Standing | undefined {
    return this.#ticket?.standing;
  }

  /** Marked as a victim; its slot is still in use until it is released. */
  get preempted(): boolean {
    return this.#cell.preempted;
  }

  readonly firstByte = (now: MonotonicMs): boolean => {
    const first = this.#cell.markFirstByte(now - this.#admittedAt);
    if (first) this.#close();
    return first;
  };

  /** Marks it as a victim; false when its answer has begun, or it is over. */
  preempt(): boolean {
    if (this.#released || !this.#cell.preempt()) return false;
    invariant(this.#close(), "a victim stands among those that can be preempted");
    return true;
  }

  readonly settle = (settlement: Settlement): void => {
    this.#ticket?.settle(settlement);
  };

  readonly release = (): void => {
    if (this.#released) return;
    this.#released = true;
    this.proof?.revoke();
    this.#ticket?.drop();
    this.#close();
    this.#onRelease(this);
  };

  /** It cannot be preempted any more; false when it could not before. */
  #close(): boolean {
    const node = this.#node;
    return node !== undefined && this.#open?.remove(node) === true;
  }
}

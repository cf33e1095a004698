// What is booked on each worker beyond the requests in flight that its runtime counts: the tokens that
// chosen requests will cost (reservations), choices whose request is not yet counted as live load
// (claims), and at most one lease of a seed. All of it changes in the step in which a worker is chosen,
// so that the very next choice sees it.
//
// Books are kept by generation and every disposer holds its own book: when a worker is removed its book
// goes, and what its requests still give back later reaches nobody, least of all a worker registered
// anew under the same url. A replacement under the same url keeps generation and book.

import { TransientMap } from "../model/transient-map.js";
import type { ModelId, PartitionName } from "../model/ids.js";
import { invariant } from "../model/invariant.js";
import type { WorkerRegistry } from "./registry.js";
import type { Disposer, Worker, WorkerIdentity } from "./worker.js";

/** The one seed that a worker has. */
export interface SeedLease {
  readonly identity: WorkerIdentity;
  readonly partition: PartitionName;
  readonly model: ModelId;
  /** Nobody else is sent there for this model in this partition. */
  readonly exclusive: boolean;
}

export interface BookingsOptions {
  readonly registry: Pick<WorkerRegistry, "get">;
  readonly partitionOf: (worker: Worker, model: ModelId) => PartitionName;
}

interface Book {
  reservedTokens: number;
  claims: number;
  lease: SeedLease | undefined;
}

export class Bookings {
  readonly #options: BookingsOptions;
  /** By generation; an empty book is dropped. */
  readonly #books = new TransientMap<number, Book>();

  constructor(options: BookingsOptions) {
    this.#options = options;
  }

  /** Workers on which something is booked. */
  get size(): number {
    return this.#books.size;
  }

  /** Tokens reserved on a worker by requests that have not ended. */
  reservedTokens(generation: number): number {
    return this.#books.get(generation)?.reservedTokens ?? 0;
  }

  /** Requests for which a worker is chosen and that its live load does not count yet. */
  claims(generation: number): number {
    return this.#books.get(generation)?.claims ?? 0;
  }

  leaseOf(generation: number): SeedLease | undefined {
    return this.#books.get(generation)?.lease;
  }

  /**
   * Reserves tokens (a whole number, 1 or more) on a worker until the returned disposer is called.
   */
  reserve(worker: Worker, tokens: number): Disposer {
    invariant(Number.isInteger(tokens) && tokens >= 1, "a reservation is at least one whole token");
    const { generation } = worker.identity;
    const book = this.#bookOf(generation);
    book.reservedTokens += tokens;
    return this.#once(generation, book, () => {
      book.reservedTokens -= tokens;
      invariant(book.reservedTokens >= 0, "more tokens were given back than reserved");
    });
  }

  /**
   * Makes a choice visible until the request is live load: hold the load first, then release the claim,
   * so that at no instant the request is counted nowhere. Refused (undefined) when the worker is not
   * exactly the registered one, does not serve the model in this partition, or a seed has it for itself
   * there.
   */
  claim(worker: Worker, partition: PartitionName, model: ModelId): Disposer | undefined {
    const { generation } = worker.identity;
    const lease = this.leaseOf(generation);
    const taken =
      lease?.exclusive === true && lease.model === model && lease.partition === partition;
    if (taken || !this.#isCurrent(worker, partition, model)) {
      return undefined;
    }
    const book = this.#bookOf(generation);
    book.claims += 1;
    return this.#once(generation, book, () => {
      book.claims -= 1;
      invariant(book.claims >= 0, "more claims were released than taken");
    });
  }

  /**
   * Gives the worker to one seed until the returned disposer is called. Refused (undefined) when the
   * worker is not exactly the registered one, is leased already, or somebody has a claim on it. Whether
   * the worker has room at all is asked by the caller.
   *
   * @param exclusive nobody else may be sent there meanwhile
   */
  holdLease(
    worker: Worker,
    partition: PartitionName,
    model: ModelId,
    exclusive = true,
  ): Disposer | undefined {
    const { identity } = worker;
    const { generation } = identity;
    if (!this.#isCurrent(worker, partition, model)) return undefined;
    if (this.leaseOf(generation) !== undefined || this.claims(generation) > 0) return undefined;
    const book = this.#bookOf(generation);
    book.lease = { identity, partition, model, exclusive };
    return this.#once(generation, book, () => {
      book.lease = undefined;
    });
  }

  /** Lets others be sent to a worker that a seed has had for itself; its lease goes on. */
  shareLease(generation: number): void {
    const book = this.#books.get(generation);
    if (book?.lease !== undefined) book.lease = { ...book.lease, exclusive: false };
  }

  /** Forgets a worker that was removed; what is given back for it later changes nothing. */
  forget(generation: number): void {
    this.#books.delete(generation);
  }

  /** The very object that is registered, which fixes id, revision and generation in one comparison. */
  #isCurrent(worker: Worker, partition: PartitionName, model: ModelId): boolean {
    const { registry, partitionOf } = this.#options;
    return (
      registry.get(worker.identity.url) === worker &&
      worker.models.has(model) &&
      partitionOf(worker, model) === partition
    );
  }

  #bookOf(generation: number): Book {
    let book = this.#books.get(generation);
    if (book === undefined) {
      book = { reservedTokens: 0, claims: 0, lease: undefined };
      this.#books.set(generation, book);
    }
    return book;
  }

  #once(generation: number, book: Book, giveBack: () => void): Disposer {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      giveBack();
      const empty = book.reservedTokens === 0 && book.claims === 0 && book.lease === undefined;
      if (empty && this.#books.get(generation) === book) this.#books.delete(generation);
    };
  }
}

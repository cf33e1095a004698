import { expect } from "chai";
import fc from "fast-check";
import { invariant, InvariantError } from "../../../extproc/core/model/invariant.js";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";
import { Bookings } from "../../../extproc/core/workers/bookings.js";
import type { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import type { Disposer, Worker } from "../../../extproc/core/workers/worker.js";
import { healthyRegistry, workerConfig } from "../../support/workers.js";

const A = "http://127.0.0.1:1";
const B = "http://127.0.0.1:2";
const DEMO = modelId("demo");
const POOL = partitionName("pool");

function present<T>(value: T | undefined): T {
  invariant(value !== undefined, "a value is missing");
  return value;
}

class Bench {
  readonly registry: WorkerRegistry = healthyRegistry([{ url: A }, { url: B }]);
  readonly bookings = new Bookings({
    registry: this.registry,
    partitionOf: (worker) => worker.labels.admission_partition ?? POOL,
  });

  worker(url: string): Worker {
    const worker = this.registry.get(url);
    return present(worker);
  }

  remove(url: string): void {
    const { generation } = this.worker(url).identity;
    this.registry.remove(url);
    this.bookings.forget(generation);
  }

  claim(url: string): Disposer | undefined {
    return this.bookings.claim(this.worker(url), POOL, DEMO);
  }

  lease(url: string): Disposer | undefined {
    return this.bookings.holdLease(this.worker(url), POOL, DEMO);
  }

  /** Requests that have taken a place on the worker, in flight or claimed. */
  occupied(url: string): number {
    const worker = this.worker(url);
    return worker.runtime.liveLoad + this.bookings.claims(worker.identity.generation);
  }
}

describe("Bookings", () => {
  it("adds up reserved tokens per worker and gives each back once", () => {
    const { bookings, ...bench } = new Bench();
    const worker = bench.registry.get(A);
    expect(worker).not.to.equal(undefined);
    if (worker === undefined) return;
    const { generation } = worker.identity;
    const first = bookings.reserve(worker, 1500);
    const second = bookings.reserve(worker, 1);
    expect(bookings.reservedTokens(generation)).to.equal(1501);
    first();
    first();
    expect(bookings.reservedTokens(generation)).to.equal(1);
    second();
    expect(bookings.reservedTokens(generation)).to.equal(0);
    expect(bookings.size).to.equal(0);
  });

  it("reserves whole tokens, one or more", () => {
    const bench = new Bench();
    for (const tokens of [0, -1, 1.5, Number.NaN]) {
      expect(() => bench.bookings.reserve(bench.worker(A), tokens)).to.throw(InvariantError);
    }
  });

  it("L-1 refuses a lease beside a claim, and never counts the request nowhere on its way", () => {
    const bench = new Bench();
    const claim = bench.claim(A);
    expect(bench.lease(A)).to.equal(undefined);
    expect(bench.occupied(A)).to.equal(1);
    const load = bench.worker(A).runtime.holdLoad();
    expect(bench.occupied(A), "twice for an instant").to.equal(2);
    claim?.();
    expect(bench.occupied(A)).to.equal(1);
    load();
    expect(bench.occupied(A)).to.equal(0);
    expect(bench.lease(A)).not.to.equal(undefined);
  });

  it("refuses a claim and a second lease while a lease is held, on that worker only", () => {
    const bench = new Bench();
    const release = bench.lease(A);
    const { identity } = bench.worker(A);
    expect(bench.bookings.leaseOf(identity.generation)).to.deep.equal({
      identity,
      partition: POOL,
      model: DEMO,
      exclusive: true,
    });
    expect(bench.claim(A)).to.equal(undefined);
    expect(bench.lease(A)).to.equal(undefined);
    expect(bench.claim(B)).not.to.equal(undefined);
    release?.();
    expect(bench.bookings.leaseOf(identity.generation)).to.equal(undefined);
    expect(bench.claim(A)).not.to.equal(undefined);
  });

  it("lets others claim a worker whose lease is not exclusive, but gives it no second lease", () => {
    const bench = new Bench();
    const { bookings } = bench;
    const release = bookings.holdLease(bench.worker(A), POOL, DEMO, false);
    expect(release).not.to.equal(undefined);
    const claim = bench.claim(A);
    expect(claim).not.to.equal(undefined);
    claim?.();
    expect(bench.lease(A)).to.equal(undefined);
    release?.();
    expect(bench.lease(A)).not.to.equal(undefined);
  });

  it("does not let a late release end a newer lease", () => {
    const bench = new Bench();
    const old = bench.lease(A);
    old?.();
    bench.lease(A);
    old?.();
    expect(bench.bookings.leaseOf(bench.worker(A).identity.generation)).not.to.equal(undefined);
  });

  it("claims and leases only the very worker that is registered, for its model and partition", () => {
    const bench = new Bench();
    const old = bench.worker(A);
    const other = modelId("other");
    const elsewhere = partitionName("elsewhere");
    const { bookings } = bench;
    expect(bookings.claim(old, POOL, other)).to.equal(undefined);
    expect(bookings.claim(old, elsewhere, DEMO)).to.equal(undefined);
    expect(bookings.holdLease(old, POOL, other)).to.equal(undefined);
    bench.registry.put(workerConfig({ url: A }));
    expect(bookings.claim(old, POOL, DEMO)).to.equal(undefined);
    expect(bookings.holdLease(old, POOL, DEMO)).to.equal(undefined);
    expect(bench.claim(A)).not.to.equal(undefined);
  });

  it("keeps what is booked when a worker is replaced under its url", () => {
    const bench = new Bench();
    const release = bench.bookings.reserve(bench.worker(A), 10);
    const replacement = bench.registry.put(workerConfig({ url: A }));
    expect(bench.bookings.reservedTokens(replacement.identity.generation)).to.equal(10);
    release();
    expect(bench.bookings.reservedTokens(replacement.identity.generation)).to.equal(0);
  });

  it("never lets the requests of a removed worker touch its successor under the same url", () => {
    const bench = new Bench();
    const old = bench.worker(A);
    const late = [
      bench.bookings.reserve(old, 100),
      present(bench.claim(A)),
      old.runtime.holdLoad(),
    ];
    bench.remove(A);
    expect(bench.bookings.size).to.equal(0);
    const next = bench.registry.put(workerConfig({ url: A }));
    const { generation } = next.identity;
    bench.bookings.reserve(next, 7);
    next.runtime.holdLoad();
    bench.claim(A);
    for (const release of late) release();
    expect(bench.bookings.reservedTokens(generation)).to.equal(7);
    expect(bench.bookings.claims(generation)).to.equal(1);
    expect(next.runtime.liveLoad).to.equal(1);
  });

  it("keeps a newer book when the last booking of a forgotten one ends", () => {
    const bench = new Bench();
    const worker = bench.worker(A);
    const { generation } = worker.identity;
    const late = bench.bookings.reserve(worker, 5);
    bench.bookings.forget(generation);
    bench.bookings.reserve(worker, 7);
    late();
    expect(bench.bookings.reservedTokens(generation)).to.equal(7);
  });

  it("always holds exactly what is live, under random booking, removal, return and replacement", () => {
    interface Live {
      readonly generation: number;
      readonly tokens: number;
      readonly claim: boolean;
      readonly release: Disposer;
    }
    const action = fc.oneof(
      { weight: 5, arbitrary: fc.record({ do: fc.constant("reserve"), at: fc.nat(3) }) },
      { weight: 3, arbitrary: fc.record({ do: fc.constant("claim"), at: fc.nat(3) }) },
      { weight: 6, arbitrary: fc.record({ do: fc.constant("release"), at: fc.nat(30) }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant("remove"), at: fc.nat(3) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant("put"), at: fc.nat(3) }) },
    );
    fc.assert(
      fc.property(fc.array(action, { maxLength: 80 }), (actions) => {
        const bench = new Bench();
        const live: Live[] = [];
        const past: Disposer[] = [];
        const urlOf = (at: number): string => `http://127.0.0.1:${String(at + 1)}`;
        for (const [step, { do: what, at }] of actions.entries()) {
          const worker = bench.registry.get(urlOf(at % 4));
          if (what === "put") bench.registry.put(workerConfig({ url: urlOf(at) }));
          else if (what === "release" && live.length > 0) {
            const [ended] = live.splice(at % live.length, 1);
            ended?.release();
            if (ended !== undefined) past.push(ended.release);
            past[at % past.length]?.();
          } else if (worker !== undefined && what === "remove") bench.remove(urlOf(at));
          else if (worker !== undefined && what === "reserve") {
            const release = bench.bookings.reserve(worker, step + 1);
            const { generation } = worker.identity;
            live.push({ generation, tokens: step + 1, claim: false, release });
          } else if (worker !== undefined && what === "claim") {
            const release = present(bench.bookings.claim(worker, POOL, DEMO));
            const { generation } = worker.identity;
            live.push({ generation, tokens: 0, claim: true, release });
          }
          for (const { identity } of bench.registry.all()) {
            const own = live.filter(({ generation }) => generation === identity.generation);
            const tokens = own.reduce((sum, one) => sum + one.tokens, 0);
            expect(bench.bookings.reservedTokens(identity.generation)).to.equal(tokens);
            const claims = own.filter(({ claim }) => claim).length;
            expect(bench.bookings.claims(identity.generation)).to.equal(claims);
          }
          expect(bench.bookings.size).to.be.at.most(bench.registry.size);
        }
      }),
    );
  });
});
